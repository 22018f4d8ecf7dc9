"""What everybody in a round agrees on beforehand: sizes, encoding, number format. All of it is public."""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.noise import LARGEST_SIGMA, SMALLEST_SIGMA

IntArray = NDArray[np.int64]
Encoding = Literal["binned", "paper"]

VERSION = 1
"""Of the protocol and of every message."""
ID_BYTES = 16
"""Length of a run's and of a client's identifier, and of a nonce."""
DENSE_BITS = 64
"""Ring of the dense vector."""
MAX_CATALOGUE = 1 << 21
"""Items at most: below it a sum of 32-bit numbers over a whole tree is exact in float64."""
BLOCK_BYTES = 16
"""An AES block: a node's label."""

_FIXED = struct.Struct("<BBBBIIIIIIIIqqdQ")
_ENCODINGS: tuple[Encoding, ...] = ("binned", "paper")
_SLACK = 1.1
"""Bins per item held at least; 4 choices fill up to 0.977 of many bins (Dietzfelbinger and others 2010)."""
_SPARE = 12
"""Bins beyond that, for a client with few items."""


@dataclass(frozen=True)
class Parameters:
    """Public parameters of a round; equal on both servers and all clients.

    Raises:
        TransportError: values that contradict each other or the number format.
    """

    n_items: int
    """Items in the catalogue (m)."""
    width: int
    """Numbers per row of the table, what a retrieval returns (d)."""
    payload: int
    """Numbers per item in an update: `width`, or one more where row weights travel."""
    dense: int
    """Numbers in the dense vector of an update; 0 for none."""
    max_items: int
    """Items a client may hold in a round (m'); everybody sends as much as if it held that many."""
    limit: int
    """Largest absolute value of a row's number that is sent, in units of the fixed point; larger ones are saturated."""
    max_clients: int
    """Clients in a sum at most; with `limit` it rules an overflow out."""
    min_clients: int = 2
    """Clients in a sum at least."""
    encoding: Encoding = "binned"
    """`binned`: one small tree per bin of a batch code; `paper`: one tree over the catalogue per item held."""
    ring_bits: Literal[32, 64] = 32
    """Rows are numbers modulo 2 to this power."""
    hashes: int = 4
    """Bins an item may lie in (k)."""
    bins: int = 0
    """Bins of the batch code (B), a multiple of `hashes`; 0: chosen for a small upload."""
    code_seed: int = 0
    """Seed of the public permutations; independent of any client's items."""
    whole_keys: bool = False
    """Whether correction words go to both servers; otherwise server 0 forwards them."""
    noise: float = 0.0
    """Standard deviation of the discrete Gaussian each server adds to every number, in units of the fixed point."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("n_items", 1, MAX_CATALOGUE - 1),
            ("width", 1, 1 << 16),
            ("payload", 1, 1 << 16),
            ("dense", 0, (1 << 31) - 1),
            ("max_items", 1, MAX_CATALOGUE - 1),
            ("max_clients", 1, (1 << 20) - 1),
            ("min_clients", 1, self.max_clients),
            ("limit", 1, (1 << 62) - 1),
            ("hashes", 1, 16),
            ("bins", 0, MAX_CATALOGUE),
            ("code_seed", 0, (1 << 63) - 1),
        ):
            _need(low <= getattr(self, name) <= high, f"{name} must lie in {low} .. {high}, not {getattr(self, name)}")
        _need(self.encoding in _ENCODINGS, f"encoding must be one of {', '.join(_ENCODINGS)}, not {self.encoding!r}")
        _need(self.ring_bits in (32, 64), f"ring_bits must be 32 or 64, not {self.ring_bits}")
        _need(
            SMALLEST_SIGMA <= self.noise <= LARGEST_SIGMA or struct.pack("<d", self.noise) == bytes(8),  # no -0.0
            f"noise must be 0 or lie in {SMALLEST_SIGMA} .. 2**40, not {self.noise}; change the clip, the noise "
            "multiplier or the fraction bits",
        )
        spread = 16 * math.ceil(self.noise)  # both servers' noise together, but for one number in 10**28
        _need(
            self.max_clients * self.limit + spread < 1 << (self.ring_bits - 1),
            f"{self.max_clients} clients of numbers up to {self.limit} can leave a ring of {self.ring_bits} bits; "
            "lower the clip, the clients per round or the fraction bits, or use 64 bits",
        )
        if not self.bins:
            object.__setattr__(self, "bins", self.max_items if self.encoding == "paper" else self._choose_bins())
        if self.encoding == "paper":
            _need(self.bins == self.max_items, "the paper's encoding has a tree per item a client may hold")
        elif self.bins >= self.n_items:  # every item has a bin of its own
            object.__setattr__(self, "bins", self.n_items)
            object.__setattr__(self, "hashes", 1)
        _need(
            self.encoding == "paper" or self.bins % self.hashes == 0,
            f"bins ({self.bins}) must be a multiple of hashes ({self.hashes})",
        )

    def _choose_bins(self) -> int:
        """The number of bins, a little above 1.1 per item, that makes the smallest upload."""
        k = self.hashes
        least = math.ceil(max(_SLACK * self.max_items, self.max_items + _SPARE) / k) * k
        most = math.ceil(1.05 * least / k) * k
        candidates = range(least, most + 1, k)
        return min(candidates, key=lambda bins: replace(self, bins=bins).upload_of_rows)

    @property
    def trees(self) -> int:
        """Trees a client sends."""
        return self.bins

    @property
    def slots(self) -> int:
        """Leaves of a tree that stand for an item."""
        if self.encoding == "paper":
            return self.n_items
        return -(-self.n_items * self.hashes // self.bins)

    @property
    def depth(self) -> int:
        """Levels of a tree below its root."""
        return max(self.slots - 1, 0).bit_length()

    @property
    def word(self) -> np.dtype[np.unsignedinteger]:
        """Type of a row's number on the wire and in accumulators."""
        return np.dtype(f"<u{self.ring_bits // 8}")

    @property
    def dense_limit(self) -> int:
        """Largest absolute value of a dense number that is sent; with `max_clients` it rules an overflow out."""
        return ((1 << (DENSE_BITS - 1)) - 1 - 16 * math.ceil(self.noise)) // self.max_clients

    @property
    def passes(self) -> int:
        """Blocks of ring elements per leaf."""
        return -(-self.payload * self.word.itemsize // BLOCK_BYTES)

    @property
    def correction_bytes(self) -> int:
        """Bytes of the correction words of all trees: a block and one bit for each level."""
        return self.trees * self.depth * BLOCK_BYTES + -(-self.trees * self.depth // 8)

    @property
    def final_bytes(self) -> int:
        """Bytes of the final correction words of all trees."""
        return self.trees * self.payload * self.word.itemsize

    @property
    def response_bytes(self) -> int:
        """Bytes of one server's shares of the rows, before they are sealed."""
        return self.trees * self.width * self.word.itemsize

    @property
    def upload_of_rows(self) -> int:
        """Correction words of both phases together, sent once."""
        return self.correction_bytes + self.final_bytes

    def to_bytes(self) -> bytes:
        """Fixed layout, little-endian."""
        return _FIXED.pack(
            VERSION,
            _ENCODINGS.index(self.encoding),
            self.ring_bits,
            int(self.whole_keys),
            self.n_items,
            self.width,
            self.payload,
            self.dense,
            self.max_items,
            self.max_clients,
            self.min_clients,
            self.bins,
            self.limit,
            self.hashes,
            self.noise,
            self.code_seed,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Parameters:
        """The parameters back.

        Raises:
            TransportError: wrong length or version, or values that do not go together.
        """
        if len(data) != _FIXED.size:
            raise TransportError(f"secemb: parameters have {_FIXED.size} bytes, not {len(data)}")
        version, encoding, ring_bits, whole, *sizes, limit, hashes, noise, code_seed = _FIXED.unpack(data)
        _need(version == VERSION, f"parameters are of version {version}; this is version {VERSION}")
        _need(encoding < len(_ENCODINGS) and whole < 2, "parameters name an encoding or key form that does not exist")
        _need(sizes[-1] > 0, "parameters leave the number of bins open")  # choosing it takes long
        names = ("n_items", "width", "payload", "dense", "max_items", "max_clients", "min_clients", "bins")
        made = cls(
            **dict(zip(names, sizes, strict=True)),
            limit=limit,
            hashes=hashes,
            noise=noise,
            code_seed=code_seed,
            encoding=_ENCODINGS[encoding],
            ring_bits=ring_bits,
            whole_keys=bool(whole),
        )
        _need(made.to_bytes() == data, "parameters are not in the one form there is for them")
        return made


@dataclass(frozen=True)
class Round:
    """One round of one run: everything a message is bound to."""

    parameters: Parameters
    run: bytes
    """16 bytes that tell runs apart."""
    number: int
    """0 .. 2**32 - 1."""
    table: bytes
    """SHA-256 of the table both servers hold."""

    def __post_init__(self) -> None:
        _need(len(self.run) == ID_BYTES, f"a run's identifier has {ID_BYTES} bytes, not {len(self.run)}")
        _need(len(self.table) == hashlib.sha256().digest_size, "a table's hash has 32 bytes")
        _need(0 <= self.number < 1 << 32, f"a round's number lies in 0 .. 2**32 - 1, not at {self.number}")

    @classmethod
    def of(cls, parameters: Parameters, run: bytes, number: int, table: IntArray) -> Round:
        """The round with this table, int64 (n_items, width) fixed point."""
        return cls(parameters, run, number, table_hash(table))

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that stand for all of it; in every message's header."""
        return hashlib.sha256(b"fedrec secemb round\0" + self.to_bytes()).digest()

    def to_bytes(self) -> bytes:
        """Fixed layout: run, number, table hash, parameters."""
        return self.run + struct.pack("<I", self.number) + self.table + self.parameters.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Round:
        """The round back.

        Raises:
            TransportError: wrong length or contents.
        """
        size = ID_BYTES + 4 + 32 + _FIXED.size
        if len(data) != size:
            raise TransportError(f"secemb: a round's description has {size} bytes, not {len(data)}")
        number = struct.unpack_from("<I", data, ID_BYTES)[0]
        start = ID_BYTES + 4
        return cls(Parameters.from_bytes(data[start + 32 :]), data[:ID_BYTES], number, data[start : start + 32])


def table_hash(table: IntArray) -> bytes:
    """SHA-256 of a table's shape and little-endian int64 contents, 32 bytes.

    Raises:
        TransportError: not an int64 matrix.
    """
    if table.dtype != np.int64 or table.ndim != 2:
        raise TransportError(f"secemb: a table is an int64 matrix, not {table.dtype} of shape {table.shape}")
    shape = struct.pack("<QQ", *table.shape)
    return hashlib.sha256(shape + np.ascontiguousarray(table, dtype="<i8").tobytes()).digest()


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise TransportError(f"secemb: {message}")
