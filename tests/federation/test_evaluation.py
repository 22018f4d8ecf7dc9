from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fedrec_unlearn.config import Config, EvaluationConfig, FederationConfig
from fedrec_unlearn.data.types import Split, UserItems
from fedrec_unlearn.errors import ConfigError, DataError
from fedrec_unlearn.federation.evaluation import Evaluator, Scorer

CPU = torch.device("cpu")
KINDS = [("mf", False), ("ncf", False), ("fm", False), ("deepfm", False), ("fm", True), ("deepfm", True)]
over_models = pytest.mark.parametrize(("model", "features"), KINDS)


def scorer_of(make_federation: Callable[..., Any], model: str, features: bool, **options: Any) -> tuple[Scorer, Any]:
    made = make_federation(model, features, **options)
    for name, value in made.state.server.dense.items():  # biases away from zero
        value += 0.1 * torch.randn(value.shape, generator=torch.Generator().manual_seed(len(name))).to(value)
    return Scorer(made.work.model, made.state, made.work.features), made


@over_models
def test_scores_are_the_models(make_federation: Callable[..., Any], model: str, features: bool) -> None:
    scorer, made = scorer_of(make_federation, model, features)
    users = torch.tensor([5, 0, 18])
    found = scorer.chunk(users)
    state = made.state
    for row, user in zip(found, users.tolist(), strict=True):
        expected = made.work.model.score(
            state.private[user], state.server.items, state.server.dense, made.work.features
        )
        torch.testing.assert_close(row.float(), expected.detach(), rtol=1e-5, atol=1e-6)


@over_models
def test_a_users_scores_do_not_depend_on_who_is_scored_beside(
    make_federation: Callable[..., Any], model: str, features: bool
) -> None:
    scorer, made = scorer_of(make_federation, model, features)
    everyone = torch.arange(made.work.model.n_users)
    whole = scorer.chunk(everyone)
    assert scorer.chunk(everyone[:0]).shape == (0, made.work.model.n_items)
    for size in (1, 2, 7):
        pieces = torch.cat([scorer.chunk(part) for part in torch.split(everyone, size)])
        if whole.dtype == torch.float64:  # one product for all; its last bit may move
            torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-14)
        else:
            assert torch.equal(pieces, whole)
    backwards = scorer.chunk(everyone.flip(0)).flip(0)
    torch.testing.assert_close(backwards, whole, rtol=0, atol=1e-14)


@over_models
def test_scores_of_pairs_are_those_of_the_catalogue(
    make_federation: Callable[..., Any], model: str, features: bool
) -> None:
    scorer, made = scorer_of(make_federation, model, features)
    users = torch.arange(made.work.model.n_users)
    items = torch.randint(0, made.work.model.n_items, (len(users), 6), generator=torch.Generator().manual_seed(1))
    tolerance = 1e-14 if scorer.chunk(users).dtype == torch.float64 else 1e-6
    torch.testing.assert_close(scorer.pairs(users, items), scorer.chunk(users).gather(1, items), rtol=0, atol=tolerance)


def parts(n_users: int, n_items: int, seed: int = 2, ratings: bool = True) -> Split:
    """Disjoint train, validation and test items."""
    rng = np.random.default_rng(seed)
    pieces: list[list[tuple[int, int]]] = [[], [], []]
    for owner in range(n_users):
        items = rng.permutation(n_items)
        sizes = [int(rng.integers(low, high)) for low, high in ((1, 8), (0, 4), (0, 4))]
        start = 0
        for piece, size in zip(pieces, sizes, strict=True):
            piece += [(owner, int(item)) for item in items[start : start + size]]
            start += size
    made = []
    for piece in pieces:
        user, item = np.array(piece).reshape(-1, 2).T
        rating = rng.integers(1, 6, len(user)).astype(float) if ratings else None
        made.append(UserItems.from_pairs(user, item, n_users, n_items, rating))
    return Split(*made)


def config_of(objective: str = "bpr", **options: Any) -> Config:
    evaluation = EvaluationConfig(**{"topk": (3, 5), "select_by": "rmse" if objective == "mse" else "ndcg@5"} | options)
    return Config(federation=FederationConfig(objective=objective), evaluation=evaluation)  # type: ignore[arg-type]


def evaluator_of(made: Any, split: Split, objective: str = "bpr", **options: Any) -> Evaluator:
    return Evaluator(made.work.model, split, config_of(objective, **options), CPU, made.work.features)


@over_models
@pytest.mark.parametrize("protocol", ["full", "sampled"])
def test_metrics_do_not_depend_on_the_chunk(
    make_federation: Callable[..., Any], model: str, features: bool, protocol: str
) -> None:
    _, made = scorer_of(make_federation, model, features)
    split = parts(made.work.model.n_users, made.work.model.n_items)
    found = [
        evaluator_of(made, split, protocol=protocol, sampled_negatives=10, chunk_size=size).evaluate(made.state, "test")
        for size in (1, 4, 512)
    ]
    assert found[0] == found[1] == found[2]


def by_hand(scores: np.ndarray, split: Split, part: str, k: int) -> dict[str, float]:
    """Recall, hit ratio and NDCG at k with everything spelled out."""
    relevant = split.valid if part == "valid" else split.test
    recall, hit, ndcg = [], [], []
    for user in range(relevant.n_users):
        wanted = set(relevant.of(user).tolist())
        if not wanted:
            continue
        seen = set(split.train.of(user).tolist()) | (set(split.valid.of(user).tolist()) if part == "test" else set())
        ranked = [i for i in np.argsort(-scores[user], kind="stable").tolist() if i not in seen][:k]
        gains = [1.0 / np.log2(place + 2) for place, item in enumerate(ranked) if item in wanted]
        ideal = sum(1.0 / np.log2(place + 2) for place in range(min(k, len(wanted))))
        recall.append(len(gains) / len(wanted))
        hit.append(float(bool(gains)))
        ndcg.append(sum(gains) / ideal)
    names = {"recall": recall, "hr": hit, "ndcg": ndcg}
    return {f"{name}@{k}/full": float(np.mean(values)) for name, values in names.items()}


@over_models
@pytest.mark.parametrize("part", ["valid", "test"])
def test_full_ranking_leaves_out_what_the_user_has_seen(
    make_federation: Callable[..., Any], model: str, features: bool, part: str
) -> None:
    scorer, made = scorer_of(make_federation, model, features)
    split = parts(made.work.model.n_users, made.work.model.n_items)
    found = evaluator_of(made, split).evaluate(made.state, part)
    scores = scorer.chunk(torch.arange(made.work.model.n_users)).numpy()
    for k in (3, 5):
        for name, value in by_hand(scores, split, part, k).items():
            assert found[name] == pytest.approx(value, abs=1e-12), name


def test_popularity_ranks_by_training_users(make_federation: Callable[..., Any]) -> None:
    made = make_federation()
    split = parts(made.work.model.n_users, made.work.model.n_items)
    counts = np.bincount(split.train.items, minlength=made.work.model.n_items).astype(float)
    # ties are the only freedom: break them as the evaluator does, by item id
    scores = np.tile(counts - 1e-6 * np.arange(len(counts)), (made.work.model.n_users, 1))
    found = evaluator_of(made, split).popularity("test")
    for name, value in by_hand(scores, split, "test", 5).items():
        assert found[name] == pytest.approx(value, abs=1e-12), name


@pytest.mark.parametrize("model", ["mf", "ncf", "fm"])
@pytest.mark.parametrize("part", ["valid", "test"])
def test_rmse_compares_score_plus_mean_with_the_rating(
    make_federation: Callable[..., Any], model: str, part: str
) -> None:
    scorer, made = scorer_of(make_federation, model, False, objective="mse")
    split = parts(made.work.model.n_users, made.work.model.n_items)
    evaluator = evaluator_of(made, split, "mse")
    relevant = split.valid if part == "valid" else split.test
    assert relevant.ratings is not None
    errors = []
    for user in range(relevant.n_users):
        for item, rating in zip(
            relevant.of(user), relevant.ratings[relevant.indptr[user] : relevant.indptr[user + 1]], strict=True
        ):
            errors.append(float(scorer.chunk(torch.tensor([user]))[0, item]) + made.state.rating_mean - rating)
    assert evaluator.select_by == "rmse"
    assert evaluator.evaluate(made.state, part) == {"rmse": pytest.approx(np.sqrt(np.mean(np.square(errors))))}
    assert split.train.ratings is not None
    spread = np.sqrt(np.mean((relevant.ratings - split.train.ratings.mean()) ** 2))
    assert evaluator.popularity(part) == {"rmse": pytest.approx(spread)}


def test_lower_is_better_for_rmse_higher_for_ranking_and_nan_never(make_federation: Callable[..., Any]) -> None:
    made = make_federation()
    split = parts(made.work.model.n_users, made.work.model.n_items)
    ranking, rating = evaluator_of(made, split), evaluator_of(made, split, "mse")
    assert ranking.better(0.1, None)
    assert rating.better(0.1, None)
    assert ranking.better(0.2, 0.1)
    assert not ranking.better(0.1, 0.1)
    assert not rating.better(0.2, 0.1)
    assert rating.better(0.1, 0.2)
    for evaluator in (ranking, rating):
        assert not evaluator.better(float("nan"), None)
        assert not evaluator.better(float("nan"), 0.1)


def test_a_list_longer_than_the_catalogue_or_the_candidates_is_refused(make_federation: Callable[..., Any]) -> None:
    made = make_federation()
    split = parts(made.work.model.n_users, made.work.model.n_items)
    with pytest.raises(ConfigError, match=r"evaluation\.topk: K=32 .* choose at most 31"):
        evaluator_of(made, split, topk=(5, 32))
    with pytest.raises(ConfigError, match=r"evaluation\.topk"):
        evaluator_of(made, split, topk=(5, 11), protocol="sampled", sampled_negatives=10)


def test_negatives_that_cannot_be_drawn_are_told_before_training(make_federation: Callable[..., Any]) -> None:
    made = make_federation()
    split = parts(made.work.model.n_users, made.work.model.n_items)
    evaluator = evaluator_of(made, split, protocol="sampled", sampled_negatives=30)
    with pytest.raises(ConfigError, match=r"evaluation\.sampled_negatives: 30 .* choose at most"):
        evaluator.prepare()


def test_sampled_negatives_are_those_of_the_splits_seed_not_the_runs(make_federation: Callable[..., Any]) -> None:
    made = make_federation()
    split = parts(made.work.model.n_users, made.work.model.n_items)
    config = config_of(protocol="sampled", sampled_negatives=10)
    values = []
    for seed, split_seed in ((1, 5), (2, 5), (1, 6)):
        changed = dataclasses.replace(config, seed=seed, split=dataclasses.replace(config.split, seed=split_seed))
        values.append(Evaluator(made.work.model, split, changed, CPU, None).evaluate(made.state, "test"))
    assert values[0] == values[1]
    assert values[0] != values[2]


@pytest.mark.parametrize("objective", ["bpr", "mse"])
@pytest.mark.parametrize("protocol", ["full", "sampled"])
def test_where_nothing_is_held_out_metrics_are_unknown(
    make_federation: Callable[..., Any], objective: str, protocol: str
) -> None:
    made = make_federation(objective=objective)
    whole = parts(made.work.model.n_users, made.work.model.n_items)
    nothing = UserItems(whole.train.n_items, np.zeros_like(whole.train.indptr), whole.train.items[:0], np.zeros(0))
    evaluator = evaluator_of(
        made, Split(whole.train, nothing, whole.test), objective, protocol=protocol, sampled_negatives=10
    )
    evaluator.prepare()
    assert not evaluator.holds("valid")
    assert evaluator.holds("test")
    for found in (evaluator.evaluate(made.state, "valid"), evaluator.popularity("valid")):
        assert found.keys() == evaluator.evaluate(made.state, "test").keys()
        assert all(np.isnan(value) for value in found.values())


def test_rmse_needs_ratings(make_federation: Callable[..., Any]) -> None:
    made = make_federation(objective="mse")
    split = parts(made.work.model.n_users, made.work.model.n_items, ratings=False)
    with pytest.raises(DataError, match=r"mse needs ratings and the data has none; use bpr or bce"):
        evaluator_of(made, split, "mse")
