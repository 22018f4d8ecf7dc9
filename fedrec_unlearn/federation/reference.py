"""The reference engine: one client at a time, plain autograd, every message written and read.

It exists to be read and to be the oracle of the fast engine. Nothing here is clever.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec_unlearn.federation.contribution import ClientUpdate, Contribution, quantise
from fedrec_unlearn.federation.engine import IntArray, Workload, snap
from fedrec_unlearn.federation.exchange import BlockUpdate, Exchange, ExchangeTransport
from fedrec_unlearn.federation.state import RunState
from fedrec_unlearn.federation.term_copies import TermCopies
from fedrec_unlearn.federation.term_messages import TERM_BITS, TermSumsOfRound


class ReferenceEngine:
    """Trains each client on its own; see `Engine`.

    Guarantee: what crosses from a client to the server is the message `Transport.encode` returns. It holds item
    rows, dense parameters and the client's weight; the private row, the interactions and the attributes stay.
    A term's update goes as two additive shares to two servers, of which neither learns more than the round's sum.
    Item rows of a client still depend on them: see the transport for what it reveals. One thing is added up beside
    the messages: the loss, which the simulation records and the server does not use.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def train_clients(self, state: RunState, users: IntArray, round_number: int) -> Contribution:
        """See `Engine.train_clients`."""
        work = self.workload
        state = work.received(state)
        contribution = work.empty(state.server)
        exchange = work.open_exchange(state.server, round_number, len(users))
        carried = exchange is not None and exchange.carries_term
        sums = None
        if work.term is not None and not carried:
            sums = TermSumsOfRound(work.term, state.server, round_number)
        new_rows: dict[int, Tensor] = {}
        for user in users.tolist():
            term = self._term(state, user, round_number)
            update, new_rows[user], loss, counts = self.train_one(state, user, round_number, term, exchange)
            if exchange is not None:
                told = term.vectors() if term is not None and carried else None
                exchange.send(_block_of_one(user, update, told))
            elif not isinstance(work.transport, ExchangeTransport):
                message = work.transport.encode(update, round_number)
                received = work.transport.decode(message, round_number, contribution.items, contribution.dense)
                contribution.add_update(received.to(state.private.device))
            if term is not None and carried:
                term.add_to(contribution, metrics_only=True)
            elif term is not None and sums is not None:
                sums.add(term, contribution)
            rows = torch.tensor([len(update.item_ids)], device=counts.device)
            work.count(contribution, state.server, counts, rows, exchange)
            contribution.loss += loss
        if exchange is not None:
            exchange.close(contribution)
        if sums is not None:
            sums.close(contribution)
        for user, row in new_rows.items():
            state.private[user] = row
        return contribution

    def train_one(
        self,
        state: RunState,
        user: int,
        round_number: int,
        term: TermCopies | None = None,
        exchange: Exchange | None = None,
    ) -> tuple[ClientUpdate, Tensor, float | int, Tensor]:
        """Local training of one client.

        Returns:
            its update, its new private row, interactions × mean loss before training (fixed point in ring
            mode), and its number of interactions as a tensor of shape (1,).
        """
        work, config = self.workload, self.workload.config
        chosen = torch.tensor([user], device=state.private.device)
        local, fetched = work.local(chosen, round_number), None
        if exchange is not None:
            local, fetched = exchange.fetch(local)
        n, k = len(local.pos_items), len(local.neg_items)
        item_ids = torch.cat([local.pos_items, local.neg_items])

        row = state.private[user].clone()
        start = items = state.server.items[item_ids] if fetched is None else fetched
        dense = {name: value.clone() for name, value in state.server.dense.items()}
        first_loss = 0.0
        for epoch in range(config.local_epochs):
            leaves = [tensor.detach().requires_grad_() for tensor in (row, items, *dense.values())]
            row, items, dense = leaves[0], leaves[1], dict(zip(dense, leaves[2:], strict=True))
            given = work.given(item_ids, chosen[0], round_number, epoch)
            scores = work.model.score(row, items, dense, given)
            partner = self._partner(n, k, epoch, scores.device)
            loss = work.objective.client_loss(scores[:n], scores[n:], local.ratings, partner)
            if epoch == 0:
                first_loss = float(loss.detach())
            penalty = row.square().sum() + items[:n].square().sum() / n
            if k:
                penalty = penalty + items[n:].square().sum() / k
            total = loss + 0.5 * config.l2 * penalty
            own_penalty = work.model.penalty(dense)
            if own_penalty is not None:
                total = total + own_penalty
            gradients = torch.autograd.grad(total, leaves, allow_unused=True)
            if term is not None:
                extra = term.step(row.detach().unsqueeze(0), epoch)[0]
                gradients = (gradients[0] + extra, *gradients[1:])
            rates = [work.user_rate] + [config.client_learning_rate] * (len(leaves) - 1)
            moved = [
                leaf.detach() if gradient is None else leaf.detach() - rate * gradient
                for leaf, gradient, rate in zip(leaves, gradients, rates, strict=True)
            ]
            row, items, dense = moved[0], moved[1], dict(zip(dense, moved[2:], strict=True))

        weight = float(n) if config.client_weighting == "interactions" else 1.0
        bits = work.fraction_bits

        def message_form(delta: Tensor) -> Tensor:
            return weight * delta if bits is None else quantise(weight * delta, bits)

        update = ClientUpdate(
            item_ids,
            message_form(start - items),
            {name: message_form(state.server.dense[name] - value) for name, value in dense.items()},
            weight,
        )
        loss_sum: float | int = n * first_loss
        if bits is not None:
            loss_sum = int(quantise(torch.tensor(n * first_loss, dtype=torch.float64), bits))
        return update, snap(row, bits), loss_sum, local.counts

    def _term(self, state: RunState, user: int, round_number: int) -> TermCopies | None:
        work = self.workload
        if work.term is None:
            return None
        users = torch.tensor([user], device=state.private.device)
        bits = TERM_BITS if work.fraction_bits is None else work.fraction_bits  # a copy of its own in either mode
        return TermCopies(work.term, state.server, users, round_number, work.config.local_epochs, bits)

    def _partner(self, n: int, k: int, epoch: int, device: torch.device) -> Tensor:
        """Negative of each comparison, int64 (r, n): positive j meets (j + r·n + epoch) mod k."""
        if k == 0:
            return torch.zeros((0, n), dtype=torch.int64, device=device)
        place = torch.arange(self.workload.num_negatives * n, device=device)
        return ((place + epoch) % k).view(self.workload.num_negatives, n)


def _block_of_one(user: int, update: ClientUpdate, term: Tensor | None) -> BlockUpdate:
    device = update.item_ids.device
    return BlockUpdate(
        users=torch.tensor([user], device=device),
        ptr=torch.tensor([0, len(update.item_ids)], device=device),
        item_ids=update.item_ids,
        item_rows=update.item_rows,
        dense={name: value.unsqueeze(0) for name, value in update.dense.items()},
        weights=torch.tensor([update.weight], dtype=torch.float64, device=device),
        term=term,
    )
