"""Full ranking: the best K of all items a user has not seen, for chunks of users on any device.

The list is a function of the scores: items with equal scores come in the order of their ids, which
`torch.topk` leaves open. Rows without ties, the usual case, cost one `torch.topk`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedrec_unlearn.errors import ConfigError, DataError, ModelError
from fedrec_unlearn.metrics.csr import Csr, IndexArray, as_csr, rows_of
from fedrec_unlearn.metrics.names import check_topk

ScoreChunk = Callable[[torch.Tensor], torch.Tensor]
"""Scores of all items for some users: int64 (m,) on the device -> floating (m, n_items) on the device."""

NO_ITEM = -1
"""Stands in a list where the user has no unseen item left."""


@dataclass(frozen=True)
class RankedHits:
    """Recommendation lists of the users that have relevant items."""

    users: NDArray[np.int64]
    """Shape (n,), ascending."""
    items: NDArray[np.int64]
    """Shape (n, K), best first; `NO_ITEM` where the user has fewer than K unseen items."""
    hits: NDArray[np.bool_]
    """Shape (n, K): whether the item is relevant."""
    n_relevant: NDArray[np.int64]
    """Shape (n,): number of relevant items, all at least 1."""


def rank_full(
    score_chunk: ScoreChunk,
    seen_indptr: IndexArray,
    seen_items: IndexArray,
    relevant_indptr: IndexArray,
    relevant_items: IndexArray,
    n_items: int,
    k: int,
    chunk_size: int = 512,
    device: str | torch.device = "cpu",
) -> RankedHits:
    """Rank all unseen items of every user that has relevant items, and find the hits among the best K.

    An item that is both seen and relevant is masked, so it can never be a hit although it counts in
    `n_relevant`; splits keep the two apart. Scores of minus infinity mean "not to be recommended".

    The result does not depend on `chunk_size` as long as a user's scores do not; a matrix product may
    round differently for another number of rows.

    Args:
        score_chunk: called without gradients with the next users; no more than `chunk_size` at once, users
            without relevant items never. It may return a view of a stored matrix: it is left as it was.
        seen_indptr, seen_items: items to leave out, of each user.
        relevant_indptr, relevant_items: held-out items of each user.
        n_items: size of the catalogue.
        k: length of the lists.
        chunk_size: users scored at once; memory is about chunk_size * n_items scores.
        device: where scores are expected and lists are made.

    Raises:
        ConfigError: `k` is larger than the catalogue, or `chunk_size` below 1.
        DataError: the item lists are malformed or of different numbers of users.
        ModelError: scores have the wrong shape, device or type, or are NaN.
    """
    check_topk((k,), n_items)
    if chunk_size < 1:
        raise ConfigError(f"evaluation.chunk_size: {chunk_size} must be at least 1")
    seen = as_csr("seen", (seen_indptr, seen_items), n_items, device)
    relevant = as_csr("relevant", (relevant_indptr, relevant_items), n_items, device)
    if seen.n_users != relevant.n_users:
        raise DataError(f"seen lists are of {seen.n_users} users, relevant lists of {relevant.n_users}")
    users = relevant.counts.nonzero().squeeze(1)
    top = [torch.empty((0, k), dtype=torch.int64, device=users.device)]
    for start in range(0, len(users), chunk_size):
        chunk = users[start : start + chunk_size]
        with torch.no_grad():
            scores = score_chunk(chunk)
        _check_scores(scores, (len(chunk), n_items), chunk.device)
        top.append(_top_unseen(scores, seen, chunk, k))
    items = torch.cat(top)
    hits = relevant.contains(users.unsqueeze(1) * n_items + items) & (items != NO_ITEM)
    return RankedHits(
        users.cpu().numpy(), items.cpu().numpy(), hits.cpu().numpy(), relevant.counts[users].cpu().numpy()
    )


def top_items(scores: torch.Tensor, k: int) -> torch.Tensor:
    """The k best items of each row; of equal scores, the smaller id comes first.

    Args:
        scores: floating, shape (m, n_items), no NaN; minus infinity marks items that must not be listed.
        k: 1 .. n_items.

    Returns:
        int64, shape (m, k), best first, `NO_ITEM` behind the last item that may be listed.

    Raises:
        ModelError: a score is NaN.
    """
    # one more than asked for, because a tie across the cut shows only there
    values, items = torch.topk(scores, min(k + 1, scores.shape[1]), dim=1)
    # topk takes NaN for the largest value, so looking at the first column is enough
    nan = values[:, 0].isnan()
    tied = (values[:, 1:] == values[:, :-1]) & (values[:, 1:] > -torch.inf)
    if bool((nan | tied.any(dim=1)).any()):
        if bool(nan.any()):
            raise ModelError(
                f"scores are NaN for {int(nan.sum())} of {len(nan)} users; "
                "training has diverged: lower the learning rates and run again"
            )
        rows = tied.any(dim=1).nonzero().squeeze(1)
        at_cut = rows[tied[rows, k - 1]] if tied.shape[1] == k else rows[:0]
        if len(at_cut):
            items[at_cut, :k] = _smallest_ids_at_cut(scores[at_cut], values[at_cut, :k], items[at_cut, :k])
        items[rows, :k] = _order(scores, rows, items[rows, :k])
    return torch.where(values[:, :k] > -torch.inf, items[:, :k], NO_ITEM)


def _smallest_ids_at_cut(scores: torch.Tensor, values: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
    k, last = items.shape[1], scores.shape[1] - 1
    cut = values[:, k - 1 :]
    # distinct integers, larger for smaller ids: here topk has no choice
    descending = torch.arange(last, -1, -1, dtype=torch.int32, device=scores.device)
    level = last - torch.topk(torch.where(scores == cut, descending, -1), k, dim=1).values.long()
    place = torch.arange(k, device=scores.device) - (values > cut).sum(dim=1, keepdim=True)
    return torch.where(place < 0, items, level.gather(1, place.clamp(min=0)))


def _order(scores: torch.Tensor, rows: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
    by_id = items.sort(dim=1).values
    # adding 0 turns -0.0 into 0.0, which a sort by bits would tell apart
    values = scores[rows.unsqueeze(1), by_id] + 0.0
    return by_id.gather(1, values.sort(dim=1, descending=True, stable=True).indices)


def _top_unseen(scores: torch.Tensor, seen: Csr, users: torch.Tensor, k: int) -> torch.Tensor:
    # Masking in place and putting the scores back is much cheaper than a copy of the whole chunk;
    # inference mode, because a caller's tensor may stem from it and is then closed to writes elsewhere.
    with torch.inference_mode():
        flat = scores.detach().contiguous().view(-1)
        row, item = rows_of(seen, users)
        masked = row * scores.shape[1] + item
        kept = flat[masked]
        flat[masked] = -torch.inf
        try:
            return top_items(flat.view(scores.shape), k)
        finally:
            flat[masked] = kept


def _check_scores(scores: torch.Tensor, shape: tuple[int, int], device: torch.device) -> None:
    if tuple(scores.shape) != shape:
        raise ModelError(f"score_chunk returned shape {tuple(scores.shape)}; (users, n_items) = {shape} is needed")
    if not scores.is_floating_point():
        raise ModelError(f"score_chunk returned {scores.dtype}; floating point scores are needed")
    if scores.device != device:
        raise ModelError(f"score_chunk returned scores on {scores.device}, but the evaluation runs on {device}")
