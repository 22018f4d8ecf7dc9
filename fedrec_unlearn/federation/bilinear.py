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


class _Side:
    """One kind of entries (positives or negatives) of a block, with the drift of their item rows."""

    def __init__(self, ptr: Tensor, items: Tensor, owner: Tensor, table: Tensor) -> None:
        self.ptr, self.items, self.owner, self.table = ptr, items, owner, table
        self.scale = torch.ones(len(ptr) - 1, dtype=table.dtype, device=table.device)
        self.steps: list[Tensor] = []
        counts = ptr.diff().to(table.dtype)
        self.share = torch.where(counts > 0, 1.0 / counts, torch.zeros_like(counts))

    def dots(self, lefts: list[Tensor]) -> Tensor:
        """⟨left, current row⟩ of each entry; `lefts` ends with the current one."""
        dots = row_dots(lefts[-1], self.table, self.ptr, self.items, self.owner)
        if self.steps:
            dots *= self.scale.index_select(0, self.owner)
            for coefficient, left in zip(self.steps, lefts, strict=False):
                dots.addcmul_(coefficient, (left * lefts[-1]).sum(1).index_select(0, self.owner))
        return dots

    def left_gradient(self, slope: Tensor, lefts: list[Tensor]) -> Tensor:
        """Σ slope·current row over each client's entries: (C, W)."""
        gradient = weighted_rows(slope, self.table, self.ptr, self.items)
        if self.steps:
            gradient *= self.scale.unsqueeze(1)
            for coefficient, left in zip(self.steps, lefts, strict=False):
                gradient += segment_sums(coefficient * slope, self.ptr).unsqueeze(1) * left
        return gradient

    def step(self, slope: Tensor, rate: float, l2: float) -> None:
        """One gradient step of the rows."""
        if l2:
            keep = 1.0 - rate * l2 * self.share
            slot_keep = keep.index_select(0, self.owner)
            self.scale *= keep
            for coefficient in self.steps:
                coefficient *= slot_keep
        self.steps.append(slope * -rate)

    def contribute(self, weights: Tensor, lefts: list[Tensor], items: Tensor, decay: Tensor) -> None:
        """Add weight·(start − end) of each row: the drift to `items`, the shrinkage of the start to `decay` (m,)."""
        slot_weight = weights.index_select(0, self.owner)
        for coefficient, left in zip(self.steps, lefts, strict=False):
            scatter_rows(coefficient.mul_(slot_weight).neg_(), left, self.ptr, self.items, self.owner, items)
        shrunk = (1.0 - self.scale) * weights
        decay.index_add_(0, self.items, shrunk.index_select(0, self.owner).to(decay.dtype))


def train_block(work: Workload, state: RunState, local: LocalData, contribution: Contribution, decay: Tensor) -> None:
    """Train a block of clients and add their sum to a contribution.

    Args:
        work: what to do; its model must be bilinear and the mode float.
        state: private rows of the block are replaced.
        local: the block's items.
        contribution: changed in place.
        decay: (m,), Σ weight·(1 − a) of each item, changed in place; times the table it belongs to `items`.
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
    lefts: list[Tensor] = []
    first_loss: Tensor | None = None
    for epoch in range(config.local_epochs):
        left = rows[:, :width]
        if form.constant_columns:
            left = torch.cat([left, left.new_ones(len(left), form.constant_columns)], dim=1)
        lefts.append(left.contiguous())
        scores = [side.dots(lefts) for side in sides]
        if bias is not None:
            offset = rows[:, width] + bias[:, 0]
            scores = [s + offset.index_select(0, side.owner) for s, side in zip(scores, sides, strict=True)]
        loss, *both = slopes(work.objective, scores[0], scores[1], local, work.num_negatives, epoch)
        first_loss = loss if first_loss is None else first_loss
        gradient = sum(side.left_gradient(slope, lefts) for side, slope in zip(sides, both, strict=True))
        assert isinstance(gradient, Tensor)
        step = gradient[:, :width]
        if bias is not None:
            offset_gradient = segment_sums(both[0], local.pos_ptr) + segment_sums(both[1], local.neg_ptr)
            step = torch.cat([step, offset_gradient.unsqueeze(1)], dim=1)
            bias = bias - config.client_learning_rate * offset_gradient.unsqueeze(1)
        rows = rows - config.user_learning_rate * (step + config.l2 * rows)
        for side, slope in zip(sides, both, strict=True):
            side.step(slope, config.client_learning_rate, config.l2)

    counts = local.counts
    weights = work.weights(counts, table.dtype)
    for side in sides:
        side.contribute(weights, lefts, contribution.items, decay)
    add_row_weight(contribution, local, weights)
    if bias is not None:
        moved = state.server.dense["bias"] - bias
        contribution.dense["bias"] += (weights.unsqueeze(1) * moved).sum(0)
    assert first_loss is not None
    contribution.loss += float((first_loss * counts).sum())
    work.count(contribution, state.server, counts, counts + local.pools)
    state.private.index_copy_(0, users, rows)
