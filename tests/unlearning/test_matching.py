"""Distances between classes against loops and autograd, and what moving the rows does to attackers and scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from fedrec_unlearn.errors import ConfigError, DataError, ModelError
from fedrec_unlearn.unlearning import matching
from fedrec_unlearn.unlearning.matching import (
    Classes,
    d2d_gradient,
    d2d_loss,
    match_distributions,
    score_metric,
    u2u_gradient,
    u2u_loss,
)


def draws(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


GROUPS = {
    2: torch.tensor([0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 1]),
    3: torch.tensor([0, 1, 2, 0, 1, 0, 2, 2, 1, 0, 2, 1, 1]),
}
both_sizes = pytest.mark.parametrize("k", [2, 3])


def between_pairs(x: Tensor, group: Tensor, k: int, pair_value: object) -> Tensor:
    """Mean over pairs of classes of what `pair_value(rows of a, rows of b)` says."""
    found = [pair_value(x[group == a], x[group == b]) for a in range(k) for b in range(a)]  # type: ignore[operator]
    return torch.stack(found).mean()


def kernel(x: Tensor, y: Tensor, spread: float) -> Tensor:
    distance = ((x[:, None] - y[None]) ** 2).sum(-1)
    widths = [64.0, 32.0, 16.0, 8.0, 4.0]
    return torch.stack([torch.exp(-distance / (width * spread)) for width in widths]).sum(0)


@both_sizes
def test_u2u_is_the_mean_squared_distance_of_users_of_different_classes(k: int) -> None:
    group = GROUPS[k]
    x = draws(len(group), 4, seed=1)
    expected = between_pairs(x, group, k, lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1).mean() / 1.7)
    torch.testing.assert_close(u2u_loss(x, Classes.of(group), 1.7), expected)


def test_u2u_of_two_classes_is_the_quadratic_form_of_the_laplacian_between_them() -> None:
    group = GROUPS[2]
    x = draws(len(group), 4, seed=1)
    adjacency = (group[:, None] != group[None]).double()
    laplacian = torch.diag(adjacency.sum(1)) - adjacency
    edges = float(adjacency.sum()) / 2
    torch.testing.assert_close(u2u_loss(x, Classes.of(group), 1.0), torch.trace(x.T @ laplacian @ x) / edges)


@both_sizes
def test_d2d_is_the_squared_distance_of_kernel_means(k: int) -> None:
    group = GROUPS[k]
    x = draws(len(group), 4, seed=2)
    expected = between_pairs(
        x, group, k, lambda a, b: kernel(a, a, 0.9).mean() + kernel(b, b, 0.9).mean() - 2 * kernel(a, b, 0.9).mean()
    )
    torch.testing.assert_close(d2d_loss(x, Classes.of(group), 0.9), expected)


@both_sizes
def test_gradients_are_those_of_the_losses_with_an_equal_pull_on_every_user(k: int) -> None:
    group = GROUPS[k]
    classes = Classes.of(group)
    x = draws(len(group), 4, seed=3).requires_grad_()
    pull = classes.counts[group].unsqueeze(1) * k / 2
    for loss, gradient, tolerance in ((u2u_loss, u2u_gradient, 1e-12), (d2d_loss, d2d_gradient, 1e-6)):
        (expected,) = torch.autograd.grad(loss(x, classes, 0.8), x)
        found = gradient(x.detach(), classes, 0.8)
        torch.testing.assert_close(found, expected * pull, rtol=1e-4, atol=tolerance)


def test_chunks_do_not_change_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = Classes.of(GROUPS[3])
    x = draws(len(GROUPS[3]), 4, seed=3)
    whole = d2d_gradient(x, classes, 0.8)
    monkeypatch.setattr(matching, "_CHUNK_NUMBERS", 3 * len(x))
    torch.testing.assert_close(d2d_gradient(x, classes, 0.8), whole, rtol=1e-5, atol=1e-7)


def test_the_metric_measures_the_change_of_scores_less_their_mean() -> None:
    start, items, change = draws(9, 4, seed=4), draws(30, 4, seed=5), draws(9, 4, seed=6)

    def spread(rows: Tensor) -> Tensor:
        scores = rows @ items.T
        return (scores - scores.mean(1, keepdim=True)).square().sum(1)

    metric = score_metric(start, items)
    torch.testing.assert_close(((change @ metric) * change).sum(1), spread(change) / spread(start).mean())


def population(n: int = 500, width: int = 6, k: int = 2) -> tuple[Tensor, np.ndarray, Tensor]:
    """Rows whose mean and spread tell the class, and items."""
    labels = np.arange(n) % (k + 1) % k  # class 0 is twice as large
    group = torch.from_numpy(labels)
    shift, scale = draws(k, width, seed=7), 0.7 + 0.4 * torch.arange(k).double().unsqueeze(1)
    return draws(n, width, seed=8) * scale[group] + 0.7 * shift[group], labels, draws(80, width, seed=9)


def cross_validated(rows: Tensor, labels: np.ndarray, classifier: object) -> float:
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    return float(balanced_accuracy_score(labels, cross_val_predict(classifier, rows.numpy(), labels, cv=folds)))


@both_sizes
def test_d2d_takes_classes_from_a_linear_and_a_quadratic_attacker(k: int) -> None:
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression

    rows, labels, items = population(k=k)
    moved = match_distributions(rows, labels, kind="d2d", items=items, steps=200, weight=20.0, seed=1)
    for attacker in (LogisticRegression(class_weight="balanced"), QuadraticDiscriminantAnalysis()):
        assert cross_validated(rows, labels, attacker) > 1 / k + 0.2
        assert cross_validated(moved, labels, attacker) < 1 / k + 0.1


@both_sizes
@pytest.mark.parametrize("weight", [0.1, 1.0, 1000.0])
def test_u2u_shrinks_differences_of_classes_only_little_more_than_those_of_users(k: int, weight: float) -> None:
    rows, labels, _ = population(k=k)
    classes = Classes.of(torch.from_numpy(labels))
    moved = match_distributions(rows, labels, kind="u2u", items=None, weight=weight, steps=3000, seed=1)
    spread = 2.0 * rows.var(0, correction=0).sum()
    pull = weight * rows.square().sum(1).mean() / spread

    def parts(x: Tensor) -> tuple[Tensor, Tensor]:
        means = classes.means(x)
        return x - means[classes.group], means[1:] - means[0]

    # the loss is quadratic, so its minimum is known: one factor for what is personal, one for what is the class
    for found, start, factor in zip(parts(moved), parts(rows), (1.0, k / (k - 1)), strict=True):
        torch.testing.assert_close(found, start / (1.0 + factor * pull), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", ["u2u", "d2d"])
def test_the_weight_trades_distance_for_scores(kind: str) -> None:
    rows, labels, items = population(n=240)
    classes = Classes.of(torch.from_numpy(labels))
    metric = score_metric(rows, items)
    distances, changes = [], []
    for weight in (0.01, 0.1, 1.0, 10.0):
        moved = match_distributions(rows, labels, kind=kind, items=items, weight=weight, steps=100, seed=1)  # type: ignore[arg-type]
        distances.append(float((u2u_loss if kind == "u2u" else d2d_loss)(moved, classes, 10.0)))
        changes.append(float((((moved - rows) @ metric) * (moved - rows)).sum(1).mean()))
    assert distances == sorted(distances, reverse=True)
    assert changes == sorted(changes)


def test_directions_that_no_item_sees_are_given_up_first() -> None:
    rows, labels, items = population()
    items[:, 3:] = 0.0
    moved = match_distributions(rows, labels, kind="u2u", items=items, weight=0.01, steps=400, seed=1)
    change = (moved - rows).square().mean(0)
    assert float(change[3:].min()) > 20 * float(change[:3].max())


def test_users_without_a_label_are_left_as_they_are_and_do_not_matter() -> None:
    rows, labels, items = population()
    hidden = labels.copy()
    hidden[100:150] = -1
    moved = match_distributions(rows, hidden, items=items, steps=20, seed=1)
    assert torch.equal(moved[100:150], rows[100:150])
    known = hidden >= 0
    assert (moved[known] != rows[known]).all()
    other = rows.clone()
    other[100:150] = 99.0
    again = match_distributions(other, hidden, items=items, steps=20, seed=1)
    assert torch.equal(again[known], moved[known])


@pytest.mark.parametrize("kind", ["u2u", "d2d"])
def test_names_of_classes_and_order_of_users_do_not_matter(kind: str) -> None:
    rows, labels, items = population(k=3)
    options = {"kind": kind, "items": items, "steps": 20, "seed": 1}
    moved = match_distributions(rows, labels, **options)  # type: ignore[arg-type]
    renamed = match_distributions(rows, np.array([7, 2, 5])[labels], **options)  # type: ignore[arg-type]
    torch.testing.assert_close(renamed, moved, rtol=1e-4, atol=1e-5)
    order = np.random.default_rng(0).permutation(len(labels))
    shuffled = match_distributions(rows[order], labels[order], **options)  # type: ignore[arg-type]
    torch.testing.assert_close(shuffled, moved[order], rtol=1e-4, atol=1e-5)


def test_the_default_weight_is_that_of_the_kind() -> None:
    rows, labels, items = population()
    for kind, weight in (("u2u", 0.1), ("d2d", 2.0)):
        by_default = match_distributions(rows, labels, kind=kind, items=items, steps=5, seed=1)  # type: ignore[arg-type]
        named = match_distributions(rows, labels, kind=kind, items=items, steps=5, weight=weight, seed=1)  # type: ignore[arg-type]
        assert torch.equal(by_default, named)


def test_users_compared_in_a_step_stand_for_all_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels, _ = population(n=300)
    group = torch.from_numpy(labels)
    classes = Classes.of(group)
    assert matching._compared(group, 1, 0) is None
    monkeypatch.setattr(matching, "SAMPLE", 60)
    whole = d2d_gradient(rows, classes, 10.0)
    found = []
    for step in range(400):
        compared = matching._compared(group, 1, step)
        assert compared is not None
        assert torch.bincount(group[compared]).tolist() == [40, 20]
        found.append(d2d_gradient(rows, classes, 10.0, compared))
    error = (torch.stack(found).mean(0) - whole).norm() / whole.norm()
    one = (found[0] - whole).norm() / whole.norm()
    # the mean of 400 draws errs a twentieth of what one draw does
    assert float(error) < 0.1 * float(one)


def test_users_compared_depend_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels, items = population(n=300)
    monkeypatch.setattr(matching, "SAMPLE", 60)
    first, second, other = (match_distributions(rows, labels, items=items, steps=5, seed=s) for s in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_rows_are_kept_near_themselves_where_scores_are_not_linear() -> None:
    rows, labels, _ = population()
    moved = match_distributions(rows.float(), labels, items=None, steps=20, seed=1)
    assert moved.dtype == torch.float32
    assert 0 < float((moved - rows).norm()) < float(rows.norm())


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"kind": "mmd"}, ConfigError, "unknown kind 'mmd'; known: u2u, d2d"),
        ({"steps": 0}, ConfigError, "unlearn.matching_steps"),
        ({"weight": 0.0}, ConfigError, "unlearn.matching_weight"),
        ({"weight": math.nan}, ConfigError, "unlearn.matching_weight"),
        ({"labels": np.zeros(3, dtype=np.int64)}, DataError, "need one label each"),
        ({"labels": np.full(500, -1)}, DataError, "at least two classes"),
        ({"labels": np.where(np.arange(500) < 9, -1, 0)}, DataError, "at least two classes"),
        ({"items": torch.zeros(4, 5)}, DataError, "do not score rows of width 6"),
        ({"items": torch.ones(4, 6)}, ModelError, "scores all items alike"),
        ({"rows": torch.ones(500, 6)}, ModelError, "the same private row"),
        ({"rows": torch.full((500, 6), math.inf)}, ModelError, "private rows hold NaN or infinite"),
        ({"items": torch.full((4, 6), math.nan)}, ModelError, "items hold NaN or infinite"),
    ],
)
def test_what_cannot_be_matched_is_refused(change: dict[str, object], error: type[Exception], said: str) -> None:
    rows, labels, items = population()
    with pytest.raises(error, match=said):
        match_distributions(**{"rows": rows, "labels": labels, "items": items, "seed": 1, **change})  # type: ignore[arg-type]
