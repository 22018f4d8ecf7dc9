"""The popularity baseline: recommend what most users have, to everyone.

A personalised model that does not beat it has learned nothing about users, so reports show it beside
every result (Cremonesi, Koren, Turrin 2010, "TopPop").
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from fedrec_unlearn.errors import DataError
from fedrec_unlearn.metrics.topk import ScoreChunk


def popularity_scores(train_items: NDArray[np.int64], n_items: int) -> NDArray[np.float64]:
    """Number of training interactions of each item.

    Items with equal counts are told apart by whoever ranks: `top_items` puts the smaller id first.

    Args:
        train_items: shape (n,): item of each training interaction (the items of a CSR will do).
        n_items: size of the catalogue.

    Returns:
        Shape (n_items,): counts, as floats since they serve as scores.

    Raises:
        DataError: an id is out of range.
    """
    items = np.asarray(train_items, dtype=np.int64)
    if items.size and (items.min() < 0 or items.max() >= n_items):
        raise DataError(f"train items run from {items.min()} to {items.max()}, outside 0..{n_items - 1}")
    return np.bincount(items, minlength=n_items).astype(np.float64)


def popularity_scorer(scores: NDArray[np.float64], device: str | torch.device = "cpu") -> ScoreChunk:
    """The same scores for every user, as `rank_full` asks for them."""
    row = torch.tensor(scores, dtype=torch.float64, device=device)
    return lambda users: row.expand(len(users), -1)


def popularity_pair_scorer(
    scores: NDArray[np.float64], device: str | torch.device = "cpu"
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The same scores for every user, as `rank_sampled` asks for them."""
    row = torch.tensor(scores, dtype=torch.float64, device=device)
    return lambda users, items: row[items]
