"""One local epoch of a round's clients when nobody has drifted yet: all clients share the dense parameters.

The item tower is computed once per item rather than once per (client, item) entry. The inner product of the
score never copies a row (`kernels`); only the hidden layers, where a model has them, are computed entry by
entry, in chunks that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.engine import Workload
from fedrec_unlearn.federation.kernels import row_dots, scatter_rows, weighted_rows
from fedrec_unlearn.federation.local_data import LocalData
from fedrec_unlearn.federation.slopes import add_row_weight, segment_sums, slopes
from fedrec_unlearn.federation.state import RunState
from fedrec_unlearn.federation.term_copies import TermCopies

_CPU_CHUNK_NUMBERS = 1 << 18
"""Numbers of one hidden layer computed at once on a CPU: 1 MiB of float32."""


class SharedStep:
    """Trains a round's clients block by block; `finish` adds what flows back through the item tower.

    Args:
        work: what to do (one local epoch, float mode).
        state: where the clients start from; private rows are replaced block by block.
        touched: ids of the items the round touches, ascending, or None for the whole catalogue.
    """

    def __init__(self, work: Workload, state: RunState, touched: Tensor | None) -> None:
        self.work, self.state, self.touched = work, state, touched
        self.dense = {name: value.detach().requires_grad_() for name, value in state.server.dense.items()}
        rows = state.server.items if touched is None else state.server.items.index_select(0, touched)
        features = work.features
        if features is not None and touched is not None:
            features = features.index_select(0, touched)
        self.rows = rows.detach().requires_grad_()
        self.tower = work.model.item_tower(work.model.item_layout.parts(self.rows), self.dense, features)
        self.right = self.tower.factors.detach()
        if self.tower.bias is not None:
            self.right = torch.cat([self.right, self.tower.bias.detach().unsqueeze(1)], dim=1)
        self.right_gradient = torch.zeros_like(self.right)
        self.hidden = None if self.tower.hidden is None else self.tower.hidden.detach()
        self.hidden_gradient = None if self.hidden is None else torch.zeros_like(self.hidden)
        self.decay = rows.new_zeros(len(rows))
        if rows.device.type == "cpu" and work.model.head_widths:
            self.chunk = max(1, _CPU_CHUNK_NUMBERS // max(work.model.head_widths))
        else:
            self.chunk = 1 << 62

    def train_block(self, local: LocalData, contribution: Contribution, term: TermCopies | None = None) -> None:
        """Train one block; the contribution gets all but the item rows' sum.

        Args:
            local: the block's items.
            contribution: changed in place.
            term: the block's side of the workload's term, if it has one.
        """
        work, config = self.work, self.work.config
        ends = (len(local.pos_items), len(local.pos_items) + len(local.neg_items))
        ptrs = (local.pos_ptr, local.neg_ptr)
        owner = torch.cat([local.pos_owner, local.neg_owner])
        items = torch.cat([local.pos_items, local.neg_items])
        if self.touched is not None:
            items = torch.searchsorted(self.touched, items)
        cuts = (slice(0, ends[0]), slice(ends[0], ends[1]))

        row = self.state.private.index_select(0, local.users).requires_grad_()
        tower = work.model.user_tower(work.model.user_layout.parts(row), self.dense)
        left = tower.factors.detach()
        if self.tower.bias is not None:
            left = torch.cat([left, left.new_ones(len(left), 1)], dim=1)
        left = left.contiguous()
        scores = torch.cat(
            [row_dots(left, self.right, ptr, items[cut], owner[cut]) for ptr, cut in zip(ptrs, cuts, strict=True)]
        )
        if tower.bias is not None:
            scores += tower.bias.detach().index_select(0, owner)
        tape = self._head_scores(tower.hidden, items, owner, scores)

        loss, *both, share = slopes(work.objective, scores[cuts[0]], scores[cuts[1]], local, work.num_negatives, 0)
        counts = local.counts
        weights = work.weights(counts, row.dtype)
        # weighted once here, so that what clients share comes out summed with their weights
        slope = torch.cat(both).mul_((weights * share).index_select(0, owner))
        left_gradient = torch.zeros_like(left)
        for ptr, cut in zip(ptrs, cuts, strict=True):
            left_gradient += weighted_rows(slope[cut], self.right, ptr, items[cut])
            scatter_rows(slope[cut], left, ptr, items[cut], owner[cut], self.right_gradient)
        outputs, flows = [tower.factors], [left_gradient[:, : tower.factors.shape[1]]]
        if tower.bias is not None:
            outputs.append(tower.bias)
            flows.append(
                sum((segment_sums(slope[c], p) for p, c in zip(ptrs, cuts, strict=True)), torch.zeros_like(weights))
            )
        if tower.hidden is not None:
            outputs.append(tower.hidden)
            flows.append(self._head_gradients(tape, tower.hidden, items, owner, slope, contribution))
        leaves = [row, *self.dense.values()]
        grad_row, *grad_dense = torch.autograd.grad(outputs, leaves, flows, allow_unused=True)
        self._add_dense(grad_dense, contribution)
        if config.l2:
            share = weights / counts
            self.decay.index_add_(0, items[cuts[0]], share.index_select(0, local.pos_owner))
            share = weights / local.pools
            self.decay.index_add_(0, items[cuts[1]], share.index_select(0, local.neg_owner))
        add_row_weight(contribution, local, weights)
        contribution.loss += float((loss * counts).sum())
        work.count(contribution, self.state.server, counts, counts + local.pools)
        start = row.detach()
        gradient = grad_row / weights.unsqueeze(1) + config.l2 * start
        if term is not None:
            gradient += term.step(start, 0)
            term.add_to(contribution)
        moved = start - work.user_rate * gradient
        self.state.private.index_copy_(0, local.users, moved)

    def finish(self, contribution: Contribution) -> None:
        """Add the sum of the item rows' gradients, through the item tower, and their weight decay."""
        config = self.work.config
        outputs, flows = [self.tower.factors], [self.right_gradient]
        if self.tower.bias is not None:
            flows = [self.right_gradient[:, :-1], self.right_gradient[:, -1]]
            outputs.append(self.tower.bias)
        if self.tower.hidden is not None and self.hidden_gradient is not None:
            outputs.append(self.tower.hidden)
            flows.append(self.hidden_gradient)
        leaves = [self.rows, *self.dense.values()]
        gradient, *grad_dense = torch.autograd.grad(outputs, leaves, flows, allow_unused=True)
        self._add_dense(grad_dense, contribution)
        if config.l2:
            gradient = gradient + config.l2 * self.decay.unsqueeze(1) * self.rows.detach()
        if self.touched is None:
            contribution.items.add_(gradient, alpha=config.client_learning_rate)
        else:
            contribution.items.index_add_(0, self.touched, gradient, alpha=config.client_learning_rate)

    def _head_scores(
        self, user_hidden: Tensor | None, items: Tensor, owner: Tensor, scores: Tensor
    ) -> list[tuple[Tensor, Tensor]]:
        """Add the hidden layers' score to `scores`; returns (pre-activation, score) of each chunk, for the way back."""
        tape: list[tuple[Tensor, Tensor]] = []
        if user_hidden is None or self.hidden is None:
            return tape
        user_part = user_hidden.detach()
        for start in range(0, len(items), self.chunk):
            cut = slice(start, start + self.chunk)
            leaf = self.hidden.index_select(0, items[cut])
            leaf += user_part.index_select(0, owner[cut])
            leaf.requires_grad_()
            score = self.work.model.head(leaf, self.dense)
            scores[cut] += score.detach()
            tape.append((leaf, score))
        return tape

    def _head_gradients(
        self,
        tape: list[tuple[Tensor, Tensor]],
        user_hidden: Tensor,
        items: Tensor,
        owner: Tensor,
        slope: Tensor,
        contribution: Contribution,
    ) -> Tensor:
        """Way back through the hidden layers; returns the gradient of the users' part (C, h)."""
        assert self.hidden_gradient is not None
        gradient = torch.zeros_like(user_hidden)
        start = 0
        for leaf, score in tape:
            cut = slice(start, start + len(leaf))
            grad_leaf, *grad_dense = torch.autograd.grad(
                score, [leaf, *self.dense.values()], slope[cut], allow_unused=True
            )
            self.hidden_gradient.index_add_(0, items[cut], grad_leaf)
            gradient.index_add_(0, owner[cut], grad_leaf)
            self._add_dense(grad_dense, contribution)
            start += len(leaf)
        return gradient

    def _add_dense(self, gradients: Sequence[Tensor | None], contribution: Contribution) -> None:
        for name, gradient in zip(self.dense, gradients, strict=True):
            if gradient is not None:
                contribution.dense[name].add_(gradient, alpha=self.work.config.client_learning_rate)
