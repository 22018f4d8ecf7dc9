"""Means with intervals, and paired comparisons, for reports and attack tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrec_unlearn.errors import DataError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class MeanInterval:
    """A mean and how far it can be trusted."""

    n: int
    """Number of values."""
    mean: float
    std: float
    """Sample standard deviation (n - 1); NaN for a single value."""
    low: float
    """Lower end of the t-interval of the mean; NaN for a single value."""
    high: float
    """Upper end; NaN for a single value."""


@dataclass(frozen=True)
class PairedDifference:
    """What changes from `b` to `a` on the same users, folds or seeds."""

    difference: MeanInterval
    """Of a - b."""
    t: float
    """Statistic of the paired t-test; infinite where all differences are the same and not 0."""
    p_t: float
    """Two-sided p of the paired t-test."""
    p_wilcoxon: float
    """Two-sided p of Wilcoxon's signed-rank test; needs no normality, but cannot be below 2 / 2**n_nonzero."""
    n_nonzero: int
    """Pairs that differ at all: the only ones Wilcoxon's test looks at."""


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> MeanInterval:
    """Mean with a t-interval: mean ± t(1 - (1 - confidence) / 2, n - 1) * std / sqrt(n).

    Over seeds, it says where the mean of further seeds would lie; it does not cover the choice of data set
    or split.

    Args:
        values: shape (n,), n at least 1.
        confidence: in (0, 1).

    Raises:
        DataError: nothing is given, or a value is NaN or infinite.

    Source: Student 1908.
    """
    from scipy import stats

    if not 0.0 < confidence < 1.0:
        raise DataError(f"confidence: {confidence} must lie between 0 and 1")
    sample = _finite("values", values)
    n, mean = len(sample), float(sample.mean())
    if n == 1:
        return MeanInterval(1, mean, float("nan"), float("nan"), float("nan"))
    std = float(sample.std(ddof=1))
    half = float(stats.t.ppf(0.5 + confidence / 2.0, n - 1)) * std / float(np.sqrt(n))
    return MeanInterval(n, mean, std, mean - half, mean + half)


def paired_difference(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> PairedDifference:
    """Compare two results on the same units: paired t-test and Wilcoxon's signed-rank test of a - b.

    With equal values throughout both p are 1. Users of one model are not independent repetitions of
    training: a small p over users speaks of these two trained models, one over seeds of the methods.

    Args:
        a, b: shape (n,), n at least 2, aligned.
        confidence: of the interval of the mean difference.

    Raises:
        DataError: shapes differ, fewer than two pairs, or a value is NaN or infinite.

    Source: Student 1908; Wilcoxon 1945, zero differences left out.
    """
    from scipy import stats

    left, right = _finite("a", a), _finite("b", b)
    if left.shape != right.shape:
        raise DataError(f"paired comparison: a has {len(left)} values, b has {len(right)}")
    if len(left) < 2:
        raise DataError("paired comparison: at least two pairs are needed")
    difference = left - right
    interval = mean_interval(difference, confidence)
    nonzero = difference[difference != 0.0]
    if len(nonzero) == 0:
        return PairedDifference(interval, 0.0, 1.0, 1.0, 0)
    if np.all(difference == difference[0]):
        t, p_t = float(np.copysign(np.inf, difference[0])), 0.0
    else:
        test = stats.ttest_rel(left, right)
        t, p_t = float(test.statistic), float(test.pvalue)
    return PairedDifference(interval, t, p_t, float(stats.wilcoxon(nonzero).pvalue), len(nonzero))


def _finite(name: str, values: ArrayLike) -> FloatArray:
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise DataError(f"{name}: a non-empty array of shape (n,) is needed, not {sample.shape}")
    if not np.isfinite(sample).all():
        raise DataError(f"{name}: {int((~np.isfinite(sample)).sum())} of {len(sample)} values are NaN or infinite")
    return sample
