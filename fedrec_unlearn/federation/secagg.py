"""SecFedRec's transport: the whole item table in two additive shares, one for each of two servers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.exchange import BlockUpdate, Exchange
from fedrec_unlearn.federation.secure_sum import SEED_BYTES, SumServer, combine, message_bytes, share
from fedrec_unlearn.federation.state import ServerState
from fedrec_unlearn.federation.whole_table import WholeTable

_MAX_CLIENTS = 1 << 20
"""Sums of so many fixed-point numbers fit an int64, see `contribution.quantise`."""


def secagg_bytes(numbers: int, ring_bits: int = 64) -> int:
    """Bytes a client of SecFedRec sends for a vector: a share to each of two servers, no headers.

    With m·d numbers this is 2·m·d·b/8, the figure SecEmb's table compares with. `secure_sum.message_bytes` is the size
    when one of the two shares is sent as the seed it is expanded from, about half.
    """
    return 2 * numbers * ring_bits // 8


@dataclass
class SecAgg:
    """Dense additive sharing between two servers, as SecFedRec: exact, and as large as the catalogue.

    Guarantee: that of `secure_sum` for the whole table, the dense parameters and the client's weight at once. Which
    rows a client touched stays hidden too; the sum over clients is public.

    Args:
        messages: make and add real shares; otherwise the numbers are added as they are, which gives the same sum bit
            for bit, because the shares of a number cancel.
        seed_compressed: count one of the two shares as a seed (what `secure_sum` really writes) instead of a vector.
    """

    messages: bool = False
    seed_compressed: bool = False
    name: str = "secagg"

    def check(self, server: ServerState, empty: Contribution, n_clients: int) -> None:
        """See `ExchangeTransport.check`.

        Raises:
            TransportError: float mode, or more clients than a sum has room for.
        """
        if empty.fraction_bits is None:
            raise TransportError(
                "transport secagg adds whole numbers; set federation.ring = true, or use the transport plain"
            )
        if n_clients > _MAX_CLIENTS:
            raise TransportError(
                f"transport secagg: a sum over {n_clients} clients could leave int64; at most {_MAX_CLIENTS} a round, "
                "lower federation.clients_per_round"
            )

    def open(self, server: ServerState, round_number: int, empty: Contribution, n_clients: int) -> Exchange:
        """See `ExchangeTransport.open`; raises as `check` does."""
        self.check(server, empty, n_clients)
        return _SecAggRound(self, server, round_number, empty)


class _SecAggRound(WholeTable):
    """One round of `SecAgg`. The vector: rows, each with its weight where rows are averaged, dense, weight."""

    def __init__(self, transport: SecAgg, server: ServerState, round_number: int, empty: Contribution) -> None:
        super().__init__(server, round_number, empty)
        self.transport = transport
        self.numbers = self.items.numel() + sum(value.numel() for value in self.dense.values()) + 1
        if self.row_weight is not None:
            self.numbers += len(self.row_weight)
        self.servers: tuple[SumServer, SumServer] | None = None
        if transport.messages:
            self.servers = (SumServer("a", self.numbers, round_number), SumServer("b", self.numbers, round_number))

    def upload_bytes(self) -> int:
        """Bytes of both messages of a client."""
        compressed = message_bytes(self.numbers)
        if self.transport.seed_compressed:
            return compressed
        return compressed - SEED_BYTES + secagg_bytes(self.numbers) // 2

    def send(self, update: BlockUpdate) -> None:
        """See `Exchange.send`.

        Raises:
            TransportError: a client's weight is not a whole number.
        """
        weights = update.weights.round().to(torch.int64)
        if not torch.equal(weights.to(update.weights), update.weights):
            raise TransportError("transport secagg: a client's weight is a whole number, its items or 1")
        self.clients += len(update.users)
        if self.servers is None:
            self._add_as_they_are(update)
            return
        for client in range(len(update.users)):
            vector = self._vector(update, client, int(weights[client]))
            for server, message in zip(self.servers, share(vector, self.round_number), strict=True):
                server.receive(message)

    def close(self, contribution: Contribution) -> None:
        """Open the sum and add it; see `Exchange.close`."""
        if self.servers is not None:
            first, second = self.servers
            self._read(torch.from_numpy(combine(first.partial(), second.partial())).to(self.items.device))
        super().close(contribution)

    def _add_as_they_are(self, update: BlockUpdate) -> None:
        self.items.index_add_(0, update.item_ids, update.item_rows)
        for name, value in update.dense.items():
            self.dense[name] += value.sum(0)
        if self.row_weight is not None:
            weights = update.weights.index_select(0, update.owner).to(self.row_weight)
            self.row_weight.index_add_(0, update.item_ids, weights)
        self.weight += float(update.weights.sum())

    def _vector(self, update: BlockUpdate, client: int, weight: int) -> Tensor:
        own = slice(int(update.ptr[client]), int(update.ptr[client + 1]))
        ids, rows = update.item_ids[own], update.item_rows[own]
        width = self.items.shape[1]
        table = rows.new_zeros(len(self.items), width + (self.row_weight is not None))
        table[ids, :width] = rows
        if self.row_weight is not None:
            table[ids, width] = weight
        dense = [update.dense[name][client].reshape(-1) for name in self.dense]
        return torch.cat([table.reshape(-1), *dense, rows.new_tensor([weight])])

    def _read(self, total: Tensor) -> None:
        width = self.items.shape[1]
        size = len(self.items) * (width + (self.row_weight is not None))
        shapes = [value.numel() for value in self.dense.values()]
        rows, *dense, weight = torch.split(total, [size, *shapes, 1])
        table = rows.view(len(self.items), -1)
        self.items += table[:, :width]
        if self.row_weight is not None:
            self.row_weight += table[:, width]
        for (name, value), part in zip(self.dense.items(), dense, strict=True):
            self.dense[name] = part.view(value.shape)
        self.weight += float(weight)
