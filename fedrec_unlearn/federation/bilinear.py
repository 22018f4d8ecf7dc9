"""Local training of a block of clients when the score is bilinear, without copying item rows.

With score ⟨left(user), row⟩ + offset(user), each local step changes an item row by a multiple of the client's
`left` vector. After t steps the client's copy of row i is a·Q_i + Σ_r c_r·left_r, so the engine keeps the
numbers a (one a client) and c_r (one an entry and step) and works on the shared table Q throughout. The
result is that of training on copies; the memory is a few numbers an entry instead of a row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.engine import Workload
from fedrec_unlearn.federation.kernels import row_dots, scatter_rows, weighted_rows
from fedrec_unlearn.federation.local_data import LocalData
from fedrec_unlearn.federation.slopes import add_row_weight, segment_sums, slopes
from fedrec_unlearn.federation.state import RunState
from fedrec_unlearn.federation.term_copies import TermCopies


class _Side:
    """One kind of entries (positives or negatives) of a block, with the drift of their item rows.

    The current row of entry e of client c is scale_c·Q_i − Σ_r slope_r[e]·step_r[c], where step_r is `left` of epoch r
    times that epoch's step size and share: what differs by entry is one number an epoch.
    """

    def __init__(self, ptr: Tensor, items: Tensor, owner: Tensor, table: Tensor) -> None:
        self.ptr, self.owner, self.table = ptr, owner, table
        self.ptr32, self.items = ptr.int(), items.int()
        self.slopes: list[Tensor] = []
        self.scale: Tensor | None = None
        """(C,), None while it is 1."""

    def dots(self, left: Tensor, steps: list[Tensor]) -> Tensor:
        """⟨left, current row⟩ of each entry."""
        dots = row_dots(left, self.table, self.ptr32, self.items, self.owner)
        if self.scale is not None:
            dots *= self.scale.index_select(0, self.owner)
        for slope, step in zip(self.slopes, steps, strict=True):
            dots.addcmul_(slope, (step * left).sum(1).index_select(0, self.owner), value=-1.0)
        return dots

    def left_gradient(self, slope: Tensor, steps: list[Tensor]) -> Tensor:
        """Σ slope·current row over each client's entries: (C, W)."""
        gradient = weighted_rows(slope, self.table, self.ptr32, self.items)
        if self.scale is not None:
            gradient *= self.scale.unsqueeze(1)
        for earlier, step in zip(self.slopes, steps, strict=True):
            gradient.addcmul_(segment_sums(earlier * slope, self.ptr).unsqueeze(1), step, value=-1.0)
        return gradient

    def move(self, slope: Tensor, rate: float, l2: float) -> None:
        """One gradient step of the rows; the new slope is paired with the epoch's entry of `steps`."""
        if l2:
            counts = self.ptr.diff().to(slope.dtype)
            keep = 1.0 - rate * l2 * torch.where(counts > 0, 1.0 / counts, 0.0)
            self.scale = keep if self.scale is None else self.scale * keep
            slot_keep = keep.index_select(0, self.owner)
            for earlier in self.slopes:
                earlier *= slot_keep
        self.slopes.append(slope)

    def add_decay(self, weights: Tensor, decay: Tensor) -> None:
        """Add weight·(1 − scale) of each entry to its item's place in `decay` (m,)."""
        if self.scale is not None:
            less = (1.0 - self.scale) * weights
            decay.index_add_(0, self.items, less.index_select(0, self.owner).to(decay.dtype))


def train_block(
    work: Workload,
    state: RunState,
    local: LocalData,
    contribution: Contribution,
    decay: Tensor,
    term: TermCopies | None = None,
) -> None:
    """Train a block of clients and add their sum to a contribution.

    Args:
        work: what to do; its model must be bilinear and the mode float.
        state: private rows of the block are replaced.
        local: the block's items.
        contribution: changed in place.
        decay: (m,), Σ weight·(1 − a) of each item, changed in place; times the table it belongs to `items`.
        term: the block's side of the workload's term, if it has one.
    """
    config, form = work.config, work.model.bilinear
    assert form is not None
    table = state.server.items
    users = local.users
    rows = state.private.index_select(0, users)
    width = table.shape[1] - form.constant_columns
    bias = state.server.dense["bias"].expand(len(users), 1).clone() if form.has_offset else None
    sides = (
        _Side(local.pos_ptr, local.pos_items, local.pos_owner, table),
        _Side(local.neg_ptr, local.neg_items, local.neg_owner, table),
    )
    steps: list[Tensor] = []
    first_loss: Tensor | None = None
    for epoch in range(config.local_epochs):
        left = rows[:, :width]
        if form.constant_columns:
            left = torch.cat([left, left.new_ones(len(left), form.constant_columns)], dim=1)
        left = left.contiguous()
        scores = [side.dots(left, steps) for side in sides]
        if bias is not None:
            offset = rows[:, width] + bias[:, 0]
            scores = [s + offset.index_select(0, side.owner) for s, side in zip(scores, sides, strict=True)]
        loss, *both, share = slopes(work.objective, scores[0], scores[1], local, work.num_negatives, epoch)
        first_loss = loss if first_loss is None else first_loss
        gradient = sides[0].left_gradient(both[0], steps) + sides[1].left_gradient(both[1], steps)
        step = gradient[:, :width]
        if bias is not None:
            offset_gradient = segment_sums(both[0], local.pos_ptr) + segment_sums(both[1], local.neg_ptr)
            step = torch.cat([step, offset_gradient.unsqueeze(1)], dim=1)
            bias = bias - config.client_learning_rate * (share * offset_gradient).unsqueeze(1)
        step = step * share.unsqueeze(1) + config.l2 * rows
        if term is not None:
            step += term.step(rows, epoch)
        rows = rows - work.user_rate * step
        for side, slope in zip(sides, both, strict=True):
            side.move(slope, config.client_learning_rate, config.l2)
        steps.append(left * (config.client_learning_rate * share).unsqueeze(1))

    counts = local.counts
    weights = work.weights(counts, table.dtype)
    _add_items(sides, [step * weights.unsqueeze(1) for step in steps], contribution.items)
    for side in sides:
        side.add_decay(weights, decay)
    add_row_weight(contribution, local, weights)
    if bias is not None:
        moved = state.server.dense["bias"] - bias
        contribution.dense["bias"] += (weights.unsqueeze(1) * moved).sum(0)
    assert first_loss is not None
    contribution.loss += float((first_loss * counts).sum())
    work.count(contribution, state.server, counts, counts + local.pools)
    if term is not None:
        term.add_to(contribution)
    state.private.index_copy_(0, users, rows)


def _add_items(sides: tuple[_Side, ...], steps: list[Tensor], items: Tensor) -> None:
    """Add Σ slope·step over all entries and epochs to each item's row, as one product."""
    ptrs, offset = [sides[0].ptr.new_zeros(1)], 0
    for side in sides * len(steps):
        ptrs.append(side.ptr[1:] + offset)
        offset += len(side.items)
    ptr = torch.cat(ptrs)
    weights = torch.cat([side.slopes[epoch] for epoch in range(len(steps)) for side in sides])
    which = torch.cat([side.items for side in sides] * len(steps))
    left = torch.cat([step for step in steps for _ in sides])
    owner = torch.repeat_interleave(ptr.diff(), output_size=len(which)) if items.is_cuda else which
    scatter_rows(weights, left, ptr, which, owner, items)
