"""Sums over clients that no single server can take apart: additive shares of int64 vectors for two servers.

A client splits its vector v into v = r + (v − r) mod 2^64 with r pseudo-random. Server A gets the 32-byte seed r is
expanded from, server B gets v − r. Each server adds what it receives, and the two sums add up to Σ v exactly,
as long as the true sum fits an int64 (`contribution.quantise` leaves room for a million clients).

**Guarantee.** A server that follows the protocol learns nothing about a client's vector beyond its length: A sees a
random seed, B sees the vector plus a one-time pad, uniform on Z_2^64 per number up to the stream cipher
(ChaCha20 with a fresh 256-bit key for every vector). What both learn in the end is the sum and who is in it. This
holds against honest-but-curious servers that do not collude, over channels that are encrypted and authenticated:
who reads both messages of a client can add them too.

| case | what happens |
|---|---|
| one client in the sum | the sum is that client's vector; nothing is hidden from whoever combines |
| a share is lost or refused on one side | `combine` refuses and names the client; no sum comes out |
| a share is sent twice | refused by its nonce |
| a message of another round, length or server | refused by its header |
| a client joins after a server gave its partial sum | refused: two sums that differ by one client reveal it |
| both servers collude | every client's vector is known |
| a server alters its partial sum | the sum is wrong, and nobody can tell |
| a client sends nonsense, or halves that do not fit together | the sum is wrong, and nobody can tell |
| sums of several rounds with nearly the same clients | differences tell about few clients; noise is another step |

Source: additive secret sharing over a ring with one share compressed to a seed, as in Prio (Corrigan-Gibbs & Boneh
2017), without its proofs of validity.
"""

from __future__ import annotations

import secrets
import struct
from typing import Literal, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray
from torch import Tensor

from fedrec_unlearn.errors import TransportError

IntArray = NDArray[np.int64]
Party = Literal["a", "b"]

SEED_BYTES = 32
"""Length of a seed: a ChaCha20 key."""
NONCE_BYTES = 16
"""Length of the number that pairs the two messages of one vector; drawn at random, it does not name the client."""

_HEADER = struct.Struct(f"<BBII{NONCE_BYTES}s")
"""version, kind, round, numbers in the vector, nonce."""
_VERSION = 1
_KINDS: dict[Party, int] = {"a": 1, "b": 2}
_NUMBER = np.dtype("<u8")
_LIMIT = 1 << 32


class Partial(NamedTuple):
    """What one server knows at the end of a round."""

    party: Party
    round_number: int
    accepted: frozenset[bytes]
    """Nonces of the vectors in the sum."""
    total: IntArray
    """Shape (n,): the sum of this server's shares mod 2^64, read as int64; uniform on its own."""


def message_bytes(n: int) -> int:
    """Bytes a client sends for a vector of n numbers, to both servers together."""
    return 2 * _HEADER.size + SEED_BYTES + n * _NUMBER.itemsize


def expand(seed: bytes, n: int) -> NDArray[np.uint64]:
    """The n pseudo-random 64-bit words a seed stands for: ChaCha20's keystream from block 0, little-endian.

    Args:
        seed: 32 bytes, used for one vector only, so that the cipher's own nonce can be constant.
        n: how many words.

    Source: Bernstein 2008 (ChaCha20).
    """
    cipher = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(n * _NUMBER.itemsize)), dtype=_NUMBER).astype(np.uint64)


def share(values: IntArray | Tensor, round_number: int) -> tuple[bytes, bytes]:
    """Split a client's vector into one message for each server.

    Seed and nonce come from the operating system and not from `fedrec_unlearn.seeds`, because whoever can predict
    them reads the vector. Results do not depend on them: the shares' sum is exact.

    Args:
        values: int64, shape (n,), for example from `contribution.quantise`.
        round_number: the round it belongs to.

    Returns:
        Messages for server A (header and seed) and server B (header and 8n bytes).

    Raises:
        TransportError: not a vector of int64, or too long for the header.
    """
    vector = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if vector.dtype != np.int64 or vector.ndim != 1:
        raise TransportError(
            f"secure sum: a client shares a vector of int64, not {vector.dtype} of shape {vector.shape}; "
            "round floats with quantise first, and flatten"
        )
    _check_size(len(vector), round_number)
    seed, nonce = secrets.token_bytes(SEED_BYTES), secrets.token_bytes(NONCE_BYTES)
    rest = vector.view(np.uint64) - expand(seed, len(vector))
    headers = {party: _HEADER.pack(_VERSION, kind, round_number, len(vector), nonce) for party, kind in _KINDS.items()}
    return headers["a"] + seed, headers["b"] + rest.astype(_NUMBER, copy=False).tobytes()


class SumServer:
    """One of the two servers during one round: adds shares, then gives its partial sum once.

    Args:
        party: "a" takes seeds, "b" takes vectors.
        n: numbers in a client's vector.
        round_number: the round messages must belong to.

    Raises:
        TransportError: a length or round the header cannot carry.
    """

    def __init__(self, party: Party, n: int, round_number: int) -> None:
        _check_size(n, round_number)
        self.party: Party = party
        self.n, self.round_number = n, round_number
        self._accepted: set[bytes] = set()
        self._total = np.zeros(n, dtype=np.uint64)
        self._closed = False

    @property
    def accepted(self) -> frozenset[bytes]:
        """Nonces of the vectors received so far; the servers compare them before they call `partial`."""
        return frozenset(self._accepted)

    def receive(self, message: bytes) -> None:
        """Add one client's share; a message that is refused changes nothing.

        Raises:
            TransportError: wrong version, server, round or length, a nonce seen before, or `partial` was called.
        """
        if self._closed:
            raise TransportError(
                f"secure sum: server {self.party} has given its partial sum of round {self.round_number} and takes no "
                "further share: two sums that differ by one client would reveal that client; send it in the next round"
            )
        if len(message) < _HEADER.size:
            raise TransportError(
                f"secure sum: message of {len(message)} bytes is shorter than its header ({_HEADER.size})"
            )
        version, kind, sent_round, n, nonce = _HEADER.unpack_from(message)
        if version != _VERSION or kind != _KINDS[self.party]:
            raise TransportError(
                f"secure sum: message has version {version} and kind {kind}; "
                f"server {self.party} expects {_VERSION} and {_KINDS[self.party]}"
            )
        if sent_round != self.round_number:
            raise TransportError(f"secure sum: message belongs to round {sent_round}, not {self.round_number}")
        expected = _HEADER.size + (SEED_BYTES if self.party == "a" else self.n * _NUMBER.itemsize)
        if n != self.n or len(message) != expected:
            raise TransportError(
                f"secure sum: message of {len(message)} bytes for {n} numbers; "
                f"server {self.party} expects {expected} bytes for {self.n}"
            )
        if nonce in self._accepted:
            raise TransportError(f"secure sum: the share {nonce.hex()} was received before; it counts once")
        body = message[_HEADER.size :]
        self._total += expand(body, self.n) if self.party == "a" else np.frombuffer(body, dtype=_NUMBER)
        self._accepted.add(nonce)

    def partial(self) -> Partial:
        """This server's part of the sum; from now on no further share is taken."""
        self._closed = True
        return Partial(self.party, self.round_number, self.accepted, self._total.view(np.int64).copy())


def combine(first: Partial, second: Partial) -> IntArray:
    """The exact sum of the clients' vectors, int64 (n,), from both servers' parts in either order.

    Raises:
        TransportError: the parts are not A's and B's of one round, or hold different clients.
    """
    if {first.party, second.party} != {"a", "b"}:
        raise TransportError(f"secure sum: both partial sums come from server {first.party}; it takes A's and B's")
    if first.round_number != second.round_number:
        raise TransportError(
            f"secure sum: partial sums of rounds {first.round_number} and {second.round_number} do not add up"
        )
    if first.accepted != second.accepted:
        a, b = (first, second) if first.party == "a" else (second, first)
        missing = [
            f"{name} without {', '.join(nonce.hex() for nonce in sorted(lacks))}"
            for name, lacks in (("server a", b.accepted - a.accepted), ("server b", a.accepted - b.accepted))
            if lacks
        ]
        raise TransportError(
            f"secure sum: the servers hold different clients ({'; '.join(missing)}), so their sums do not add up; "
            "compare `accepted` before `partial` and have those clients send the missing message, or repeat the round"
        )
    if first.total.shape != second.total.shape:
        raise TransportError(
            f"secure sum: partial sums of {len(first.total)} and {len(second.total)} numbers do not add up"
        )
    total: IntArray = (first.total.view(np.uint64) + second.total.view(np.uint64)).view(np.int64)
    return total


def _check_size(n: int, round_number: int) -> None:
    if not 0 < n < _LIMIT:
        raise TransportError(f"secure sum: a vector has 1 to {_LIMIT - 1} numbers, not {n}")
    if not 0 <= round_number < _LIMIT:
        raise TransportError(f"secure sum: a round lies in 0 .. {_LIMIT - 1}, not {round_number}")
