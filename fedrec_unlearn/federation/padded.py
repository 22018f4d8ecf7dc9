"""Local training of a block of clients for any model: rows padded to the longest client, gradients by autograd.

Two ways to the same sum. `train_block` gives every client its own copies of item rows and dense parameters
and so allows several local epochs, ring mode and looking at single clients. `SharedStep` serves the common
case of one local epoch in float mode, where nobody has drifted yet: clients share the dense parameters, and
the item tower can be computed once per item of the catalogue instead of once per entry.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrec_unlearn.federation.contribution import Contribution, quantise
from fedrec_unlearn.federation.engine import Workload, snap
from fedrec_unlearn.federation.local_data import LocalData
from fedrec_unlearn.federation.slopes import slopes
from fedrec_unlearn.federation.state import RunState


@dataclass(frozen=True)
class PaddedBlock:
    """The entries of a block as a (C, L) grid, positives before negatives, the rest padding."""

    items: Tensor
    """int64 (C · L,): item of each cell, 0 where padded."""
    length: int
    pos_cells: Tensor
    """int64 (P,): cell of each positive."""
    neg_cells: Tensor
    """int64 (N,): cell of each negative."""

    @classmethod
    def of(cls, local: LocalData) -> PaddedBlock:
        """Lay out a block's ragged entries."""
        counts, pools = local.counts, local.pools
        length = int((counts + pools).max())
        start = torch.arange(len(counts), device=counts.device) * length
        pos_cells = _cells(start - local.pos_ptr[:-1], local.pos_owner)
        neg_cells = _cells(start + counts - local.neg_ptr[:-1], local.neg_owner)
        items = torch.zeros(len(counts) * length, dtype=torch.int64, device=counts.device)
        items[pos_cells] = local.pos_items
        items[neg_cells] = local.neg_items
        return cls(items, length, pos_cells, neg_cells)

    def rows(self, table: Tensor) -> Tensor:
        """Rows of each cell's item: (C, L, width)."""
        return table.index_select(0, self.items).view(-1, self.length, table.shape[1])

    def grid(self, positive: Tensor, negative: Tensor) -> Tensor:
        """Values of the entries on the grid (C, L), zero where padded."""
        flat = torch.zeros(len(self.items), dtype=positive.dtype, device=positive.device)
        flat[self.pos_cells] = positive
        flat[self.neg_cells] = negative
        return flat.view(-1, self.length)


def _cells(shift: Tensor, owner: Tensor) -> Tensor:
    return torch.arange(len(owner), device=owner.device) + shift.index_select(0, owner)


def _score_slopes(
    work: Workload, scores: Tensor, block: PaddedBlock, local: LocalData, epoch: int
) -> tuple[Tensor, Tensor]:
    """Loss per client (C,) and slope of each cell (C, L)."""
    flat = scores.detach().reshape(-1)
    positive, negative = flat.index_select(0, block.pos_cells), flat.index_select(0, block.neg_cells)
    loss, pos_slope, neg_slope = slopes(work.objective, positive, negative, local, work.num_negatives, epoch)
    return loss, block.grid(pos_slope, neg_slope)


def _decay_share(block: PaddedBlock, local: LocalData, dtype: torch.dtype) -> Tensor:
    """Share of each cell in its side's mean, (C, L): 1 / positives, 1 / negatives, 0 where padded."""
    share_pos = (1.0 / local.counts.to(dtype)).index_select(0, local.pos_owner)
    share_neg = (1.0 / local.pools.to(dtype)).index_select(0, local.neg_owner)
    return block.grid(share_pos, share_neg)


@dataclass(frozen=True)
class BlockResult:
    """What each client of a block did, before anything is summed."""

    block: PaddedBlock
    private: Tensor
    """(C, private row width): new private rows."""
    item_delta: Tensor
    """(C, L, item row width): start − end, unweighted, zero where padded."""
    dense_delta: dict[str, Tensor]
    """(C, ...) each: start − end, unweighted."""
    loss: Tensor
    """(C,): mean loss before training."""


def train_copies(work: Workload, state: RunState, local: LocalData) -> BlockResult:
    """Local training of a block on client-specific copies; changes nothing.

    Args:
        work: what to do.
        state: where the clients start from.
        local: the block's items.
    """
    config, dtype = work.config, state.server.items.dtype
    block = PaddedBlock.of(local)
    n_clients = len(local.users)
    row = state.private.index_select(0, local.users)
    items = start = block.rows(state.server.items)
    dense = {name: value.expand(n_clients, *value.shape).clone() for name, value in state.server.dense.items()}
    features = None if work.features is None else block.rows(work.features)
    share = _decay_share(block, local, dtype).unsqueeze(-1) if config.l2 else None
    first_loss: Tensor | None = None
    for epoch in range(config.local_epochs):
        leaves = [tensor.detach().requires_grad_() for tensor in (row, items, *dense.values())]
        named = dict(zip(dense, leaves[2:], strict=True))
        scores = work.model.score(leaves[0], leaves[1], named, features)
        loss, slope = _score_slopes(work, scores, block, local, epoch)
        first_loss = loss if first_loss is None else first_loss
        gradients = torch.autograd.grad(scores, leaves, slope, allow_unused=True)
        grad_row, grad_items = gradients[0], gradients[1]
        assert grad_row is not None
        assert grad_items is not None
        if share is not None:
            grad_row = grad_row + config.l2 * row
            grad_items = grad_items + config.l2 * share * items
        row = row - config.user_learning_rate * grad_row
        items = items - config.client_learning_rate * grad_items
        for name, gradient in zip(dense, gradients[2:], strict=True):
            if gradient is not None:
                dense[name] = dense[name] - config.client_learning_rate * gradient
    assert first_loss is not None
    moved = {name: state.server.dense[name] - value for name, value in dense.items()}
    return BlockResult(block, row, start - items, moved, first_loss)


def train_block(work: Workload, state: RunState, local: LocalData, contribution: Contribution) -> None:
    """Train a block on copies, add its sum to a contribution and keep the new private rows."""
    result = train_copies(work, state, local)
    counts = local.counts
    weights = work.weights(counts, state.server.items.dtype)
    bits = work.fraction_bits

    def weighted(delta: Tensor) -> Tensor:
        product = weights.view(-1, *(1 for _ in delta.shape[1:])) * delta
        return product if bits is None else quantise(product, bits)

    item_rows = weighted(result.item_delta).view(len(result.block.items), -1)
    contribution.items.index_add_(0, result.block.items, item_rows)
    for name, delta in result.dense_delta.items():
        contribution.dense[name] += weighted(delta).sum(0)
    _add_row_weight(contribution, local, weights)
    losses = result.loss * counts
    contribution.loss += float(losses.sum()) if bits is None else int(quantise(losses, bits).sum())
    work.count(contribution, state.server, counts, counts + local.pools)
    state.private.index_copy_(0, local.users, snap(result.private, bits))


def _add_row_weight(contribution: Contribution, local: LocalData, weights: Tensor) -> None:
    if contribution.row_weight is None:
        return
    for items, owner in ((local.pos_items, local.pos_owner), (local.neg_items, local.neg_owner)):
        contribution.row_weight.index_add_(0, items, weights.index_select(0, owner).to(contribution.row_weight.dtype))


class SharedStep:
    """One local epoch of a round's clients, block by block, with shared dense parameters.

    Args:
        work: what to do (one local epoch, float mode).
        state: where the clients start from; private rows are replaced block by block.
        whole_catalogue: compute the item tower once for the catalogue (pays off when the round has more
            entries than the catalogue has items) rather than once per entry.
    """

    def __init__(self, work: Workload, state: RunState, whole_catalogue: bool) -> None:
        self.work, self.state = work, state
        self.dense = {name: value.detach().requires_grad_() for name, value in state.server.dense.items()}
        self.items = state.server.items.detach().requires_grad_()
        self.tower: Tensor | None = None
        if whole_catalogue:
            self.tower = work.model.item_tower(self.items, self.dense, work.features)
            self.tower_table = self.tower.detach()
            self.tower_gradient = torch.zeros_like(self.tower_table)
        self.decay = torch.zeros(len(self.items), dtype=self.items.dtype, device=self.items.device)

    def train_block(self, local: LocalData, contribution: Contribution) -> None:
        """Train one block and add what is known of its sum to the contribution; `finish` adds the rest."""
        work, config = self.work, self.work.config
        model, dense = work.model, self.dense
        block = PaddedBlock.of(local)
        row = self.state.private.index_select(0, local.users).requires_grad_()
        if self.tower is not None:
            start = rows = block.rows(self.tower_table).requires_grad_()
        else:
            rows = block.rows(self.state.server.items).requires_grad_()
            features = None if work.features is None else block.rows(work.features)
            start = model.item_tower(rows, dense, features)
        scores = model.interact(model.user_tower(row, dense), start, dense)
        loss, slope = _score_slopes(work, scores, block, local, 0)
        counts = local.counts
        weights = work.weights(counts, row.dtype)
        # weighted here once, so that gradients of shared tensors come out summed with the clients' weights
        leaves = (row, rows, *dense.values())
        gradients = torch.autograd.grad(scores, leaves, slope * weights.unsqueeze(1), allow_unused=True)
        grad_row, grad_rows = gradients[0], gradients[1]
        assert grad_row is not None
        assert grad_rows is not None
        flat = grad_rows.reshape(len(block.items), -1)
        if self.tower is not None:
            self.tower_gradient.index_add_(0, block.items, flat)
        else:
            contribution.items.index_add_(0, block.items, flat, alpha=config.client_learning_rate)
        for name, gradient in zip(dense, gradients[2:], strict=True):
            if gradient is not None:
                contribution.dense[name].add_(gradient, alpha=config.client_learning_rate)
        if config.l2:
            share = _decay_share(block, local, row.dtype) * weights.unsqueeze(1)
            self.decay.index_add_(0, block.items, share.view(-1))
        _add_row_weight(contribution, local, weights)
        contribution.loss += float((loss * counts).sum())
        work.count(contribution, self.state.server, counts, counts + local.pools)
        start_row = row.detach()
        new_row = start_row - config.user_learning_rate * (grad_row / weights.unsqueeze(1) + config.l2 * start_row)
        self.state.private.index_copy_(0, local.users, new_row)

    def finish(self, contribution: Contribution) -> None:
        """Add what flows back through the item tower, and the weight decay of item rows."""
        config = self.work.config
        if self.tower is not None:
            leaves = [self.items, *self.dense.values()]
            if self.tower is self.items:
                gradients: tuple[Tensor | None, ...] = (self.tower_gradient,) + (None,) * len(self.dense)
            else:
                gradients = torch.autograd.grad(self.tower, leaves, self.tower_gradient, allow_unused=True)
            targets = [contribution.items, *contribution.dense.values()]
            for target, gradient in zip(targets, gradients, strict=True):
                if gradient is not None:
                    target.add_(gradient, alpha=config.client_learning_rate)
        if config.l2:
            rate = config.client_learning_rate * config.l2
            contribution.items.addcmul_(self.decay.unsqueeze(1), self.state.server.items, value=rate)
