"""Transports SecEmb is compared with: dense sharing (`secagg`), compression (`int8`, `ternary`, `svd`, `colr`).

All of them download the whole item table, and in all of them every client's message has the same size.

| transport | upload of a client, m rows of w numbers and n dense ones | the server learns of a client |
|---|---|---|
| `secagg` | two vectors of m·w + n + 1 int64, m more for `row_mean` | nothing, if the two servers do not collude |
| `int8` | m·w + n bytes, a float32 scale for each tensor | its update up to rounding, and which rows it touched |
| `ternary` | (m·w + n)/2 bytes, a float32 scale for each tensor | a noisy copy, and most of the rows it touched |
| `svd` | (m + w)·r + n float32 | its r strongest directions, and which rows it touched |
| `colr` | m·r + n float32 | its update along r directions, and which rows it touched |

Each message has the header of `fedrec_unlearn.federation.transport` (28 bytes, the client's weight in it), except
`secagg`, whose two have that of `fedrec_unlearn.federation.secure_sum` (26 bytes) and the weight among the shared
numbers.

Rounding by chance (`int8`, `ternary`) depends on seed, round, client and place alone. In ring mode engines and blocks
therefore agree bit for bit as they do without; in float mode, where engines agree to float tolerance, a number on
the edge may be rounded to different sides by them, a whole step apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fedrec_unlearn.errors import ConfigError, TransportError
from fedrec_unlearn.federation.compression import Method, method_of
from fedrec_unlearn.federation.contribution import Contribution, quantise
from fedrec_unlearn.federation.exchange import BlockUpdate, Exchange, ExchangeTransport
from fedrec_unlearn.federation.local_data import LocalData
from fedrec_unlearn.federation.secure_sum import SEED_BYTES, SumServer, combine, message_bytes, share
from fedrec_unlearn.federation.state import ServerState, number_bytes

HEADER_BYTES = 28
"""Of a message in the clear, as in `transport`: version, kind, number format, round, three sizes, weight."""
RIVALS = ("secagg", "int8", "ternary", "svd", "colr")
"""Names `make_rival` knows."""
_MAX_CLIENTS = 1 << 20
"""Sums of so many fixed-point numbers fit an int64, see `contribution.quantise`."""


class _WholeTable(ABC):
    """A round in which every client downloads the whole table: fetching, and the sums so far."""

    carries_term: bool = False
    """See `Exchange.carries_term`: a term's updates are summed apart."""

    carries_term = False

    def __init__(self, server: ServerState, round_number: int, empty: Contribution) -> None:
        self.server, self.round_number, self.bits = server, round_number, empty.fraction_bits
        self.items = torch.zeros_like(empty.items)
        self.dense = {name: torch.zeros_like(value) for name, value in empty.dense.items()}
        self.row_weight = None if empty.row_weight is None else torch.zeros_like(empty.row_weight)
        self.weight = 0.0
        self.clients = 0

    def fetch(self, local: LocalData) -> tuple[LocalData, Tensor]:
        """All that is asked for, from the table each client has downloaded."""
        return local, self.server.items.index_select(0, torch.cat([local.pos_items, local.neg_items]))

    def download_bytes(self) -> int:
        """Bytes each client receives: table and dense parameters as they are."""
        n_dense, size = number_bytes(self.server.dense, self.server.items, self.bits)
        return HEADER_BYTES + (self.server.items.numel() + n_dense) * size

    @abstractmethod
    def upload_bytes(self) -> int:
        """Bytes each client sends."""

    def close(self, contribution: Contribution) -> None:
        """See `Exchange.close`."""
        contribution.items += self.items
        for name, value in self.dense.items():
            contribution.dense[name] += value
        if contribution.row_weight is not None and self.row_weight is not None:
            contribution.row_weight += self.row_weight
        contribution.weight += self.weight
        contribution.bytes_up += self.clients * self.upload_bytes()
        contribution.bytes_down += self.clients * self.download_bytes()


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


class _SecAggRound(_WholeTable):
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


@dataclass
class Lossy:
    """A transport that compresses each client's update and loses something; see `compression` for what.

    Updates travel in the clear. With `federation.item_aggregation = row_mean` a client's weight counts for the rows
    that are not zero when they arrive, since nothing else tells the server which ones it touched.

    Args:
        name: `int8`, `ternary`, `svd` or `colr`.
        rank: directions `svd` and `colr` keep; 0 takes `a sixteenth of the row width`.
        seed: the run's seed.
    """

    name: str
    rank: int
    seed: int

    def check(self, server: ServerState, empty: Contribution, n_clients: int) -> None:
        """See `ExchangeTransport.check`.

        Raises:
            ConfigError: a rank that rows of this width do not have.
        """
        method_of(self.name, server.items.shape[1], self.rank, self.seed, 0)

    def open(self, server: ServerState, round_number: int, empty: Contribution, n_clients: int) -> Exchange:
        """See `ExchangeTransport.open`; raises as `check` does."""
        width = server.items.shape[1]
        method = method_of(self.name, width, self.rank, self.seed, round_number)
        return _LossyRound(method, self.name, server, round_number, empty)


class _LossyRound(_WholeTable):
    """One round of `Lossy`."""

    def __init__(self, method: Method, name: str, server: ServerState, round_number: int, empty: Contribution) -> None:
        super().__init__(server, round_number, empty)
        self.method, self.name = method, name

    def download_bytes(self) -> int:
        """Bytes each client receives."""
        return super().download_bytes() + self.method.download_bytes

    def upload_bytes(self) -> int:
        """Bytes each client sends."""
        sizes = [value.numel() for value in self.dense.values()]
        return HEADER_BYTES + self.method.upload_bytes(len(self.items), self.items.shape[1], sizes)

    def send(self, update: BlockUpdate) -> None:
        """See `Exchange.send`.

        Raises:
            TransportError: an update is not finite.
        """
        width = self.items.shape[1]
        place = update.users.index_select(0, update.owner) * len(self.items) + update.item_ids
        rows = self._read(update.item_rows)
        received = self._write(self.method.rows(rows, update.ptr, _counters(place, width)))
        self.items.index_add_(0, update.item_ids, received)
        if self.row_weight is not None:
            weights = update.weights.index_select(0, update.owner).to(self.row_weight)
            self.row_weight.index_add_(0, update.item_ids, weights * received.any(1))
        for tensor, (name, total) in enumerate(self.dense.items(), start=1):
            values = self._read(update.dense[name]).reshape(len(update.users), -1)
            sent = self.method.dense(values, tensor, _counters(update.users, values.shape[1]))
            total += self._write(sent).sum(0).view(total.shape)
        self.weight += float(update.weights.sum())
        self.clients += len(update.users)

    def _read(self, values: Tensor) -> Tensor:
        """A client's numbers as floats, finite."""
        if self.bits is not None:
            return values.to(torch.float64) * 2.0**-self.bits
        if not bool(torch.isfinite(values).all()):
            raise TransportError(
                f"transport {self.name}: a client update is not finite; training has diverged, lower "
                "federation.user_learning_rate or federation.client_learning_rate"
            )
        return values

    def _write(self, values: Tensor) -> Tensor:
        """What the server adds: floats, or fixed point in ring mode."""
        return values if self.bits is None else quantise(values, self.bits)


def _counters(place: Tensor, width: int) -> Tensor:
    """A number for each place of rows (N,) of `width` numbers, int64 (N, width)."""
    return place.unsqueeze(1) * width + torch.arange(width, device=place.device)


def make_rival(name: str, n_items: int, *, rank: int = 0, seed: int = 0, messages: bool = False) -> ExchangeTransport:
    """The transport a configuration names.

    Args:
        name: one of `RIVALS`.
        n_items: rows of the item table, as `make_transport` takes it; the sizes of a round follow from its table.
        rank: directions `svd` and `colr` keep; 0 takes a sixteenth of a row's width.
        seed: the run's seed, for rounding by chance and common directions.
        messages: whether `secagg` makes real shares (the reference engine) or adds the numbers they stand for.

    Raises:
        ConfigError: another name, or a negative rank.
    """
    if name not in RIVALS:
        raise ConfigError(f"federation.transport: {name} is not one of {', '.join(RIVALS)}")
    if rank < 0:
        raise ConfigError(
            f"federation.compression_rank: must be 1 or more, or 0 for a sixteenth of the row width, not {rank}"
        )
    return SecAgg(messages) if name == "secagg" else Lossy(name, rank, seed)
