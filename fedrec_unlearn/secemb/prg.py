"""The pseudo-random functions of the trees: a fixed-key AES hash, one key for each purpose, client and round.

H_k(x) = AES_k(σ(x)) ⊕ σ(x) with σ(hi, lo) = (hi ⊕ lo, hi), hi the upper half: circular correlation robust in the
ideal-cipher model. Source: Guo, Katz, Wang, Yu 2020 ("Efficient and secure multiparty computation from fixed-key
block ciphers"). Labels are 128-bit blocks, held as two uint64 planes (lo, hi); the least significant
bit of `lo` is the control bit.

Keys come from SHA-256 over the round's digest (protocol version, parameters, run, round, table), the client, its
nonce and the purpose. So no two clients or rounds share one, and what an attacker computes in advance is of no use.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from fedrec_unlearn.secemb.parameters import BLOCK_BYTES

Plane = NDArray[np.uint64]
Purpose = Literal["left", "right", "convert", "roots", "masks"]

_KEY_BYTES = 16
_ONE = np.uint64(1)


def derive(
    purpose: Purpose, digest: bytes, client: bytes, nonce: bytes, *, number: int = 0, secret: bytes = b""
) -> bytes:
    """32 bytes for one purpose of one client in one round.

    Args:
        purpose: what they are for.
        number: which of several keys for that purpose, 0 .. 2^32 - 1.
        digest: of the round, 32 bytes.
        client, nonce: 16 bytes each.
        secret: mixed in where the result has to be secret; empty for the public keys of the hash.
    """
    bound = number.to_bytes(4, "little") + digest + client + nonce + secret
    return hashlib.sha256(b"fedrec secemb " + purpose.encode() + b"\0" + bound).digest()


class Blocks:
    """Working memory for hashing up to `capacity` blocks at a time; for one thread.

    Args:
        capacity: blocks.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.input = np.empty((capacity, 2), dtype=np.uint64)
        # a block cipher's update_into asks for a block less a byte beyond what it writes
        self._output = np.empty(capacity * BLOCK_BYTES + BLOCK_BYTES - 1, dtype=np.uint8)

    def load(self, lo: Plane, hi: Plane) -> None:
        """Put σ of n labels (any shape, the same for both planes) into the input."""
        n = lo.size
        lower, upper = self.input[:n, 0].reshape(lo.shape), self.input[:n, 1].reshape(lo.shape)
        np.copyto(lower, hi)
        np.bitwise_xor(hi, lo, out=upper)


class Hash:
    """H for one key; for one thread.

    Args:
        key: 16 bytes or more, of which the first 16 are used.
    """

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(algorithms.AES(key[:_KEY_BYTES]), modes.ECB()).encryptor()

    def __call__(self, blocks: Blocks, n: int) -> NDArray[np.uint64]:
        """Hash the first n blocks of the input.

        Returns:
            uint64 (n, 2), lower and upper halves; a view that the next call overwrites.
        """
        source = blocks.input[:n]
        size = n * BLOCK_BYTES
        self._encryptor.update_into(source.data.cast("B"), blocks._output.data[: size + BLOCK_BYTES - 1])
        hashed = blocks._output[:size].view(np.uint64)
        np.bitwise_xor(hashed, source.reshape(-1), out=hashed)
        return hashed.reshape(n, 2)


class Hashes:
    """The hashes of one client in one round.

    Args:
        digest: of the round.
        client, nonce: 16 bytes each.
        passes: keys to convert a leaf with, one for each block of its ring elements.
    """

    def __init__(self, digest: bytes, client: bytes, nonce: bytes, passes: int) -> None:
        self.left = Hash(derive("left", digest, client, nonce))
        self.right = Hash(derive("right", digest, client, nonce))
        self.roots = Hash(derive("roots", digest, client, nonce))
        self._bound, self._passes = (digest, client, nonce), passes

    @cached_property
    def convert(self) -> list[Hash]:
        """A hash for each block of a leaf's ring elements; a retrieval needs none of them."""
        return [Hash(derive("convert", *self._bound, number=number)) for number in range(self._passes)]

    def root_labels(self, seed: bytes, trees: int, party: int) -> tuple[Plane, Plane]:
        """Root labels of a party's trees from its one seed, uint64 (trees,) each; the control bit is the party.

        Args:
            seed: 16 bytes, the party's secret.
            trees: how many.
            party: 0 or 1.
        """
        low, high = np.frombuffer(seed, dtype="<u8")
        blocks = Blocks(trees)
        blocks.load(np.arange(trees, dtype=np.uint64) ^ low, np.full(trees, high))
        hashed = self.roots(blocks, trees)
        return (hashed[:, 0] & ~_ONE) | np.uint64(party), hashed[:, 1].copy()
