"""A block's side of a term: its clients' copies of the shared parameters, through the local epochs."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec_unlearn.federation.contribution import Contribution, quantise
from fedrec_unlearn.federation.secure_sum import message_bytes
from fedrec_unlearn.federation.state import ServerState
from fedrec_unlearn.federation.term import TermStep, UserTerm


class TermCopies:
    """The shared parameters of a term as the clients of a block train them.

    With one local epoch in float mode nobody drifts, so the clients share one copy and gradients come summed;
    otherwise each has its own. A client whose weight is 0 in a step does not move its copy in it.

    Args:
        term: what the clients are asked.
        server: where their copies start.
        users: int64 (C,).
        round_number: counted from 0.
        local_epochs: steps that will be taken.
        fraction_bits: fixed point of ring mode, or None.
    """

    def __init__(
        self,
        term: UserTerm,
        server: ServerState,
        users: Tensor,
        round_number: int,
        local_epochs: int,
        fraction_bits: int | None,
    ) -> None:
        self.term, self.users, self.round_number, self.bits = term, users, round_number, fraction_bits
        self.summed = local_epochs == 1 and fraction_bits is None
        self.start = server.term
        self.copies = dict(server.term)
        if not self.summed:
            self.copies = {name: value.expand(len(users), *value.shape).clone() for name, value in self.copies.items()}
        self.first: TermStep | None = None
        self.sent: Tensor | None = None
        """(C, G), 1 where a client trained the group in any step."""

    def step(self, rows: Tensor, epoch: int) -> Tensor:
        """One local step of the copies; returns what is added to the private rows' gradient, (C, width)."""
        done = self.term.step(rows, self.copies, self.users, self.round_number, epoch, summed=self.summed)
        if self.first is None:
            self.first, self.sent = done, done.weight
        else:
            self.sent = torch.maximum(self.sent, done.weight) if self.sent is not None else done.weight
        rate = self.term.client_learning_rate
        if self.summed:
            self.copies = {name: gradient * rate for name, gradient in done.gradients.items()}  # already start - end
        else:
            for name, gradient in done.gradients.items():
                self.copies[name].sub_(gradient, alpha=rate)
        return done.row_gradient

    def deltas(self) -> dict[str, Tensor]:
        """Start − end of the shared parameters, (C, *shape), or (*shape) where clients share one copy."""
        if self.summed:
            return self.copies
        return {name: self.start[name] - value for name, value in self.copies.items()}

    def add_to(self, contribution: Contribution) -> None:
        """Add the block's updates, weights and metrics to a contribution."""
        assert self.first is not None
        assert self.sent is not None
        for name, delta in self.deltas().items():
            if self.summed:
                contribution.term[name] += delta
            else:
                contribution.term[name] += (delta if self.bits is None else quantise(delta, self.bits)).sum(0)
        add_term_metrics(contribution, self.term, self.first, self.sent, self.bits)


def add_term_metrics(
    contribution: Contribution, term: UserTerm, first: TermStep, sent: Tensor, fraction_bits: int | None
) -> None:
    """Add weights and metrics of a block to a contribution.

    Args:
        contribution: changed in place.
        term: names the groups.
        first: the clients' first local step; metrics are those before training.
        sent: (C, G), 1 where a client sends an update.
        fraction_bits: fixed point of ring mode, or None.
    """
    losses = first.loss if fraction_bits is None else quantise(first.loss, fraction_bits)
    columns = zip(
        sent.sum(0).tolist(),
        first.known.sum(0).tolist(),
        first.correct.sum(0).tolist(),
        losses.sum(0).tolist(),
        strict=True,
    )
    for group, (weight, known, correct, loss) in zip(term.groups, columns, strict=True):
        sums = contribution.term_sums[group]
        sums.weight += weight
        sums.known += known
        sums.correct += correct
        sums.loss += loss


def term_bytes(term: UserTerm, number_bytes: int) -> tuple[int, int]:
    """Bytes one client sends and receives in a round for a term's parameters.

    Args:
        term: what travels; every client sends all of it, zeros for what it does not know, so that the size tells
            nothing.
        number_bytes: of one number in the clear.
    """
    n = sum(torch.Size(shape).numel() for shape in term.shapes.values())
    if n == 0:
        return 0, 0
    groups = len(term.groups)
    up = message_bytes(n + groups) if term.secure else (n + groups) * number_bytes
    return up, n * number_bytes
