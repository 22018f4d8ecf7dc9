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
        self.copies = server.term
        self.start = server.term.flat
        if not self.summed:
            self.copies = server.term.like(self.start.expand(len(users), -1).clone())
        self.gradient: Tensor | None = None
        """(n,), summed, where the clients share one copy."""
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
        if self.summed:
            self.gradient = done.gradients.flat
        else:
            self.copies.flat.sub_(done.gradients.flat, alpha=self.term.client_learning_rate)
        return done.row_gradient

    def delta(self) -> Tensor:
        """Start − end of each client's copy, (C, n), where each has its own."""
        return self.start - self.copies.flat

    def vectors(self) -> Tensor:
        """What each client sends, int64 (C, n + G): its copy's update in fixed point, and which groups it trained."""
        assert self.sent is not None
        assert self.bits is not None
        return torch.cat([quantise(self.delta().to(torch.float64), self.bits), self.sent.to(torch.int64)], 1)

    def add_to(self, contribution: Contribution, metrics_only: bool = False) -> None:
        """Add the block's updates, weights and metrics to a contribution, or only what does not travel."""
        assert self.first is not None
        assert self.sent is not None
        if metrics_only:
            add_term_metrics(contribution, self.term, self.first, torch.zeros_like(self.sent), self.bits)
            return
        if self.gradient is not None:
            contribution.term.flat.add_(self.gradient, alpha=self.term.client_learning_rate)
        else:
            delta = self.delta()
            contribution.term.flat += (delta if self.bits is None else quantise(delta, self.bits)).sum(0)
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
    told, n = [sent, first.known, first.correct], len(term.groups)
    if fraction_bits is None:
        numbers = torch.cat([*told, first.loss], 1).sum(0).tolist()
    else:
        numbers = torch.cat(told, 1).sum(0).tolist() + quantise(first.loss, fraction_bits).sum(0).tolist()
    columns = [numbers[start : start + n] for start in range(0, 4 * n, n)]
    for group, weight, known, correct, loss in zip(term.groups, *columns, strict=True):
        sums = contribution.term_sums[group]
        sums.weight += weight
        sums.known += known
        sums.correct += correct
        sums.loss += loss


def term_bytes(term: UserTerm, n: int, number_bytes: int) -> tuple[int, int]:
    """Bytes one client sends and receives in a round for a term's parameters.

    Args:
        term: what travels; every client sends all of it, zeros for what it does not know, so that the size tells
            nothing.
        n: numbers of its parameters.
        number_bytes: of one number in the clear.
    """
    if n == 0:
        return 0, 0
    groups = len(term.groups)
    up = message_bytes(n + groups) if term.secure else (n + groups) * number_bytes
    return up, n * number_bytes
