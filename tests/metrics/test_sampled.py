"""The sampled protocol: which negatives are drawn, and what ranks and metrics come of them."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedrec_unlearn.errors import ConfigError, DataError, ModelError
from fedrec_unlearn.metrics import (
    RANKING_METRICS,
    SampledRanks,
    per_user,
    rank_sampled,
    sample_negatives,
    sampled_metrics,
    sampled_per_pair,
)
from fedrec_unlearn.metrics.csr import as_csr, union
from fedrec_unlearn.metrics.sampled import check_negatives

torch.set_num_threads(1)


def csr(lists):
    return np.cumsum([0, *map(len, lists)]), np.array([i for items in lists for i in items], dtype=np.int64)


def test_negatives_are_distinct_and_never_touched_by_the_user():
    rng = np.random.default_rng(0)
    known = [np.sort(rng.choice(60, size, replace=False)) for size in rng.integers(1, 41, size=50)]
    users = np.repeat(np.arange(50), [len(items) for items in known])
    items = np.concatenate(known)
    negatives = sample_negatives(users, items, as_csr("known", csr(known), 60), 20, seed=3)
    assert negatives.shape == (len(users), 20)
    assert negatives.min() >= 0
    assert negatives.max() < 60
    for user, row in zip(users, negatives, strict=True):
        assert len(set(row)) == 20
        assert not set(row) & set(known[user])


def test_a_user_with_just_enough_untouched_items_gets_all_of_them():
    known = as_csr("known", csr([[0, 3, 4]]), 8)
    negatives = sample_negatives(np.array([0]), np.array([3]), known, 5, seed=0)
    assert sorted(negatives[0]) == [1, 2, 5, 6, 7]


def test_every_untouched_item_is_drawn_equally_often():
    n_users, n_items, n = 4000, 12, 4
    touched = [0, 5, 11]
    known = as_csr("known", csr([touched] * n_users), n_items)
    negatives = sample_negatives(np.arange(n_users), np.full(n_users, 5), known, n, seed=11)
    counts = np.bincount(negatives.ravel(), minlength=n_items)
    assert counts[touched].sum() == 0
    # Without replacement the counts vary less than multinomial ones, by (1 - n/m): the statistic is scaled for it
    free = counts[np.setdiff1d(np.arange(n_items), touched)]
    m, expected = len(free), n_users * n / len(free)
    statistic = ((free - expected) ** 2).sum() / expected / (1 - n / m) * (m - 1) / m
    assert stats.chi2.sf(statistic, m - 1) > 0.001


def test_every_subset_is_drawn_equally_often():
    n_users = 6000
    known = as_csr("known", csr([[2]] * n_users), 6)
    negatives = np.sort(sample_negatives(np.arange(n_users), np.full(n_users, 2), known, 2, seed=5), axis=1)
    subsets = list(itertools.combinations([0, 1, 3, 4, 5], 2))
    counts = [int((negatives == subset).all(axis=1).sum()) for subset in subsets]
    assert sum(counts) == n_users
    assert stats.chisquare(counts).pvalue > 0.001


def test_the_draw_of_a_pair_depends_on_seed_user_and_item_alone():
    known = as_csr("known", csr([[0, 1], [2], [3, 4]]), 200)
    users, items = np.array([0, 0, 1, 2, 2]), np.array([0, 1, 2, 3, 4])
    negatives = sample_negatives(users, items, known, 10, seed=1)
    for pair in range(5):
        alone = sample_negatives(users[pair : pair + 1], items[pair : pair + 1], known, 10, seed=1)
        np.testing.assert_array_equal(alone[0], negatives[pair])
    assert len({tuple(row) for row in negatives}) == 5
    assert not np.array_equal(negatives, sample_negatives(users, items, known, 10, seed=2))


def test_too_many_negatives_are_refused_naming_the_user_and_the_limit():
    known = as_csr("known", csr([[0], [1, 2, 3]]), 10)
    with pytest.raises(ConfigError, match=r"sampled_negatives: 8 .* user 1, .* only 7 of 10 .* at most 7"):
        sample_negatives(np.array([0, 1]), np.array([0, 2]), known, 8, seed=0)


def test_a_held_out_item_outside_the_known_items_is_refused():
    known = as_csr("known", csr([[0], [1]]), 10)
    with pytest.raises(DataError, match="item 4 is held out for user 1 but not"):
        sample_negatives(np.array([0, 1]), np.array([0, 4]), known, 3, seed=0)


@pytest.mark.parametrize("chunk_size", [1, 3, 4096])
def test_ranks_count_larger_and_equal_scores(chunk_size):
    matrix = torch.tensor([[5.0, 5, 1, 7, 5, 0], [0, 0, 0, 0, 0, 0], [9, 1, 2, 3, 4, 5]])
    users, items = np.array([0, 1, 2, 2]), np.array([0, 3, 0, 1])
    negatives = np.array([[1, 2, 3, 4], [0, 1, 2, 4], [1, 2, 3, 4], [2, 3, 4, 5]])
    ranks = rank_sampled(lambda u, i: matrix[u.unsqueeze(1), i], users, items, negatives, chunk_size)
    assert ranks.greater.tolist() == [1, 0, 0, 4]
    assert ranks.equal.tolist() == [2, 4, 0, 0]
    assert ranks.mean_rank.tolist() == [3.0, 3.0, 1.0, 5.0]


def test_nan_and_misshapen_scores_are_refused():
    pair = np.array([0]), np.array([0]), np.array([[1, 2]])
    with pytest.raises(ModelError, match="scores are NaN"):
        rank_sampled(lambda u, i: torch.full(i.shape, torch.nan), *pair)
    with pytest.raises(ModelError, match=r"shape \(1,\); floating point scores of shape \(1, 3\)"):
        rank_sampled(lambda u, i: torch.zeros(1), *pair)
    with pytest.raises(ModelError, match=r"torch\.int64 of shape"):
        rank_sampled(lambda u, i: torch.zeros_like(i), *pair)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 6), st.integers(0, 6), st.integers(1, 15))
def test_a_metric_is_its_mean_over_all_orders_of_the_ties(greater, equal, k):
    ranks = SampledRanks(np.array([greater]), np.array([equal]))
    orders = np.zeros((equal + 1, 15), dtype=bool)
    orders[np.arange(equal + 1), greater + np.arange(equal + 1)] = True
    for metric in RANKING_METRICS:
        expected = per_user(metric, orders[:, :k], np.ones(equal + 1, dtype=np.int64)).mean()
        assert sampled_per_pair(metric, ranks, k)[0] == pytest.approx(expected, abs=1e-12)


def test_hand_worked_values_without_and_with_a_tie():
    ranks = SampledRanks(np.array([2, 1]), np.array([0, 2]))
    values = sampled_metrics(ranks, (3,), RANKING_METRICS, "99neg")
    assert values["hr@3/99neg"] == pytest.approx((1 + 2 / 3) / 2)
    assert values["ndcg@3/99neg"] == pytest.approx((1 / 2 + (1 / np.log2(3) + 1 / 2) / 3) / 2)
    assert values["mrr@3/99neg"] == pytest.approx((1 / 3 + (1 / 2 + 1 / 3) / 3) / 2)
    assert values["precision@3/99neg"] == pytest.approx(values["hr@3/99neg"] / 3)


def test_a_model_without_information_reaches_k_over_the_number_of_candidates():
    tied = SampledRanks(np.zeros(5, dtype=np.int64), np.full(5, 99))
    assert sampled_per_pair("hr", tied, 10).mean() == pytest.approx(10 / 100)


@pytest.mark.parametrize(
    ("negatives", "message"),
    [
        (np.array([[3], [4]]), r"shape \(2, 1\) does not fit 1 held-out pairs"),
        (np.array([[3, 9]]), "item ids run from 3 to 9, outside 0..5"),
        (np.array([[3, 1]]), "row 0 has item 1, which user 0 has touched"),
        (np.array([[2, 3]]), "row 0 has item 2, which user 0 has touched"),
    ],
)
def test_given_negatives_that_do_not_fit_are_refused(negatives, message):
    known = union("known", [csr([[1]]), csr([[2]])], 6)
    with pytest.raises(DataError, match=message):
        check_negatives(np.array([0]), np.array([2]), negatives, known)


def test_a_union_holds_each_item_once_and_keeps_empty_users():
    both = union("known", [csr([[1, 4], [], [0]]), csr([[2, 4], [], []])], 6)
    assert both.indptr.tolist() == [0, 3, 3, 4]
    assert both.items.tolist() == [1, 2, 4, 0]
    assert both.contains(torch.tensor([[1, 2], [3, 12]])).tolist() == [[True, True], [False, True]]
    with pytest.raises(DataError, match=r"different numbers of users: \[1, 2\]"):
        union("known", [csr([[1]]), csr([[1], []])], 6)
    empty = union("known", [csr([[], []])], 6)
    assert empty.contains(torch.tensor([3])).tolist() == [False]
