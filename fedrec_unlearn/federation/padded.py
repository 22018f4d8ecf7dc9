"""Local training of a block of clients for any model: rows padded to the longest client, gradients by autograd.

Every client has its own copies of its item rows and of the dense parameters. This is the general way: it allows
several local epochs, ring mode and looking at single clients, for any model.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor

from fedrec_unlearn.federation.contribution import Contribution, quantise
from fedrec_unlearn.federation.engine import Workload, snap
from fedrec_unlearn.federation.exchange import BlockUpdate, Exchange
from fedrec_unlearn.federation.local_data import LocalData
from fedrec_unlearn.federation.slopes import add_row_weight, slopes
from fedrec_unlearn.federation.state import RunState
from fedrec_unlearn.federation.term_copies import TermCopies


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

    def spread(self, rows: Tensor) -> Tensor:
        """Rows of the entries, (P + N, width), positives before negatives, on the grid: (C, L, width)."""
        flat = torch.zeros(len(self.items), rows.shape[1], dtype=rows.dtype, device=rows.device)
        flat[torch.cat([self.pos_cells, self.neg_cells])] = rows
        return flat.view(-1, self.length, rows.shape[1])

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
    loss, pos_slope, neg_slope, share = slopes(work.objective, positive, negative, local, work.num_negatives, epoch)
    return loss, block.grid(pos_slope, neg_slope) * share.unsqueeze(1)


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


def train_copies(
    work: Workload,
    state: RunState,
    local: LocalData,
    term: TermCopies | None = None,
    fetched: Tensor | None = None,
) -> BlockResult:
    """Local training of a block on client-specific copies; changes nothing.

    Args:
        work: what to do.
        state: where the clients start from.
        local: the block's items.
        term: the block's side of the workload's term, if it has one; its copies move.
        fetched: item rows the clients start from, (P + N, width); None: the server's.
    """
    config, dtype = work.config, state.server.items.dtype
    block = PaddedBlock.of(local)
    n_clients = len(local.users)
    layout = work.model.item_layout
    row = state.private.index_select(0, local.users)
    # columns apart, so that each gradient is its own tensor and need not be put together
    given = block.rows(state.server.items) if fetched is None else block.spread(fetched)
    items = {name: part.contiguous().clone() for name, part in layout.parts(given).items()}
    dense = {name: value.expand(n_clients, *value.shape).clone() for name, value in state.server.dense.items()}
    cells = block.items.view(n_clients, -1)
    share = _decay_share(block, local, dtype).unsqueeze(-1) if config.l2 else None
    first_loss: Tensor | None = None
    for epoch in range(config.local_epochs):
        leaves = [tensor.requires_grad_() for tensor in (row, *items.values(), *dense.values())]
        seen = work.given(cells, local.users, local.round_number, epoch)
        scores = work.model.score_parts(work.model.user_layout.parts(row), items, dense, seen)
        loss, slope = _score_slopes(work, scores, block, local, epoch)
        first_loss = loss if first_loss is None else first_loss
        outputs, flows = [scores], [slope]
        penalty = work.model.penalty(dense)
        if penalty is not None:
            outputs.append(penalty)
            flows.append(torch.ones_like(penalty))
        gradients = torch.autograd.grad(outputs, leaves, flows, allow_unused=True)
        with torch.no_grad():
            for leaf in leaves:
                leaf.requires_grad_(False)
            grad_row, *others = gradients
            if share is not None:
                # added to the gradient, as the reference engine's autograd does: ring mode wants the same rounding
                grad_row = grad_row + config.l2 * row
                others = [
                    gradient
                    if value is None or gradient is None
                    else torch.addcmul(gradient, share, value, value=config.l2)
                    for gradient, value in zip_longest(others, items.values())
                ]
            if term is not None:
                grad_row = grad_row + term.step(row, epoch)
            row.sub_(grad_row, alpha=work.user_rate)
            for value, gradient in zip((*items.values(), *dense.values()), others, strict=True):
                if gradient is not None:
                    value.sub_(gradient, alpha=config.client_learning_rate)
    assert first_loss is not None
    moved = {name: state.server.dense[name] - value for name, value in dense.items()}
    for name, part in layout.parts(given).items():
        torch.sub(part, items[name], out=items[name])
    delta = next(iter(items.values())) if len(items) == 1 else torch.cat(list(items.values()), dim=-1)
    return BlockResult(block, row, delta, moved, first_loss)


def train_block(
    work: Workload,
    state: RunState,
    local: LocalData,
    contribution: Contribution,
    term: TermCopies | None = None,
    exchange: Exchange | None = None,
) -> None:
    """Train a block on copies, add its sum to a contribution or send it, and keep the new private rows."""
    fetched = None
    if exchange is not None:
        local, fetched = exchange.fetch(local)
    result = train_copies(work, state, local, term, fetched)
    counts = local.counts
    weights = work.weights(counts, state.server.items.dtype)
    bits = work.fraction_bits

    def weighted(delta: Tensor) -> Tensor:
        product = weights.view(-1, *(1 for _ in delta.shape[1:])) * delta
        return product if bits is None else quantise(product, bits)

    item_rows = weighted(result.item_delta).view(len(result.block.items), -1)
    dense = {name: weighted(delta) for name, delta in result.dense_delta.items()}
    carried = exchange is not None and exchange.carries_term and term is not None
    if exchange is None:
        contribution.items.index_add_(0, result.block.items, item_rows)
        for name, value in dense.items():
            contribution.dense[name] += value.sum(0)
        add_row_weight(contribution, local, weights)
    else:
        cells, _ = torch.cat([result.block.pos_cells, result.block.neg_cells]).sort()  # client by client
        ptr = local.pos_ptr + local.neg_ptr
        told = term.vectors() if carried and term is not None else None
        exchange.send(BlockUpdate(local.users, ptr, result.block.items[cells], item_rows[cells], dense, weights, told))
    losses = result.loss * counts
    contribution.loss += float(losses.sum()) if bits is None else int(quantise(losses, bits).sum())
    work.count(contribution, state.server, counts, counts + local.pools, exchange)
    if term is not None:
        term.add_to(contribution, metrics_only=carried)
    state.private.index_copy_(0, local.users, snap(result.private, bits))
