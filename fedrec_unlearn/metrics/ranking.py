"""Ranking metrics at K on a matrix of hits: recall, NDCG, hit rate, MRR, precision, average precision.

All take the same two arrays and look at whole rows, so a metric at a smaller K is the metric of
``hits[:, :k]``. The definitions are those of RecBole (Zhao et al. 2021, `recbole.evaluator.metrics`), so
values compare with published RecBole tables.

A user without relevant items has no defined value and is left out of the mean. If no user is left, the
mean is NaN and an `EmptyMetricWarning` says so: a silent 0 would look like a bad model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.errors import DataError
from fedrec_unlearn.metrics.names import check_metrics, metric_key

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class EmptyMetricWarning(UserWarning):
    """A metric was asked of data in which no user has a relevant item; its value is NaN."""


def recall(hits: BoolArray, n_relevant: IntArray) -> float:
    """Share of a user's relevant items that are in the list, averaged over users.

    recall@K = hits in the list / n_relevant

    With more than K relevant items even a perfect list stays below 1.

    Args:
        hits: shape (n_users, K): whether the item at each place of the list, best first, is relevant.
        n_relevant: shape (n_users,): number of relevant items of each user.

    Returns:
        A value in [0, 1], or NaN where no user has a relevant item.

    Raises:
        DataError: shapes differ, or a user has more hits than relevant items.

    Source: Manning, Raghavan, Schütze 2008, sec. 8.3; RecBole `Recall`.
    """
    return mean_over_users(per_user("recall", hits, n_relevant))


def ndcg(hits: BoolArray, n_relevant: IntArray) -> float:
    """Normalised discounted cumulative gain with binary relevance, averaged over users.

    ndcg@K = sum over hits at rank r <= K of 1 / log2(r + 1), divided by the same sum over the ranks
    1 .. min(n_relevant, K), which is what a perfect list reaches.

    Args, Returns, Raises: as `recall`.

    Source: Järvelin and Kekäläinen 2002, with the log2(r + 1) discount of Burges et al. 2005; RecBole `NDCG`.
    """
    return mean_over_users(per_user("ndcg", hits, n_relevant))


def hr(hits: BoolArray, n_relevant: IntArray) -> float:
    """Hit rate: share of users with at least one relevant item in the list.

    Args, Returns, Raises: as `recall`.

    Source: Deshpande and Karypis 2004; RecBole `Hit`.
    """
    return mean_over_users(per_user("hr", hits, n_relevant))


def mrr(hits: BoolArray, n_relevant: IntArray) -> float:
    """Mean reciprocal rank: 1 / rank of the first relevant item, 0 if there is none within K.

    Args, Returns, Raises: as `recall`.

    Source: Voorhees 1999; RecBole `MRR`.
    """
    return mean_over_users(per_user("mrr", hits, n_relevant))


def precision(hits: BoolArray, n_relevant: IntArray) -> float:
    """Share of the K places that hold a relevant item, averaged over users.

    Places that stay empty, because a user has fewer than K unseen items, count as misses.

    Args, Returns, Raises: as `recall`.

    Source: Manning, Raghavan, Schütze 2008, sec. 8.4; RecBole `Precision`.
    """
    return mean_over_users(per_user("precision", hits, n_relevant))


def average_precision(hits: BoolArray, n_relevant: IntArray) -> float:
    """Mean average precision ("map"): precision at the rank of each hit, summed, over what a perfect list reaches.

    map@K = sum over hits at rank r <= K of precision@r, divided by min(n_relevant, K)

    Other libraries divide by n_relevant (ranx, trec_eval) or by the number of hits (torchmetrics).

    Args, Returns, Raises: as `recall`.

    Source: Manning, Raghavan, Schütze 2008, eq. 8.8, cut at K with the divisor of RecBole's `MAP`.
    """
    return mean_over_users(per_user("map", hits, n_relevant))


def _recall(hits: BoolArray, n_relevant: IntArray) -> FloatArray:
    return np.asarray(hits.sum(axis=1) / n_relevant)


def _ndcg(hits: BoolArray, n_relevant: IntArray) -> FloatArray:
    k = hits.shape[1]
    discount = 1.0 / np.log2(np.arange(2, k + 2))
    perfect = np.cumsum(discount)[np.minimum(n_relevant, k) - 1]
    return np.asarray((hits * discount).sum(axis=1) / perfect)


def _hr(hits: BoolArray, n_relevant: IntArray) -> FloatArray:
    return np.asarray(hits.any(axis=1), dtype=np.float64)


def _mrr(hits: BoolArray, n_relevant: IntArray) -> FloatArray:
    return np.where(hits.any(axis=1), 1.0 / (hits.argmax(axis=1) + 1), 0.0)


def _precision(hits: BoolArray, n_relevant: IntArray) -> FloatArray:
    return np.asarray(hits.mean(axis=1), dtype=np.float64)


def _average_precision(hits: BoolArray, n_relevant: IntArray) -> FloatArray:
    k = hits.shape[1]
    precision_at = np.cumsum(hits, axis=1) / np.arange(1, k + 1)
    return np.asarray((precision_at * hits).sum(axis=1) / np.minimum(n_relevant, k))


_PER_USER: dict[str, Callable[[BoolArray, IntArray], FloatArray]] = {
    "recall": _recall,
    "ndcg": _ndcg,
    "hr": _hr,
    "mrr": _mrr,
    "precision": _precision,
    "map": _average_precision,
}


def per_user(metric: str, hits: BoolArray, n_relevant: IntArray) -> FloatArray:
    """A metric's value of each user, for paired tests and plots.

    Args:
        metric: one of `RANKING_METRICS`.
        hits: shape (n_users, K), K at least 1.
        n_relevant: shape (n_users,).

    Returns:
        Shape (n_users,): values in [0, 1], NaN for users without relevant items.

    Raises:
        ConfigError: no such metric.
        DataError: shapes differ, or a user has more hits than relevant items.
    """
    check_metrics((metric,))
    hits, n_relevant = np.asarray(hits, dtype=np.bool_), np.asarray(n_relevant, dtype=np.int64)
    if hits.ndim != 2 or hits.shape[1] < 1 or n_relevant.shape != hits.shape[:1]:
        raise DataError(
            f"metrics: hits must be (n_users, K) and n_relevant (n_users,), not {hits.shape} and {n_relevant.shape}"
        )
    if np.any(hits.sum(axis=1) > n_relevant):
        user = int(np.argmax(hits.sum(axis=1) > n_relevant))
        raise DataError(f"metrics: row {user} has {hits[user].sum()} hits but n_relevant={n_relevant[user]}")
    values = np.full(len(hits), np.nan)
    defined = n_relevant > 0
    values[defined] = _PER_USER[metric](hits[defined], n_relevant[defined])
    return values


def mean_over_users(values: FloatArray) -> float:
    """Mean of the values that are defined (not NaN); NaN and an `EmptyMetricWarning` if there is none."""
    defined = values[~np.isnan(values)]
    if len(defined) == 0:
        warnings.warn("no user has a relevant item: the metric is NaN", EmptyMetricWarning, stacklevel=3)
        return float("nan")
    return float(defined.mean())


def ranking_metrics(
    hits: BoolArray, n_relevant: IntArray, topk: Sequence[int], metrics: Sequence[str], protocol: str
) -> dict[str, float]:
    """All metrics at all list lengths from one matrix of hits.

    Args:
        hits: shape (n_users, at least max(topk)), best item first.
        n_relevant: shape (n_users,).
        topk: list lengths.
        metrics: names out of `RANKING_METRICS`.
        protocol: goes into the names of the result, see `metric_key`.

    Returns:
        Metric name to mean over users, by K and then in the order of `metrics`.

    Raises:
        ConfigError: no such metric.
        DataError: `hits` is narrower than the longest list, or does not fit `n_relevant`.
    """
    check_metrics(metrics)
    if hits.ndim != 2 or hits.shape[1] < max(topk):
        raise DataError(f"metrics: hits of shape {hits.shape} cannot give a list of {max(topk)}")
    if not np.any(np.asarray(n_relevant) > 0):
        warnings.warn("no user has a relevant item: all ranking metrics are NaN", EmptyMetricWarning, stacklevel=2)
        return {metric_key(name, k, protocol): float("nan") for k in topk for name in metrics}
    return {
        metric_key(name, k, protocol): mean_over_users(per_user(name, hits[:, :k], n_relevant))
        for k in topk
        for name in metrics
    }
