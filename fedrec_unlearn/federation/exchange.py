"""Transports that carry each client's messages themselves: what an engine hands over and gets back in a round.

The transports in the clear (`fedrec_unlearn.federation.transport`) show the server every update, so an engine may add
up a whole block at once and count the bytes from the layout. Where what arrives is not simply what was sent (shares,
compressed updates), the engine gives the updates of a block to an `Exchange`, client by client, and takes the sum
from it when the round ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.local_data import LocalData
from fedrec_unlearn.federation.state import ServerState


@dataclass(frozen=True)
class BlockUpdate:
    """Weighted updates of a block of C clients, ragged: client c owns rows `ptr[c]:ptr[c + 1]`."""

    users: Tensor
    """int64 (C,)."""
    ptr: Tensor
    """int64 (C + 1,)."""
    item_ids: Tensor
    """int64 (E,), distinct within a client."""
    item_rows: Tensor
    """(E, item row width): weight · (start − end); float, or int64 fixed point in ring mode."""
    dense: Mapping[str, Tensor]
    """(C, ...) each, as `item_rows`."""
    weights: Tensor
    """(C,), float; whole numbers."""
    term: Tensor | None = None
    """int64 (C, n + G): update of a term's parameters and, for each of its groups, 1 where the client trained it; only
    for an exchange that `carries_term`."""

    @property
    def owner(self) -> Tensor:
        """Client (0 .. C − 1) of each row, int64 (E,)."""
        return torch.repeat_interleave(self.ptr.diff(), output_size=len(self.item_ids))

    def add_to(self, contribution: Contribution) -> None:
        """Add the block's sums as they are."""
        contribution.items.index_add_(0, self.item_ids, self.item_rows)
        for name, value in self.dense.items():
            contribution.dense[name] += value.sum(0)
        if contribution.row_weight is not None:
            weights = self.weights.index_select(0, self.owner).to(contribution.row_weight)
            contribution.row_weight.index_add_(0, self.item_ids, weights)


class Exchange(Protocol):
    """The traffic of one round."""

    carries_term: bool
    """Whether a term's updates go with the clients' own; otherwise they are summed apart (`term_messages`)."""

    def fetch(self, local: LocalData) -> tuple[LocalData, Tensor]:
        """Give the clients of a block the item rows they train on.

        Args:
            local: what the clients want to train on.

        Returns:
            What they can train on, every client with a positive and, where there were any, a negative; and its item
            rows, (P + N, item row width): those of all positives, then those of all negatives.
        """

    def send(self, update: BlockUpdate) -> None:
        """Take the updates of a block that `fetch` served before."""

    def close(self, contribution: Contribution) -> None:
        """End the round: add the sums of items, dense parameters, weights and bytes to a contribution."""


@runtime_checkable
class ExchangeTransport(Protocol):
    """Opens an `Exchange` for each round."""

    name: str

    def check(self, server: ServerState, empty: Contribution, n_clients: int) -> None:
        """Refuse now what `open` would refuse of every round; sends nothing.

        Args:
            server: the state before the first round.
            empty, n_clients: as for `open`.

        Raises:
            FedRecError: sizes or options that do not go together.
        """

    def open(self, server: ServerState, round_number: int, empty: Contribution, n_clients: int) -> Exchange:
        """Begin a round.

        Args:
            server: what clients receive; in ring mode on the fixed-point grid.
            round_number: counted from 0.
            empty: the contribution of no clients, for number formats and for what is to be summed.
            n_clients: clients in the round's cohort.
        """
