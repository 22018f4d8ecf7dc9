"""Intervals and paired tests: hand-worked, by scipy's other doors, and by simulation."""

import itertools

import numpy as np
import pytest
from scipy import stats

from fedrec_unlearn.errors import DataError
from fedrec_unlearn.metrics import mean_interval, paired_difference


def test_interval_of_three_seeds_by_hand():
    # mean 2, s 1, t(0.975, 2) = 4.3026527
    interval = mean_interval([1.0, 2.0, 3.0])
    half = 4.302652730 / np.sqrt(3)
    assert (interval.n, interval.mean, interval.std) == (3, 2.0, 1.0)
    assert interval.low == pytest.approx(2 - half)
    assert interval.high == pytest.approx(2 + half)


def test_interval_agrees_with_scipys_one_sample_test():
    values = np.random.default_rng(0).normal(3.0, 2.0, 17)
    theirs = stats.ttest_1samp(values, 0.0).confidence_interval(0.9)
    ours = mean_interval(values, confidence=0.9)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))


def test_interval_covers_the_mean_as_often_as_it_says():
    samples = np.random.default_rng(1).normal(5.0, 1.0, (2000, 4))
    covered = sum(i.low <= 5.0 <= i.high for i in map(mean_interval, samples))
    assert stats.binomtest(covered, 2000, 0.95).pvalue > 0.001


def test_a_single_value_has_no_interval():
    interval = mean_interval([0.7])
    assert (interval.n, interval.mean) == (1, 0.7)
    assert np.isnan([interval.std, interval.low, interval.high]).all()


def test_paired_tests_agree_with_their_definitions():
    rng = np.random.default_rng(2)
    a = rng.normal(size=8)
    b = a - rng.normal(0.5, 1.0, size=8)
    result = paired_difference(a, b)
    difference = a - b
    t = difference.mean() / (difference.std(ddof=1) / np.sqrt(8))
    assert result.t == pytest.approx(t)
    assert result.p_t == pytest.approx(2 * stats.t.sf(abs(t), 7))
    assert result.difference == mean_interval(difference)
    # Wilcoxon's exact p: the share of sign patterns whose rank sum is at least as far from its mean
    ranks = stats.rankdata(abs(difference))
    observed = abs(ranks[difference > 0].sum() - ranks.sum() / 2)
    sums = [abs(ranks @ signs - ranks.sum() / 2) for signs in itertools.product([0, 1], repeat=8)]
    assert result.p_wilcoxon == pytest.approx(np.mean(np.array(sums) >= observed - 1e-9))
    assert result.n_nonzero == 8


def test_swapping_the_sides_turns_the_sign_only():
    rng = np.random.default_rng(3)
    a, b = rng.random(9), rng.random(9)
    one, other = paired_difference(a, b), paired_difference(b, a)
    assert one.t == pytest.approx(-other.t)
    assert one.difference.low == pytest.approx(-other.difference.high)
    assert (one.p_t, one.p_wilcoxon) == pytest.approx((other.p_t, other.p_wilcoxon))


def test_equal_results_give_p_of_one_without_warnings(recwarn):
    result = paired_difference([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    assert (result.t, result.p_t, result.p_wilcoxon, result.n_nonzero) == (0.0, 1.0, 1.0, 0)
    assert not recwarn.list


def test_a_constant_shift_is_certain_to_t_but_not_to_wilcoxon(recwarn):
    result = paired_difference([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
    assert result.t == -np.inf
    assert result.p_t == 0.0
    assert result.p_wilcoxon == pytest.approx(2 / 2**3)
    assert not recwarn.list


def test_values_that_cannot_be_compared_are_refused():
    with pytest.raises(DataError, match="a has 2 values, b has 3"):
        paired_difference([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(DataError, match="at least two pairs"):
        paired_difference([1.0], [2.0])
    with pytest.raises(DataError, match="b: 1 of 2 values are NaN"):
        paired_difference([1.0, 2.0], [1.0, np.nan])
    with pytest.raises(DataError, match="non-empty"):
        mean_interval([])
    with pytest.raises(DataError, match="must lie between 0 and 1"):
        mean_interval([1.0, 2.0], confidence=95)
