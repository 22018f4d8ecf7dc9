"""One local epoch of a round's clients for a model without towers: its score is computed pair by pair.

Nobody has drifted yet, so all clients share the dense parameters and the item rows they touch, and one call scores
all pairs of a block. The gradient of the weighted sum of their losses is the sum that the server wants; private rows
get theirs one by one, because each belongs to one client alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.engine import Workload
from fedrec_unlearn.federation.local_data import LocalData
from fedrec_unlearn.federation.slopes import add_row_weight, slopes
from fedrec_unlearn.federation.state import RunState
from fedrec_unlearn.federation.term_copies import TermCopies
from fedrec_unlearn.models import Recommender


def bytes_per_entry(model: Recommender) -> int:
    """Working memory of one pair: rows, activations and their gradients in float32."""
    return 4 * (2 * model.user_layout.width + 2 * model.item_layout.width + 2 * model.activation_width) + 64


class PairStep:
    """Trains a round's clients block by block.

    Args:
        work: what to do (one local epoch, float mode).
        state: where the clients start from; private rows are replaced block by block.
    """

    def __init__(self, work: Workload, state: RunState) -> None:
        self.work, self.state = work, state
        self.dense = {name: value.detach().requires_grad_() for name, value in state.server.dense.items()}

    def train_block(self, local: LocalData, contribution: Contribution, term: TermCopies | None = None) -> None:
        """Train one block and add its sums.

        Args:
            local: what the block's clients train on.
            contribution: changed in place.
            term: the block's side of the workload's term, if it has one.
        """
        work, config = self.work, self.work.config
        ids, place = torch.unique(torch.cat([local.pos_items, local.neg_items]), return_inverse=True)
        owner = torch.cat([local.pos_owner, local.neg_owner])
        start = self.state.private.index_select(0, local.users)
        rows = self.state.server.items.index_select(0, ids)
        user = _leaves(work.model.user_layout.parts(start))
        items = _leaves(work.model.item_layout.parts(rows))
        given = work.given(ids, local.users, local.round_number, 0)
        scores = work.model.score_pairs(user, items, self.dense, owner, place, given)

        n, counts = len(local.pos_items), local.counts
        flat = scores.detach()
        loss, *both, share = slopes(work.objective, flat[:n], flat[n:], local, work.num_negatives, 0)
        weights = work.weights(counts, start.dtype)
        slope = torch.cat(both).mul_((weights * share).index_select(0, owner))
        leaves = [*user.values(), *items.values(), *self.dense.values()]
        gradients = torch.autograd.grad(scores, leaves, slope, allow_unused=True)
        filled = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, gradients, strict=True)]
        of_user, of_items = torch.cat(filled[: len(user)], 1), torch.cat(filled[len(user) : len(user) + len(items)], 1)
        of_dense = dict(zip(self.dense, filled[len(user) + len(items) :], strict=True))

        if config.l2:
            decay = rows.new_zeros(len(ids))
            decay.index_add_(0, place[:n], (weights / counts).index_select(0, local.pos_owner))
            if len(place) > n:
                decay.index_add_(0, place[n:], (weights / local.pools).index_select(0, local.neg_owner))
            of_items.addcmul_(decay.unsqueeze(1), rows, value=config.l2)
        contribution.items.index_add_(0, ids, of_items, alpha=config.client_learning_rate)
        self._add_dense(of_dense, float(weights.sum()), contribution)
        add_row_weight(contribution, local, weights)
        contribution.loss += float((loss * counts).sum())
        work.count(contribution, self.state.server, counts, counts + local.pools)

        gradient = of_user / weights.unsqueeze(1) + config.l2 * start
        if term is not None:
            gradient += term.step(start, 0)
            term.add_to(contribution)
        self.state.private.index_copy_(0, local.users, start - work.user_rate * gradient)

    def _add_dense(self, gradients: Mapping[str, Tensor], weight: float, contribution: Contribution) -> None:
        """Add the dense parameters' gradients, and once for each client that of the model's own penalty on them."""
        rate = self.work.config.client_learning_rate
        for name, gradient in gradients.items():
            contribution.dense[name].add_(gradient, alpha=rate)
        penalty = self.work.model.penalty(self.dense)
        if penalty is None:
            return
        extra = torch.autograd.grad(penalty, list(self.dense.values()), allow_unused=True)
        for name, more in zip(self.dense, extra, strict=True):
            if more is not None:
                contribution.dense[name].add_(more, alpha=rate * weight)


def _leaves(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: part.contiguous().clone().requires_grad_() for name, part in parts.items()}
