"""Evaluation from scores to named metrics, under the full and the sampled protocol."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.metrics.csr import ItemLists, as_csr, rows_of, union
from fedrec_unlearn.metrics.names import FULL, check_metrics, check_sampled_topk, check_topk, sampled_protocol
from fedrec_unlearn.metrics.ranking import ranking_metrics
from fedrec_unlearn.metrics.sampled import (
    ScorePairs,
    check_negatives,
    rank_sampled,
    sample_negatives,
    sampled_metrics,
)
from fedrec_unlearn.metrics.topk import ScoreChunk, rank_full


def evaluate_full(
    score_chunk: ScoreChunk,
    seen: ItemLists,
    relevant: ItemLists,
    n_items: int,
    topk: Sequence[int],
    metrics: Sequence[str],
    chunk_size: int = 512,
    device: str | torch.device = "cpu",
) -> dict[str, float]:
    """Rank every unseen item of each user once, and read all metrics at all K off the same lists.

    Args:
        score_chunk: users, int64 (m,) -> scores, floating (m, n_items); see `rank_full`.
        seen: (indptr, items) to leave out: train on validation, train and validation on test.
        relevant: (indptr, items) held out. Users without any are neither scored nor counted.
        n_items: size of the catalogue.
        topk: list lengths.
        metrics: names out of `RANKING_METRICS`.
        chunk_size: users scored at once.
        device: where scores are computed.

    Returns:
        Values like ``{"ndcg@10/full": 0.21}``, means over users; all NaN, with an `EmptyMetricWarning`, where
        nobody has a relevant item.

    Raises:
        ConfigError: an unknown metric, or a list longer than the catalogue.
        DataError: malformed item lists.
        ModelError: scores of the wrong shape, or NaN.
    """
    check_metrics(metrics)
    check_topk(topk, n_items)
    ranked = rank_full(score_chunk, *seen, *relevant, n_items, max(topk), chunk_size, device)
    return ranking_metrics(ranked.hits, ranked.n_relevant, topk, metrics, FULL)


def evaluate_sampled(
    score_pairs: ScorePairs,
    known: Sequence[ItemLists],
    relevant: ItemLists,
    n_items: int,
    topk: Sequence[int],
    metrics: Sequence[str],
    n_negatives: int = 99,
    seed: int = 0,
    negatives: NDArray[np.int64] | None = None,
    chunk_size: int = 512,
    device: str | torch.device = "cpu",
) -> dict[str, float]:
    """Rank each held-out item among random items that its user has never touched.

    Args:
        score_pairs: users, int64 (m,), and items, int64 (m, 1 + N) -> scores, floating (m, 1 + N).
        known: (indptr, items) of every part the user has touched: train, validation and test. The parts may overlap;
            `relevant` is added to them.
        relevant: (indptr, items) held out.
        n_items: size of the catalogue.
        topk: list lengths, at most N.
        metrics: names out of `RANKING_METRICS`.
        n_negatives: N, when negatives are drawn.
        seed: the run's seed; equal seeds draw equal negatives in every evaluation.
        negatives: shape (n_pairs, N), to be used in place of drawn ones, a row for each held-out pair in the order of
            users and of item ids within a user; N is then taken from it.
        chunk_size: pairs scored at once.
        device: where scores are computed.

    Returns:
        Values like ``{"hr@10/99neg": 0.64}``, means over held-out items; all NaN, with an `EmptyMetricWarning`, where
        nothing is held out.

    Raises:
        ConfigError: an unknown metric, a list that holds all candidates, or more negatives than untouched items.
        DataError: malformed item lists or negatives.
        ModelError: scores of the wrong shape, or NaN.
    """
    check_metrics(metrics)
    if negatives is not None and negatives.ndim == 2:
        n_negatives = negatives.shape[1]
    if n_negatives < 1:
        raise ConfigError(f"evaluation.sampled_negatives: {n_negatives} must be at least 1")
    check_sampled_topk(topk, n_negatives)
    touched = union("known", [*known, relevant], n_items)
    held_out = as_csr("relevant", relevant, n_items)
    users, items = (part.numpy() for part in rows_of(held_out, torch.arange(held_out.n_users)))
    if negatives is None:
        negatives = sample_negatives(users, items, touched, n_negatives, seed)
    else:
        negatives = np.asarray(negatives, dtype=np.int64)
        check_negatives(users, items, negatives, touched)
    ranks = rank_sampled(score_pairs, users, items, negatives, chunk_size, device)
    return sampled_metrics(ranks, topk, metrics, sampled_protocol(n_negatives))
