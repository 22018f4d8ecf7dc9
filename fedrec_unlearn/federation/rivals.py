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

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrec_unlearn.errors import ConfigError, TransportError
from fedrec_unlearn.federation.compression_methods import Method, method_of
from fedrec_unlearn.federation.contribution import Contribution, quantise
from fedrec_unlearn.federation.exchange import BlockUpdate, Exchange, ExchangeTransport
from fedrec_unlearn.federation.secagg import SecAgg
from fedrec_unlearn.federation.state import ServerState
from fedrec_unlearn.federation.whole_table import HEADER_BYTES, WholeTable

RIVALS = ("secagg", "int8", "ternary", "svd", "colr")
"""Names `make_rival` knows."""


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


class _LossyRound(WholeTable):
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
