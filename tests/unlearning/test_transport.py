from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

from fedrec_unlearn.config import UnlearnConfig
from fedrec_unlearn.config_unlearn import UnlearnWarning
from fedrec_unlearn.data.types import MISSING, Attribute
from fedrec_unlearn.errors import ConfigError, ModelError
from fedrec_unlearn.federation.secure_sum import SumServer, combine, share
from fedrec_unlearn.unlearning import transport_map
from fedrec_unlearn.unlearning.erasure import erase_linear, erasing_map
from fedrec_unlearn.unlearning.moment_sums import FRACTION_BITS, secure_moments
from fedrec_unlearn.unlearning.moments import ClassMoments, class_moments, client_message
from fedrec_unlearn.unlearning.transport import transport_rows
from fedrec_unlearn.unlearning.transport_map import damped_maps, mean_maps, optimal_maps, shrunk

MOMENTS = UnlearnConfig(attributes=("a",), method="moments", moment_share=1.0)


def users(n: int = 600, width: int = 6, n_classes: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose mean and covariance depend on the class."""
    draws = np.random.default_rng(seed)
    labels = draws.integers(n_classes, size=n)
    shapes = draws.normal(size=(n_classes, width, width)) / width**0.5 + np.eye(width)
    means = draws.normal(size=(n_classes, width)) * 0.8
    rows = np.einsum("nij,nj->ni", shapes[labels], draws.normal(size=(n, width))) + means[labels]
    return rows, labels


def attribute(labels: np.ndarray, name: str = "a") -> Attribute:
    return Attribute(name, tuple(str(k) for k in range(labels.max() + 1)), labels)


def spread_between(rows: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """How far the classes' means, and their covariances, lie from those of all users."""
    moments = class_moments(rows, labels, int(labels.max()) + 1)
    means = np.abs(moments.means - moments.mean).max()
    return float(means), float(np.abs(moments.covariances - moments.covariance).max())


@pytest.mark.parametrize("n_classes", [2, 4])
def test_optimal_maps_even_out_means_and_covariances_exactly(n_classes: int) -> None:
    rows, labels = users(n_classes=n_classes)
    moved = optimal_maps(class_moments(rows, labels, n_classes)).apply(rows, labels)
    before = class_moments(rows, labels, n_classes)
    after = class_moments(moved, labels, n_classes)
    for k in range(n_classes):
        assert after.means[k] == pytest.approx(before.mean, abs=1e-9)
        assert after.covariances[k] == pytest.approx(before.covariance, abs=1e-8)


def test_an_optimal_map_is_the_gradient_of_a_convex_function() -> None:
    rows, labels = users()
    for matrix in optimal_maps(class_moments(rows, labels, 2)).matrices:
        assert matrix == pytest.approx(matrix.T, abs=1e-9)
        assert np.linalg.eigvalsh(matrix).min() > 0


@pytest.mark.parametrize("n_classes", [2, 4])
def test_damped_maps_even_out_what_they_are_allowed_to(n_classes: int) -> None:
    rows, labels = users(n_classes=n_classes)
    moments = class_moments(rows, labels, n_classes)
    before = spread_between(rows, labels)
    left = [spread_between(damped_maps(moments, None, r).apply(rows, labels), labels) for r in (1e-4, 0.1, 10.0)]
    assert max(left[0]) < 0.1 * min(before)
    assert left[0] < left[1] < left[2] < before


def test_damped_maps_spend_their_moves_where_scores_feel_them_least() -> None:
    rows, labels = users(width=4)
    moments = class_moments(rows, labels, 2)
    cost = np.diag([100.0, 1.0, 1.0, 1.0])
    dear, cheap = ((damped_maps(moments, metric, 0.3).apply(rows, labels) - rows)[:, 0] for metric in (cost, np.eye(4)))
    assert np.square(dear).mean() < 0.5 * np.square(cheap).mean()


def test_maps_do_not_depend_on_the_coordinates_of_rows_and_items() -> None:
    rows, labels = users()
    items = np.random.default_rng(1).normal(size=(50, 6))
    turn = np.random.default_rng(2).normal(size=(6, 6)) + 2 * np.eye(6)
    back = np.linalg.inv(turn)
    found = damped_maps(class_moments(rows, labels, 2), items.T @ items, 0.05).apply(rows, labels) @ items.T
    turned_items = items @ back
    turned = damped_maps(class_moments(rows @ turn.T, labels, 2), turned_items.T @ turned_items, 0.05)
    assert turned.apply(rows @ turn.T, labels) @ turned_items.T == pytest.approx(found, abs=1e-6)


def test_means_alone_are_evened_out_by_a_shift() -> None:
    rows, labels = users()
    moments = class_moments(rows, labels, 2)
    moved = mean_maps(moments).apply(rows, labels)
    means, covariances = spread_between(moved, labels)
    assert means < 1e-12
    assert covariances == pytest.approx(np.abs(moments.covariances - class_moments(moved, labels, 2).covariance).max())


def test_small_classes_are_shrunk_more() -> None:
    rows, labels = users(n_classes=3)
    labels[(labels == 2) & (np.arange(len(labels)) > 60)] = 0
    moments = class_moments(rows, labels, 3)
    mixed = shrunk(moments, 1.0)
    moved = np.abs(mixed.covariances - moments.covariances).max(axis=(1, 2))
    towards = np.abs(moments.covariances - moments.within).max(axis=(1, 2))
    shares = moved / towards
    assert shares == pytest.approx(6 / (moments.counts + 6))
    assert np.array_equal(shrunk(moments, 0.0).covariances, moments.covariances)


def test_the_servers_open_the_moments_of_those_that_send() -> None:
    rows, labels = users(n=40, width=3)
    sends = np.arange(40) % 3 > 0
    servers = SumServer("a", 2 * (1 + 3 + 6), 0), SumServer("b", 2 * (1 + 3 + 6), 0)
    for message in client_message(rows, np.where(sends, labels, MISSING), 2, FRACTION_BITS):
        for server, part in zip(servers, share(message, 0), strict=True):
            server.receive(part)
    opened = combine(servers[0].partial(), servers[1].partial())
    found = secure_moments(rows, labels, 2, sends)
    exact = class_moments(rows[sends], labels[sends], 2)
    assert opened[0] == exact.counts[0]
    assert found.counts == pytest.approx(exact.counts)
    assert found.means == pytest.approx(exact.means, abs=1e-6)
    assert found.covariances == pytest.approx(exact.covariances, abs=1e-5)


def test_rows_of_users_without_a_class_stay_and_the_others_lose_it() -> None:
    rows, labels = users()
    labels[:20] = MISSING
    given = torch.from_numpy(rows).float()
    moved, up, down = transport_rows(given, [attribute(labels)], MOMENTS, items=None, seed=1)
    assert torch.equal(moved[:20], given[:20])
    known = slice(20, None)
    assert spread_between(moved[known].double().numpy(), labels[known]) < spread_between(rows[known], labels[known])
    assert up > down > 0


def test_several_attributes_are_evened_out_in_every_combination() -> None:
    rows, labels = users(n=2000, n_classes=4)
    one, other = attribute(labels % 2, "one"), attribute(labels // 2, "other")
    moved = transport_rows(torch.from_numpy(rows), [one, other], MOMENTS, items=None, seed=1)[0].numpy()
    before, after = spread_between(rows, labels), spread_between(moved, labels)
    assert max(after) < 0.35 * max(before)


def test_the_part_that_sends_depends_on_the_seed_alone() -> None:
    rows, labels = users()
    half = UnlearnConfig(attributes=("a",), method="moments", moment_share=0.5)
    one, again, other = (
        transport_rows(torch.from_numpy(rows), [attribute(labels)], half, items=None, seed=seed)[0]
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_a_class_with_too_few_users_keeps_its_rows_and_is_told_of() -> None:
    rows, labels = users(n_classes=3)
    labels[labels == 1], labels[:3] = 0, 1
    given = torch.from_numpy(rows)
    with pytest.warns(UnlearnWarning, match=r"fewer than 5 users that send: a '1' \(3\)"):
        moved, _, _ = transport_rows(given, [attribute(labels)], MOMENTS, items=None, seed=1)
    assert torch.equal(moved[:3], given[:3])
    others = np.where(labels == 2, 1, 0)[3:]
    assert spread_between(moved[3:].numpy(), others) < spread_between(rows[3:], others)


def test_with_one_class_large_enough_there_is_nothing_to_even_out() -> None:
    rows, labels = users()
    labels[:3], labels[3:] = 1, 0
    with pytest.raises(ConfigError, match=r"in two classes at least; too few have a '1' \(3\)"):
        transport_rows(torch.from_numpy(rows), [attribute(labels)], MOMENTS, items=None, seed=1)


def test_rows_that_are_all_the_same_are_refused() -> None:
    with pytest.raises(ModelError, match="all the same"):
        transport_rows(torch.ones(20, 3), [attribute(np.arange(20) % 2)], MOMENTS, items=None, seed=1)


def test_after_linear_erasure_no_linear_classifier_beats_a_constant_and_rows_moved_least() -> None:
    rows, labels = users(n_classes=3)
    moments = class_moments(rows, labels, 3)
    matrix = erasing_map(moments.means, moments.weights, moments.covariance)
    moved = moments.mean + (rows - moments.mean) @ matrix.T
    one_hot = np.eye(3)[labels]
    covariance = (moved - moved.mean(0)).T @ (one_hot - one_hot.mean(0)) / len(rows)
    assert np.abs(covariance).max() < 1e-12
    # any other projection along which classes are erased moves rows further: the orthogonal one is such
    deviations = np.linalg.svd((moments.means - moments.mean).T, full_matrices=False)[0][:, :2]
    orthogonal = rows - (rows - moments.mean) @ deviations @ deviations.T
    assert np.square(moved - rows).sum() <= np.square(orthogonal - rows).sum()


def test_linear_erasure_moves_users_without_a_class_too() -> None:
    rows, labels = users()
    labels[:20] = MISSING
    given = torch.from_numpy(rows)
    moved, up, down = erase_linear(given, [attribute(labels)], MOMENTS, seed=1)
    assert not torch.equal(moved[:20], given[:20])
    assert up > 0
    assert down > 0


def test_linear_erasure_opens_no_sum_over_a_few_users_either() -> None:
    rows, labels = users(n_classes=3)
    labels[labels == 1], labels[:3] = 0, 1
    with pytest.warns(UnlearnWarning, match=r"fewer than 5 users that send: a '1' \(3\)"):
        erase_linear(torch.from_numpy(rows), [attribute(labels)], MOMENTS, seed=1)


def dense_curvature(cost: np.ndarray) -> np.ndarray:
    """Curvature of z_i z_j (i <= j) under moves with a metric, entry by entry; i = j counts once, not twice."""
    width = len(cost)
    pairs = [(i, j) for i in range(width) for j in range(i, width)]
    found = np.zeros((len(pairs), len(pairs)))
    for a, (i, j) in enumerate(pairs):
        for b, (k, m) in enumerate(pairs):
            terms = (cost[i, k] * (j == m), cost[i, m] * (j == k), cost[j, k] * (i == m), cost[j, m] * (i == k))
            halves = (0.5 if i == j else 1.0) ** 0.5 * (0.5 if k == m else 1.0) ** 0.5
            found[a, b] = halves * sum(terms)
    return found


def test_one_damped_step_solves_the_dense_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_map, "STEPS", 1)
    monkeypatch.setattr(transport_map, "DAMPING", 1.0)
    width, ridge = 5, 0.2
    moments = class_moments(*users(200, width), 2)
    maps = transport_map.damped_maps(moments, None, ridge)

    root = _power(moments.covariance, 0.5)
    inverse = _power(moments.covariance, -0.5)
    in_white = root @ root
    cheap = np.linalg.inv(in_white / (np.trace(in_white) / width) + transport_map.FLOOR * np.eye(width))
    curvature = dense_curvature(cheap)
    held = ridge * (np.trace(cheap) + np.trace(curvature)) / (width + len(curvature))
    upper = np.triu_indices(width)
    weight = np.where(upper[0] == upper[1], 0.5**0.5, 1.0)
    for k in range(2):
        mean = inverse @ (moments.means[k] - moments.mean)
        covariance = inverse @ moments.covariances[k] @ inverse
        difference = (covariance + np.outer(mean, mean) - np.eye(width))[upper] * weight
        slope = np.zeros((width, width))
        slope[upper] = np.linalg.solve(curvature + held * np.eye(len(curvature)), difference) * weight
        turn = np.eye(width) - cheap @ (slope + slope.T)
        shift = -cheap @ np.linalg.solve(cheap + held * np.eye(width), mean)
        np.testing.assert_allclose(maps.matrices[k], root @ turn @ inverse, atol=1e-9)
        np.testing.assert_allclose(maps.offsets[k], root @ shift, atol=1e-9)


def test_wide_rows_need_no_more_than_a_few_matrices_of_their_width() -> None:
    draw = np.random.default_rng(1)
    width = 200  # with a matrix over all pairs of columns this would take 3 GB
    covariances = np.stack([np.cov(draw.normal(size=(400, width)).T) for _ in range(2)])
    moments = ClassMoments(np.array([200.0, 200.0]), draw.normal(size=(2, width)) * 0.1, covariances)
    tracemalloc.start()
    try:
        maps = transport_map.damped_maps(moments, None, 0.015)
        assert tracemalloc.get_traced_memory()[1] < 50 * 8 * width**2
    finally:
        tracemalloc.stop()
    assert np.isfinite(maps.matrices).all()


def _power(matrix: np.ndarray, power: float) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    found: np.ndarray = (vectors * values**power) @ vectors.T
    return found
