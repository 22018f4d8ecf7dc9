"""Additive shares of a dense vector: a mask for server 0, which it makes from its seed, the rest for server 1.

v = r + (v − r) mod 2^64 with r the ChaCha20 stream of a key that only the client and server 0 can derive. So a
vector of n numbers costs a client 8n bytes instead of 16n, and server 0's half costs nothing beyond the seed it has.

Source: Corrigan-Gibbs & Boneh 2017 (Prio), section 5.1, for shares compressed to a seed; RFC 8439 (ChaCha20).
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from fedrec_unlearn.secemb.prg import derive

_WORD = np.dtype("<u8")


def mask(digest: bytes, client: bytes, nonce: bytes, seed: bytes, n: int) -> NDArray[np.uint64]:
    """Server 0's share, uint64 (n,).

    Args:
        digest: of the round.
        client, nonce: 16 bytes each.
        seed: server 0's secret of this client and round.
        n: numbers.
    """
    key = derive("masks", digest, client, nonce, secret=seed)
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(n * _WORD.itemsize))
    return np.frombuffer(stream, dtype=_WORD).astype(np.uint64)


def rest(values: NDArray[np.int64], masked: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Server 1's share, uint64 (n,): values less the mask."""
    share: NDArray[np.uint64] = values.view(np.uint64) - masked
    return share
