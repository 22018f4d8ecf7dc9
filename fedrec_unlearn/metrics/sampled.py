"""The sampled protocol: the rank of each held-out item among N random items the user has never touched.

It exists to compare with papers that report ``HR@10`` among 99 negatives (He et al. 2017, NCF). It does not
estimate the full ranking, and can even order two models differently (Krichene and Rendle 2020); its
metrics therefore carry the protocol in their names.

Ties. An untrained or quantised model gives many equal scores. With g negatives above the held-out item and e
level with it, the item is equally likely to stand at any rank g+1 .. g+e+1, so its mean rank is
1 + g + e/2 ("ties counted half"), and each metric is its expectation over these ranks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedrec_unlearn.errors import ConfigError, DataError, ModelError
from fedrec_unlearn.metrics.csr import Csr
from fedrec_unlearn.metrics.names import check_metrics, metric_key
from fedrec_unlearn.metrics.ranking import EmptyMetricWarning
from fedrec_unlearn.seeds import Purpose, below_torch, hash_counters_torch, stream_key

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

ScorePairs = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Scores of some items of some users: int64 (m,) and (m, 1 + N) on the device -> floating (m, 1 + N)."""

_PAIRS_AT_ONCE = 4096


@dataclass(frozen=True)
class SampledRanks:
    """Where each held-out item stands among its negatives."""

    greater: IntArray
    """Shape (n_pairs,): negatives with a larger score."""
    equal: IntArray
    """Shape (n_pairs,): negatives with the same score."""

    @property
    def mean_rank(self) -> FloatArray:
        """Shape (n_pairs,): expected rank, 1 for the best: 1 + greater + equal / 2."""
        return np.asarray(1.0 + self.greater + self.equal / 2.0)


def sample_negatives(users: IntArray, items: IntArray, known: Csr, n_negatives: int, seed: int) -> IntArray:
    """Draw the negatives of held-out pairs: distinct, uniform over the items the user has never touched.

    What a pair gets depends on (seed, user, item, `known` items of the user) alone: neither on the other
    pairs nor on how they are cut into chunks.

    Args:
        users, items: shape (n_pairs,): the held-out pairs.
        known: all items of each user in train, validation and test, on the CPU.
        n_negatives: negatives of each pair.
        seed: the run's seed.

    Returns:
        Shape (n_pairs, n_negatives).

    Raises:
        ConfigError: a user has fewer untouched items than `n_negatives`.
        DataError: a held-out pair is not among `known`, so that it could be drawn as its own negative.

    Source: sampling without replacement by Floyd's algorithm (Bentley and Floyd 1987, "A sample of brilliance").
    """
    # tensors of our own, because torch warns about sharing memory with read-only arrays
    user, item = (torch.from_numpy(np.array(ids, dtype=np.int64)) for ids in (users, items))
    n_items = known.n_items
    absent = ~known.contains(user * n_items + item)
    if bool(absent.any()):
        pair = int(absent.nonzero()[0])
        raise DataError(
            f"known: item {items[pair]} is held out for user {users[pair]} but not in the user's known items"
        )
    free = n_items - known.counts
    short = free[user] < n_negatives
    if bool(short.any()):
        worst = int(user[free[user].argmin()])
        raise ConfigError(
            f"evaluation.sampled_negatives: {n_negatives} negatives cannot be drawn for user {worst}, who has not "
            f"touched only {int(free[worst])} of {n_items} items; choose at most {int(free[worst])}"
        )
    # The r-th untouched item is r plus the number of known items before it; these are found by searching
    # r in "known item minus its place in the user's list", which never falls.
    place = torch.arange(len(known.items)) - known.indptr[:-1].repeat_interleave(known.counts)
    shifted = known.keys - place
    key = stream_key(seed, Purpose.EVALUATION)
    drawn = torch.empty((len(user), n_negatives), dtype=torch.int64)
    for start in range(0, len(user), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        u = user[part]
        ranks = _distinct_below(free[u], n_negatives, key, u * n_items + item[part])
        before = torch.searchsorted(shifted, u * n_items + ranks, right=True) - known.indptr[u]
        drawn[part] = (ranks + before).T
    return drawn.numpy()


def _distinct_below(bound: torch.Tensor, count: int, key: int, counter: torch.Tensor) -> torch.Tensor:
    """Distinct uniform draws from 0 .. bound-1 for each column, shape (count, n)."""
    drawn = torch.empty((count, len(bound)), dtype=torch.int64)
    for j in range(count):
        last = bound - count + j
        draw = below_torch(hash_counters_torch(key, counter * count + j), last + 1)
        taken = (drawn[:j] == draw).any(dim=0)
        drawn[j] = torch.where(taken, last, draw)
    return drawn


def check_negatives(users: IntArray, items: IntArray, negatives: IntArray, known: Csr) -> None:
    """Raise `DataError` for given negatives that do not fit the pairs or that the user has touched."""
    if negatives.ndim != 2 or len(negatives) != len(users) or negatives.shape[1] < 1:
        raise DataError(
            f"negatives: shape {negatives.shape} does not fit {len(users)} held-out pairs; one row each is needed, "
            "in the order of users and of items within a user"
        )
    if negatives.size and (negatives.min() < 0 or negatives.max() >= known.n_items):
        raise DataError(
            f"negatives: item ids run from {negatives.min()} to {negatives.max()}, outside 0..{known.n_items - 1}"
        )
    keys = torch.from_numpy(users[:, None] * known.n_items + negatives)
    touched = known.contains(keys).numpy() | (negatives == items[:, None])
    if touched.any():
        pair, slot = (int(place[0]) for place in np.nonzero(touched))
        raise DataError(f"negatives: row {pair} has item {negatives[pair, slot]}, which user {users[pair]} has touched")


def rank_sampled(
    score_pairs: ScorePairs,
    users: IntArray,
    items: IntArray,
    negatives: IntArray,
    chunk_size: int = 512,
    device: str | torch.device = "cpu",
) -> SampledRanks:
    """Rank each held-out item among its negatives.

    Args:
        score_pairs: called without gradients with at most `chunk_size` pairs; column 0 is the held-out item.
        users, items: shape (n_pairs,).
        negatives: shape (n_pairs, N).
        chunk_size: pairs scored at once.
        device: where scores are expected.

    Raises:
        ConfigError: `chunk_size` below 1.
        ModelError: scores have the wrong shape or type, or are NaN.
    """
    if chunk_size < 1:
        raise ConfigError(f"evaluation.chunk_size: {chunk_size} must be at least 1")
    candidates = torch.from_numpy(np.concatenate([items[:, None], negatives], axis=1))
    user = torch.from_numpy(np.array(users, dtype=np.int64))
    counts = [torch.empty((2, 0), dtype=torch.int64, device=device)]
    for start in range(0, len(user), chunk_size):
        part = slice(start, start + chunk_size)
        asked = candidates[part].to(device)
        with torch.no_grad():
            scores = score_pairs(user[part].to(device), asked)
        if scores.shape != asked.shape or not scores.is_floating_point():
            raise ModelError(
                f"score_pairs returned {scores.dtype} of shape {tuple(scores.shape)}; "
                f"floating point scores of shape {tuple(asked.shape)} are needed"
            )
        if bool(scores.isnan().any()):
            raise ModelError("scores are NaN: training has diverged; lower the learning rates and run again")
        held_out, others = scores[:, :1], scores[:, 1:]
        counts.append(torch.stack([(others > held_out).sum(dim=1), (others == held_out).sum(dim=1)]))
    greater, equal = torch.cat(counts, dim=1).cpu().numpy()
    return SampledRanks(greater, equal)


def sampled_per_pair(metric: str, ranks: SampledRanks, k: int) -> FloatArray:
    """A metric's expectation over the order of ties, for each held-out item.

    A rank r is worth w(r) if r <= K and 0 behind; the value is the mean of w over r = g+1 .. g+e+1.

    ======================  ================
    metric                  w(r)
    ======================  ================
    ``hr``, ``recall``      1
    ``precision``           1 / K
    ``ndcg``                1 / log2(r + 1)
    ``mrr``, ``map``        1 / r
    ======================  ================

    Args:
        metric: one of `RANKING_METRICS`.
        ranks: of n_pairs held-out items.
        k: length of the list.

    Returns:
        Shape (n_pairs,), values in [0, 1].

    Raises:
        ConfigError: no such metric.

    Source: He et al. 2017, sec. 4.1, for HR and NDCG with one relevant item; expectation over the order of ties:
    McSherry and Najork 2008.
    """
    check_metrics((metric,))
    rank = np.arange(1, k + 1, dtype=np.float64)
    if metric in ("hr", "recall"):
        worth = np.ones(k)
    elif metric == "precision":
        worth = np.full(k, 1.0 / k)
    elif metric == "ndcg":
        worth = 1.0 / np.log2(rank + 1)
    else:
        worth = 1.0 / rank
    total = np.concatenate([[0.0], np.cumsum(worth)])
    first, last = ranks.greater, ranks.greater + ranks.equal + 1
    return np.asarray((total[np.minimum(last, k)] - total[np.minimum(first, k)]) / (ranks.equal + 1))


def sampled_metrics(
    ranks: SampledRanks, topk: Sequence[int], metrics: Sequence[str], protocol: str
) -> dict[str, float]:
    """All metrics at all list lengths; every held-out item counts once, so users weigh by their held-out items.

    Args:
        ranks: of n_pairs held-out items.
        topk: list lengths.
        metrics: names out of `RANKING_METRICS`.
        protocol: goes into the names of the result, see `metric_key`.

    Returns:
        Metric name to mean over held-out items; all NaN, with an `EmptyMetricWarning`, where there is none.

    Raises:
        ConfigError: no such metric.
    """
    check_metrics(metrics)
    if len(ranks.greater) == 0:
        warnings.warn("no item is held out: all ranking metrics are NaN", EmptyMetricWarning, stacklevel=2)
        return {metric_key(name, k, protocol): float("nan") for k in topk for name in metrics}
    return {
        metric_key(name, k, protocol): float(sampled_per_pair(name, ranks, k).mean()) for k in topk for name in metrics
    }
