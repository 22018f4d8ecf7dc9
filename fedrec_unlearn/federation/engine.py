"""What an engine is: it lets a round's clients train and returns the sum of their updates.

Everything an engine needs to know about the run is in a `Workload`. Two engines exist: `reference` (one
client at a time, plain autograd, real messages) and `vectorised` (blocks of clients as tensor operations).
For equal seeds they agree to float tolerance, and bit for bit in ring mode.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec_unlearn.config import FederationConfig
from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.exchange import Exchange, ExchangeTransport
from fedrec_unlearn.federation.local_data import ClientData, LocalData
from fedrec_unlearn.federation.state import RunState, ServerState, number_bytes
from fedrec_unlearn.federation.term import UserTerm
from fedrec_unlearn.federation.term_copies import term_bytes
from fedrec_unlearn.federation.transport import Transport
from fedrec_unlearn.models import Given, Objective, Recommender

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Workload:
    """What clients do in a round, apart from the state they start from."""

    model: Recommender
    objective: Objective
    clients: ClientData
    config: FederationConfig
    seed: int
    transport: Transport | ExchangeTransport
    features: Tensor | None = None
    """Item features (m, F), or None."""
    user_features: Tensor | None = None
    """The clients' own features (n_users, F'), or None; like private rows they enter no message."""
    term: UserTerm | None = None
    """A further loss on the private rows, or None."""
    frozen: bool = False
    """Whether private rows stand still: clients train the item rows and dense parameters alone."""

    @property
    def num_negatives(self) -> int:
        """Negatives per positive; none where the objective does not use them."""
        return self.config.num_negatives if self.objective.needs_negatives else 0

    @property
    def fraction_bits(self) -> int | None:
        """Fixed-point digits in ring mode, None in float mode."""
        return self.config.ring_fraction_bits if self.config.ring else None

    def eligible(self) -> IntArray:
        """Users that can train: with a training item and, where negatives are needed, an unseen item."""
        able = self.clients.counts > 0
        if self.objective.needs_negatives:
            able &= self.clients.unseen > 0
        found: IntArray = torch.nonzero(able).squeeze(1).cpu().numpy()
        return found

    def empty(self, server: ServerState) -> Contribution:
        """The contribution of no clients."""
        per_row = self.config.item_aggregation == "row_mean"
        return Contribution.zeros(
            server.items,
            server.dense,
            row_weight=per_row,
            fraction_bits=self.fraction_bits,
            term=server.term if self.term is not None else None,
            groups=() if self.term is None else self.term.groups,
        )

    @property
    def user_rate(self) -> float:
        """Step size of the private rows: 0 while they are frozen."""
        return 0.0 if self.frozen else self.config.user_learning_rate

    def local(self, users: Tensor, round_number: int) -> LocalData:
        """What `users`, int64 (C,), train on in a round."""
        return self.clients.local(users, self.seed, round_number, self.num_negatives, self.config.max_items)

    def given(self, items: Tensor, users: Tensor, round_number: int, epoch: int) -> Given:
        """What scores depend on beside rows and dense parameters, in one step of training.

        Args:
            items: ids of items, int64 (...).
            users: ids of users, int64 (...).
            round_number, epoch: coordinates of random draws.
        """
        features = None if self.features is None else self.features[items]
        own = None if self.user_features is None else self.user_features[users]
        return Given(features, own, (round_number, epoch))

    def touched(self, users: Tensor) -> Tensor:
        """Item rows each of `users` touches in a round, int64 (C,)."""
        return self.clients.touched(users, self.num_negatives, self.config.max_items)

    def received(self, state: RunState) -> RunState:
        """The state as clients get to see the server's part: in ring mode the numbers that travel, on the grid.

        The private rows are those of `state`, not a copy.
        """
        bits = self.fraction_bits
        if bits is None:
            return state
        dense = {name: snap(value, bits) for name, value in state.server.dense.items()}
        return replace(state, server=replace(state.server, items=snap(state.server.items, bits), dense=dense))

    def open_exchange(self, server: ServerState, round_number: int, n_clients: int) -> Exchange | None:
        """The round's exchange, or None under a transport whose bytes follow from the layout."""
        if isinstance(self.transport, ExchangeTransport):
            return self.transport.open(server, round_number, self.empty(server), n_clients)
        return None

    def count(
        self,
        contribution: Contribution,
        server: ServerState,
        counts: Tensor,
        rows: Tensor,
        exchange: Exchange | None = None,
    ) -> None:
        """Add a block's clients, interactions, weights and bytes to a contribution.

        Args:
            contribution: changed in place.
            server: for the sizes of what travels.
            counts: training items of each client, int64 (C,).
            rows: item rows each client touches, int64 (C,).
            exchange: of the round, if there is one: it adds weights and bytes itself when it closes.
        """
        n_dense, size = number_bytes(server.dense, server.items, self.fraction_bits)
        width = server.items.shape[1]
        interactions = int(counts.sum())
        contribution.clients += len(counts)
        contribution.interactions += interactions
        if not isinstance(self.transport, ExchangeTransport):
            contribution.weight += interactions if self.config.client_weighting == "interactions" else len(counts)
            contribution.bytes_up += int(self.transport.upload_bytes(rows, width, n_dense, size).sum())
            contribution.bytes_down += int(self.transport.download_bytes(rows, width, n_dense, size).sum())
        if self.term is not None and not (exchange is not None and exchange.carries_term):
            up, down = term_bytes(self.term, server.term.layout.size, size)
            contribution.bytes_up += up * len(counts)
            contribution.bytes_down += down * len(counts)

    def weights(self, counts: Tensor, dtype: torch.dtype) -> Tensor:
        """Weight of each client in the mean, shape (C,)."""
        if self.config.client_weighting == "interactions":
            return counts.to(dtype)
        return torch.ones_like(counts, dtype=dtype)


class Engine(Protocol):
    """Lets clients train."""

    def train_clients(self, state: RunState, users: IntArray, round_number: int) -> Contribution:
        """Local training of `users` from the server's current tables.

        Args:
            state: the private rows of `users` are replaced; the server's tables are only read.
            users: distinct, from `Workload.eligible`.
            round_number: counted from 0; coordinates of the round's random draws.

        Returns:
            The sum of the clients' weighted updates.
        """


def make_engine(workload: Workload) -> Engine:
    """The engine a configuration names."""
    from fedrec_unlearn.federation.reference import ReferenceEngine
    from fedrec_unlearn.federation.vectorised import VectorisedEngine

    return ReferenceEngine(workload) if workload.config.engine == "reference" else VectorisedEngine(workload)


def snap(private: Tensor, fraction_bits: int | None) -> Tensor:
    """Private rows as they are kept: on the fixed-point grid in ring mode, so that engines cannot drift apart."""
    if fraction_bits is None:
        return private
    return torch.round(private * float(1 << fraction_bits)) * 2.0**-fraction_bits
