"""From scores to named metrics, against a naive evaluation with sets and sorting."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fedrec_unlearn.errors import ConfigError, DataError
from fedrec_unlearn.metrics import (
    RANKING_METRICS,
    EmptyMetricWarning,
    evaluate_full,
    evaluate_sampled,
    metric_key,
    popularity_scorer,
    popularity_scores,
    sampled_protocol,
)

torch.set_num_threads(1)

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")),
]


def csr(lists):
    return np.cumsum([0, *map(len, lists)]), np.array([i for items in lists for i in items], dtype=np.int64)


@pytest.fixture
def case():
    """Scores, and three disjoint item lists of 40 users; every eighth user has nothing held out."""
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(40, 30))
    parts = []
    for user in range(40):
        items = rng.permutation(30)
        parts.append((items[:6], items[6:9], items[9:9] if user % 8 == 0 else items[9 : 9 + 1 + user % 5]))
    train, valid, test = ([part[j] for part in parts] for j in range(3))
    return scores, train, valid, test


def naive(scores, seen, relevant, k):
    """Recall, precision and MRR by sets and sorting."""
    recall, precision, mrr = [], [], []
    for row, left_out, wanted in zip(scores, seen, relevant, strict=True):
        if len(wanted) == 0:
            continue
        ranked = [i for i in np.argsort(-row) if i not in left_out][:k]
        places = [r for r, item in enumerate(ranked, start=1) if item in wanted]
        recall.append(len(places) / len(wanted))
        precision.append(len(places) / k)
        mrr.append(1 / places[0] if places else 0.0)
    return {f"recall@{k}/full": recall, f"precision@{k}/full": precision, f"mrr@{k}/full": mrr}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("chunk_size", [1, 7, 512])
def test_full_evaluation_equals_a_naive_one_for_each_chunk_size(case, chunk_size, device):
    scores, train, _, test = case
    matrix = torch.from_numpy(scores).to(device)
    values = evaluate_full(
        lambda u: matrix[u], csr(train), csr(test), 30, (3, 10), ("recall", "precision", "mrr"), chunk_size, device
    )
    expected = {**naive(scores, train, test, 3), **naive(scores, train, test, 10)}
    assert values == pytest.approx({name: np.mean(per_user) for name, per_user in expected.items()})


def test_all_lengths_come_from_one_pass_over_the_users(case):
    scores, train, _, test = case
    asked = []

    def score(users):
        asked.extend(users.tolist())
        return torch.from_numpy(scores)[users]

    evaluate_full(score, csr(train), csr(test), 30, (1, 5, 20), RANKING_METRICS, chunk_size=9)
    assert asked == [u for u in range(40) if u % 8]


def test_names_tell_the_protocol(case):
    scores, train, valid, test = case
    matrix = torch.from_numpy(scores)
    full = evaluate_full(lambda u: matrix[u], csr(train), csr(test), 30, (5,), ("ndcg", "hr"))
    sampled = evaluate_sampled(
        lambda u, i: matrix[u].gather(1, i), [csr(train), csr(valid)], csr(test), 30, (5,), ("ndcg", "hr"), 9
    )
    assert list(full) == ["ndcg@5/full", "hr@5/full"]
    assert list(sampled) == ["ndcg@5/9neg", "hr@5/9neg"]
    assert metric_key("ndcg", 10, sampled_protocol(99)) == "ndcg@10/99neg"


@pytest.mark.parametrize("device", DEVICES)
def test_sampled_evaluation_scores_only_untouched_negatives_and_ignores_the_chunk_size(case, device):
    scores, train, valid, test = case
    matrix = torch.from_numpy(scores).to(device)
    pairs = [(u, i) for u in range(40) for i in sorted(test[u])]
    results = []
    for chunk_size in (1, 5, 1000):
        asked = []

        def score(users, items, asked=asked):
            asked.extend(zip(users.tolist(), items.tolist(), strict=True))
            return matrix[users].gather(1, items)

        results.append(
            evaluate_sampled(
                score, [csr(train), csr(valid)], csr(test), 30, (1, 4), RANKING_METRICS, 8, 3, None, chunk_size, device
            )
        )
        assert [(user, row[0]) for user, row in asked] == pairs
        for user, row in asked:
            assert not set(row[1:]) & {*train[user], *valid[user], *test[user]}
    assert results[0] == results[1] == results[2]
    hit = [(scores[u, row[1:]] > scores[u, row[0]]).sum() < 4 for u, row in asked]
    assert results[0]["hr@4/8neg"] == pytest.approx(np.mean(hit))


def test_given_negatives_are_the_ones_used():
    matrix = torch.tensor([[3.0, 1, 2, 0], [0.0, 1, 2, 3]])
    values = evaluate_sampled(
        lambda u, i: matrix[u].gather(1, i),
        [csr([[0], []])],
        csr([[1], [0]]),
        4,
        (1, 2),
        ("hr", "mrr"),
        negatives=np.array([[2, 3], [1, 3]]),
    )
    assert values == {"hr@1/2neg": 0.0, "mrr@1/2neg": 0.0, "hr@2/2neg": 0.5, "mrr@2/2neg": 0.25}
    with pytest.raises(DataError, match="row 0 has item 0, which user 0 has touched"):
        evaluate_sampled(
            lambda u, i: matrix[u].gather(1, i),
            [csr([[0], []])],
            csr([[1], [0]]),
            4,
            (1,),
            ("hr",),
            negatives=np.array([[0, 3], [1, 3]]),
        )


def test_an_evaluation_without_held_out_items_is_nan_with_one_warning():
    nothing = csr([[], []])
    with pytest.warns(EmptyMetricWarning) as caught:
        full = evaluate_full(lambda u: pytest.fail("scored"), csr([[0], [1]]), nothing, 9, (2,), RANKING_METRICS)
    with pytest.warns(EmptyMetricWarning) as caught_sampled:
        sampled = evaluate_sampled(lambda u, i: pytest.fail("scored"), [], nothing, 9, (2,), RANKING_METRICS, 5)
    assert len(caught) == len(caught_sampled) == 1
    assert len(full) == len(sampled) == len(RANKING_METRICS)
    assert np.isnan([*full.values(), *sampled.values()]).all()


def test_options_that_cannot_work_are_refused_before_any_scoring():
    lists = csr([[0]]), csr([[1]])
    with pytest.raises(ConfigError, match="unknown metric 'recal'; did you mean 'recall'"):
        evaluate_full(lambda u: pytest.fail("scored"), *lists, 9, (2,), ("recal",))
    with pytest.raises(ConfigError, match=r"K=20 is larger than the catalogue, n_items=9"):
        evaluate_full(lambda u: pytest.fail("scored"), *lists, 9, (2, 20), ("recall",))
    with pytest.raises(ConfigError, match="K=6 holds the held-out item and all 5 negatives"):
        evaluate_sampled(lambda u, i: pytest.fail("scored"), [lists[0]], lists[1], 9, (6,), ("hr",), 5)
    with pytest.raises(ConfigError, match="sampled_negatives: 0 must be at least 1"):
        evaluate_sampled(lambda u, i: pytest.fail("scored"), [lists[0]], lists[1], 9, (1,), ("hr",), 0)


@pytest.mark.filterwarnings("ignore:.*unsafe cast")
def test_popularity_on_ml_100k_agrees_with_ranx():
    folder = Path(os.environ.get("FEDREC_DATA", "/nonexistent"))
    places = [folder / "ml-100k/ml-100k.inter", folder / "ml-100k-recbole/ml-100k.inter.gz"]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        pytest.skip("needs ml-100k/ml-100k.inter (or ml-100k-recbole/ml-100k.inter.gz) in $FEDREC_DATA")
    ranx = pytest.importorskip("ranx")
    table = np.loadtxt(path, skiprows=1, usecols=(0, 1), dtype=np.int64) - 1
    table = table[np.lexsort((table[:, 1], table[:, 0]))]
    held_out = np.arange(len(table)) % 5 == 0
    parts = []
    for part in (table[~held_out], table[held_out]):
        parts.append((np.searchsorted(part[:, 0], np.arange(944)), part[:, 1]))
    train, test = parts
    counts = popularity_scores(train[1], 1682)
    ours = evaluate_full(popularity_scorer(counts), train, test, 1682, (10,), ("recall", "ndcg", "hr", "mrr"))
    # ranx breaks ties its own way, so ids are made part of the score
    score = {str(i): float(counts[i] - i / 10_000) for i in range(1682)}
    run, qrels = {}, {}
    for user in range(943):
        seen = {str(i) for i in train[1][train[0][user] : train[0][user + 1]]}
        run[str(user)] = {i: s for i, s in score.items() if i not in seen}
        qrels[str(user)] = {str(i): 1 for i in test[1][test[0][user] : test[0][user + 1]]}
    theirs = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), ["recall@10", "ndcg@10", "hit_rate@10", "mrr@10"])
    expected = [theirs["recall@10"], theirs["ndcg@10"], theirs["hit_rate@10"], theirs["mrr@10"]]
    np.testing.assert_allclose(list(ours.values()), expected, atol=1e-12)
