"""A term's updates as messages: fixed point, two additive shares, two servers, one sum.

The reference engine sends every message; the vectorised engine adds the same numbers without writing them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.secure_sum import SumServer, combine, share
from fedrec_unlearn.federation.state import ServerState
from fedrec_unlearn.federation.term import UserTerm
from fedrec_unlearn.federation.term_copies import TermCopies, add_term_metrics

TERM_BITS = 30
"""Fixed-point digits of a term's update in float mode, where the recommender's own numbers stay floats."""


class TermSumsOfRound:
    """The servers of one round's term updates.

    Guarantee: with `term.secure`, each of the two servers sees of a client a vector that is uniform on its own;
    together they open nothing but the sum over the round's clients, in which each client's update is one summand and
    its groups' weights (does it know its class?) another. Loss and accuracy of the adversary are recorded by the
    simulation and do not travel.

    Args:
        term: whose parameters travel.
        server: holds the parameters the messages are updates of.
        round_number: the messages' round.
    """

    def __init__(self, term: UserTerm, server: ServerState, round_number: int) -> None:
        self.term = term
        self.n = server.term.layout.size
        self.length = self.n + len(term.groups)
        self.round_number = round_number
        self.servers = (SumServer("a", self.length, round_number), SumServer("b", self.length, round_number))
        self.clear = torch.zeros(self.length, dtype=torch.int64)
        self.bits = TERM_BITS

    def add(self, copies: TermCopies, contribution: Contribution) -> None:
        """Send one client's update.

        Args:
            copies: of a block of this client alone.
            contribution: gets its metrics; the update itself arrives with `close`.
        """
        assert copies.first is not None
        assert copies.sent is not None
        assert copies.bits is not None
        self.bits = copies.bits
        vector = copies.vectors()[0].cpu()
        if self.term.secure:
            for server, message in zip(self.servers, share(vector, self.round_number), strict=True):
                server.receive(message)
        else:
            self.clear += vector
        add_term_metrics(
            contribution, self.term, copies.first, torch.zeros_like(copies.sent), contribution.fraction_bits
        )

    def close(self, contribution: Contribution) -> None:
        """Open the sum and add it to a contribution."""
        total = self.clear
        if self.term.secure:
            first, second = self.servers
            total = torch.from_numpy(combine(first.partial(), second.partial()))
        update, weights = total[: self.n], total[self.n :]
        contribution.term.flat += self._read(update, contribution).to(contribution.items.device)
        for group, weight in zip(self.term.groups, weights.tolist(), strict=True):
            contribution.term_sums[group].weight += weight

    def _read(self, part: Tensor, contribution: Contribution) -> Tensor:
        if contribution.fraction_bits is not None:
            return part
        return (part.to(torch.float64) * 2.0**-self.bits).to(contribution.items.dtype)
