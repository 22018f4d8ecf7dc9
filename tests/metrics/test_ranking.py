"""Ranking metrics on matrices of hits: hand-worked cases, torchmetrics, ranx."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.retrieval import (
    retrieval_hit_rate,
    retrieval_normalized_dcg,
    retrieval_precision,
    retrieval_recall,
    retrieval_reciprocal_rank,
)

from fedrec_unlearn.errors import ConfigError, DataError
from fedrec_unlearn.metrics import (
    RANKING_METRICS,
    EmptyMetricWarning,
    average_precision,
    hr,
    mrr,
    ndcg,
    per_user,
    precision,
    ranking_metrics,
    recall,
)

torch.set_num_threads(1)

FUNCTIONS = {"recall": recall, "ndcg": ndcg, "hr": hr, "mrr": mrr, "precision": precision, "map": average_precision}

# hits at ranks 2 and 4 with three relevant items; no hit with one relevant item
HITS = np.array([[0, 1, 0, 1], [0, 0, 0, 0]], dtype=bool)
N_RELEVANT = np.array([3, 1])


def random_rankings(seed, n_users, n_items, most_relevant):
    """Relevance in ranked order, shape (n_users, n_items), at least one relevant item each."""
    rng = np.random.default_rng(seed)
    relevance = np.zeros((n_users, n_items), dtype=bool)
    for row in relevance:
        row[rng.choice(n_items, rng.integers(1, most_relevant + 1), replace=False)] = True
    return relevance


@pytest.mark.parametrize(
    ("metric", "first_user"),
    [
        ("recall", 2 / 3),
        ("ndcg", (1 / np.log2(3) + 1 / np.log2(5)) / (1 + 1 / np.log2(3) + 1 / np.log2(4))),
        ("hr", 1.0),
        ("mrr", 1 / 2),
        ("precision", 2 / 4),
        ("map", (1 / 2 + 2 / 4) / 3),
    ],
)
def test_hand_worked_values(metric, first_user):
    assert FUNCTIONS[metric](HITS, N_RELEVANT) == pytest.approx(first_user / 2)


def test_ideal_list_is_limited_by_k_for_ndcg_and_map_but_not_for_recall():
    hits, n_relevant = np.ones((1, 2), dtype=bool), np.array([5])
    assert ndcg(hits, n_relevant) == pytest.approx(1.0)
    assert average_precision(hits, n_relevant) == pytest.approx(1.0)
    assert recall(hits, n_relevant) == pytest.approx(2 / 5)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_values_agree_with_torchmetrics(k):
    relevance = random_rankings(k, n_users=60, n_items=25, most_relevant=15)
    n_relevant = relevance.sum(axis=1)
    score = torch.arange(25, 0, -1, dtype=torch.float64)
    theirs = {
        "recall": retrieval_recall,
        "ndcg": retrieval_normalized_dcg,
        "hr": retrieval_hit_rate,
        "mrr": retrieval_reciprocal_rank,
        "precision": retrieval_precision,
    }
    for metric, function in theirs.items():
        expected = [float(function(score, torch.from_numpy(row), top_k=k)) for row in relevance]
        np.testing.assert_allclose(per_user(metric, relevance[:, :k], n_relevant), expected, atol=1e-6, err_msg=metric)


@pytest.mark.filterwarnings("ignore:.*unsafe cast")
def test_values_agree_with_ranx():
    ranx = pytest.importorskip("ranx")
    k, relevance = 10, random_rankings(7, n_users=40, n_items=25, most_relevant=15)
    n_relevant = relevance.sum(axis=1)
    # ranx returns users in the order of their names as strings
    users = [f"u{u:03d}" for u in range(len(relevance))]
    qrels = ranx.Qrels({u: {f"i{i}": 1 for i in np.flatnonzero(r)} for u, r in zip(users, relevance, strict=True)})
    run = ranx.Run({u: {f"i{i}": 25.0 - i for i in range(25)} for u in users})
    names = {"recall": "recall", "ndcg": "ndcg", "hr": "hit_rate", "mrr": "mrr", "precision": "precision", "map": "map"}
    theirs = ranx.evaluate(qrels, run, [f"{name}@{k}" for name in names.values()], return_mean=False)
    for ours, name in names.items():
        expected = theirs[f"{name}@{k}"]
        if ours == "map":
            # ranx divides by all relevant items, RecBole by those that fit in the list
            expected = expected * n_relevant / np.minimum(n_relevant, k)
        np.testing.assert_allclose(per_user(ours, relevance[:, :k], n_relevant), expected, atol=1e-12, err_msg=ours)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_values_lie_between_0_and_1_and_users_do_not_influence_each_other(seed, k):
    relevance = random_rankings(seed, n_users=6, n_items=12, most_relevant=12)
    n_relevant = relevance.sum(axis=1)
    for metric in RANKING_METRICS:
        values = per_user(metric, relevance[:, :k], n_relevant)
        assert np.all((values >= 0) & (values <= 1 + 1e-12))
        alone = [per_user(metric, relevance[u : u + 1, :k], n_relevant[u : u + 1])[0] for u in range(6)]
        np.testing.assert_array_equal(values, alone)


@pytest.mark.parametrize("metric", RANKING_METRICS)
def test_users_without_relevant_items_are_left_out_of_the_mean(metric):
    hits = np.vstack([HITS, np.zeros((3, 4), dtype=bool)])
    n_relevant = np.append(N_RELEVANT, [0, 0, 0])
    assert FUNCTIONS[metric](hits, n_relevant) == FUNCTIONS[metric](HITS, N_RELEVANT)
    assert np.isnan(per_user(metric, hits, n_relevant)[2:]).all()


@pytest.mark.parametrize("metric", RANKING_METRICS)
@pytest.mark.parametrize("n_users", [0, 2])
def test_no_relevant_item_at_all_gives_nan_and_a_warning(metric, n_users):
    with pytest.warns(EmptyMetricWarning, match="no user has a relevant item"):
        value = FUNCTIONS[metric](np.zeros((n_users, 3), dtype=bool), np.zeros(n_users, dtype=np.int64))
    assert np.isnan(value)


def test_all_metrics_at_all_lengths_come_from_prefixes_of_one_list():
    relevance = random_rankings(3, n_users=20, n_items=10, most_relevant=4)
    n_relevant = relevance.sum(axis=1)
    values = ranking_metrics(relevance, n_relevant, (2, 5), RANKING_METRICS, "full")
    assert list(values) == [f"{m}@{k}/full" for k in (2, 5) for m in RANKING_METRICS]
    for k in (2, 5):
        for metric, function in FUNCTIONS.items():
            assert values[f"{metric}@{k}/full"] == function(relevance[:, :k], n_relevant)


def test_one_warning_for_all_metrics_of_an_empty_evaluation():
    with pytest.warns(EmptyMetricWarning) as caught:
        values = ranking_metrics(np.zeros((0, 5), dtype=bool), np.zeros(0, dtype=np.int64), (5,), ("hr", "map"), "full")
    assert len(caught) == 1
    assert np.isnan(list(values.values())).all()


def test_arrays_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match=r"not \(2, 4\) and \(3,\)"):
        recall(HITS, np.array([1, 1, 1]))
    with pytest.raises(DataError, match="row 0 has 2 hits but n_relevant=1"):
        recall(HITS, np.array([1, 1]))
    with pytest.raises(DataError, match="cannot give a list of 5"):
        ranking_metrics(HITS, N_RELEVANT, (5,), ("recall",), "full")


def test_an_unknown_metric_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"unknown metric 'ndgc'; did you mean 'ndcg'\?"):
        per_user("ndgc", HITS, N_RELEVANT)
