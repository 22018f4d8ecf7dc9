"""What every way through a block shares: losses and their slopes, sums per client, weights per row."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.local_data import LocalData
from fedrec_unlearn.models import Objective


def segment_sums(values: Tensor, ptr: Tensor) -> Tensor:
    """Sum of each client's entries: values (E,), ptr (C + 1,) give (C,)."""
    return torch.segment_reduce(values, "sum", offsets=ptr, initial=0.0)


def slopes(
    objective: Objective, positive: Tensor, negative: Tensor, local: LocalData, num_negatives: int, epoch: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean loss of each client and its derivative in each score.

    Args:
        objective: the training objective.
        positive: scores of the clients' items, shape (P,).
        negative: scores of their negatives, shape (N,).
        local: which client each score belongs to.
        num_negatives: comparisons per positive (pairwise objectives).
        epoch: local epoch, decides who is compared with whom.

    Returns:
        loss (C,); slope of the client's summed loss in each positive (P,) and in each negative (N,); share (C,),
        1 / number of terms: the mean loss has the slopes times the share of the client.
    """
    counts = local.counts
    if not objective.pairwise:
        share = 1.0 / (counts + local.pools).to(positive.dtype)
        value, pos_slope = objective.point(positive, local.ratings, True)
        loss = segment_sums(value, local.pos_ptr)
        neg_slope = negative
        if len(negative):
            value, neg_slope = objective.point(negative, None, False)
            loss = loss + segment_sums(value, local.neg_ptr)
        return loss * share, pos_slope, neg_slope, share

    share = 1.0 / (counts * num_negatives).to(positive.dtype)
    plain = local.partners(0, epoch)
    if num_negatives == 1 and plain is None:
        value, slope = objective.pair(positive, negative)
        return segment_sums(value, local.pos_ptr) * share, slope, -slope, share
    loss = torch.zeros_like(share)
    pos_slope, neg_slope = torch.zeros_like(positive), torch.zeros_like(negative)
    for repeat in range(num_negatives):
        partner = plain if repeat == 0 else local.partners(repeat, epoch)
        value, slope = objective.pair(positive, negative if partner is None else negative.index_select(0, partner))
        loss += segment_sums(value, local.pos_ptr)
        pos_slope += slope
        if partner is None:
            neg_slope -= slope
        else:
            neg_slope.index_add_(0, partner, slope, alpha=-1.0)
    return loss * share, pos_slope, neg_slope, share


def add_row_weight(contribution: Contribution, local: LocalData, weights: Tensor) -> None:
    """Add each client's weight (C,) to the rows it touches, where the contribution keeps them."""
    if contribution.row_weight is None:
        return
    for items, owner in ((local.pos_items, local.pos_owner), (local.neg_items, local.neg_owner)):
        contribution.row_weight.index_add_(0, items, weights.index_select(0, owner).to(contribution.row_weight.dtype))
