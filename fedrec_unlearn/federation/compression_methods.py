"""Compression by the name of a transport: what a method sends in a round, and in how many bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.federation.compression import (
    FLOAT_BYTES,
    SEED_BYTES,
    TERNARY_BITS,
    as_float32,
    colr,
    colr_basis,
    int8,
    rounding_draws,
    svd,
    ternary,
)
from fedrec_unlearn.seeds import Purpose, stream_key


class Method(Protocol):
    """A way to compress a client's update, for one round."""

    @property
    def download_bytes(self) -> int:
        """Bytes a client receives beside the parameters."""

    def upload_bytes(self, n_items: int, width: int, dense: Sequence[int]) -> int:
        """Bytes of each client's update, without a header.

        Args:
            n_items: m.
            width: w.
            dense: numbers of each dense parameter.
        """

    def rows(self, rows: Tensor, ptr: Tensor, counters: Tensor) -> Tensor:
        """Item rows as the server reads them.

        Args:
            rows: (E, w), finite.
            ptr: int64 (C + 1,).
            counters: int64 (E, w), distinct over all clients of a round.
        """

    def dense(self, values: Tensor, tensor: int, counters: Tensor) -> Tensor:
        """A dense parameter's updates as the server reads them.

        Args:
            values: (C, n), finite.
            tensor: which parameter, counted from 1.
            counters: int64 (C, n), distinct over all clients of a round.
        """


@dataclass(frozen=True)
class Rounding:
    """`int8` and `ternary`: every tensor is rounded by chance, with a scale of its own.

    Args:
        name: `int8` or `ternary`.
        seed, round_number: coordinates of the draws.
    """

    name: str
    seed: int
    round_number: int
    download_bytes: int = 0

    def upload_bytes(self, n_items: int, width: int, dense: Sequence[int]) -> int:
        """See `Method.upload_bytes`: the numbers, packed, and a float32 scale for each tensor."""
        bits = TERNARY_BITS if self.name == "ternary" else 8
        return ((n_items * width + sum(dense)) * bits + 7) // 8 + (1 + len(dense)) * FLOAT_BYTES

    def rows(self, rows: Tensor, ptr: Tensor, counters: Tensor) -> Tensor:
        """See `Method.rows`."""
        return self._round(rows, ptr, 0, counters)

    def dense(self, values: Tensor, tensor: int, counters: Tensor) -> Tensor:
        """See `Method.dense`."""
        return self._round(values, torch.arange(len(values) + 1, device=values.device), tensor, counters)

    def _round(self, rows: Tensor, ptr: Tensor, tensor: int, counters: Tensor) -> Tensor:
        draws = rounding_draws(stream_key(self.seed, Purpose.COMPRESSION, self.round_number, tensor), counters)
        return ternary(rows, ptr, draws) if self.name == "ternary" else int8(rows, ptr, draws)


@dataclass(frozen=True)
class LowRank:
    """`svd`, or `colr` where there is a common basis; dense parameters travel as float32.

    Args:
        rank: r.
        basis: from `colr_basis`, or None.
    """

    rank: int
    basis: Tensor | None = None

    @property
    def download_bytes(self) -> int:
        """See `Method.download_bytes`: the seed of the common directions."""
        return 0 if self.basis is None else SEED_BYTES

    def upload_bytes(self, n_items: int, width: int, dense: Sequence[int]) -> int:
        """See `Method.upload_bytes`: a factor (m, r), `svd`'s own directions (r, w), and the dense parameters."""
        directions = width * self.rank if self.basis is None else 0
        return (n_items * self.rank + directions + sum(dense)) * FLOAT_BYTES

    def rows(self, rows: Tensor, ptr: Tensor, counters: Tensor) -> Tensor:
        """See `Method.rows`."""
        return svd(rows, ptr, self.rank) if self.basis is None else colr(rows, self.basis)

    def dense(self, values: Tensor, tensor: int, counters: Tensor) -> Tensor:
        """See `Method.dense`."""
        return as_float32(values).to(values.dtype)


def method_of(name: str, width: int, rank: int, seed: int, round_number: int) -> Method:
    """A method by its name, for a round.

    Args:
        name: `int8`, `ternary`, `svd` or `colr`.
        width: numbers of an item row, w.
        rank: directions `svd` and `colr` keep; 0 takes a sixteenth of the width, at least one.
        seed: the run's seed.
        round_number: counted from 0.

    Raises:
        ConfigError: a rank that rows of this width do not have.
    """
    if name in ("int8", "ternary"):
        return Rounding(name, seed, round_number)
    rank = rank or max(1, width // 16)
    if not 1 <= rank <= width:
        raise ConfigError(
            f"federation.compression_rank: item rows of {width} numbers have a rank of 1 .. {width}, not {rank} "
            f"(transport {name})"
        )
    return LowRank(rank, None if name == "svd" else colr_basis(seed, round_number, rank, width))
