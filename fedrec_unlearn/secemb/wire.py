"""Messages byte by byte: one header for all, contents of a length that follows from the parameters alone.

Little-endian, never pickle. Every message starts with 72 bytes: version, kind, receiving or answering server, 0,
round number, the round's digest, the client's identifier and its nonce. The header is authenticated with whatever is
sealed behind it, so a message cannot be moved to another round, client, server or kind.

| kind | to | behind the header |
|---|---|---|
| REQUEST | server 0 | ephemeral key, sealed: seed, correction words |
| REQUEST | server 1 | ephemeral key, sealed: seed, SHA-256 of the correction words |
| UPDATE | server 0 | sealed: final correction words |
| UPDATE | server 1 | sealed: SHA-256 of the final correction words, dense share |
| FORWARD_* | server 1 from server 0 | the correction words |
| RESPONSE | client | sealed: shares of its rows |
| PARTIAL | whoever opens the sum | number of clients, their identifiers in order, rows, dense vector |

With `whole_keys` server 1 gets the correction words from the client, in place of their hash.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.dpf import Corrections
from fedrec_unlearn.secemb.parameters import BLOCK_BYTES, ID_BYTES, VERSION, Parameters, Round

SEED_BYTES = 16
HASH_BYTES = 32
_HEADER = struct.Struct(f"<BBBBI32s{ID_BYTES}s{ID_BYTES}s")
HEADER_BYTES = _HEADER.size


class Kind(IntEnum):
    """What a message is."""

    REQUEST = 1
    UPDATE = 2
    FORWARD_REQUEST = 3
    FORWARD_UPDATE = 4
    RESPONSE = 5
    PARTIAL = 6


class Replayed(TransportError):  # noqa: N818
    """A message that was accepted before came again, byte for byte; it is not counted again."""


class Header(NamedTuple):
    """The first 72 bytes of a message."""

    kind: Kind
    party: int
    """Server the message is for, or, of a RESPONSE and a PARTIAL, from."""
    number: int
    digest: bytes
    """Of the round, 32 bytes."""
    client: bytes
    """16 bytes; zeros in a PARTIAL."""
    nonce: bytes
    """16 bytes; zeros in a PARTIAL."""

    def to_bytes(self) -> bytes:
        """72 bytes."""
        return _HEADER.pack(VERSION, self.kind, self.party, 0, self.number, self.digest, self.client, self.nonce)


def header_of(message: bytes) -> Header:
    """The header of a message.

    Raises:
        TransportError: too short, another version, a kind or server that does not exist.
    """
    if len(message) < HEADER_BYTES:
        raise TransportError(f"secemb: message of {len(message)} bytes is shorter than its header ({HEADER_BYTES})")
    version, kind, party, zero, *rest = _HEADER.unpack_from(message)
    if version != VERSION:
        raise TransportError(f"secemb: message is of version {version}; this is version {VERSION}")
    if kind not in Kind._value2member_map_ or party > 1 or zero:
        raise TransportError(f"secemb: no message has kind {kind}, server {party} and filler {zero}")
    return Header(Kind(kind), party, *rest)


def check_round(header: Header, round_: Round, party: int) -> None:
    """See that a message is for this round and server.

    Raises:
        TransportError: it is not.
    """
    if header.party != party:
        raise TransportError(f"secemb: message is for server {header.party}; this is server {party}")
    if header.number != round_.number:
        raise TransportError(f"secemb: message belongs to round {header.number}, not {round_.number}")
    if header.digest != round_.digest:
        raise TransportError(
            f"secemb: message belongs to another round {header.number}: the run, the table or the parameters differ; "
            "fetch the round's description again"
        )


def content_bytes(parameters: Parameters, kind: Kind, party: int) -> int:
    """Bytes of a message's contents in the clear, without header, ephemeral key and tag.

    Args:
        parameters: of the round.
        kind: anything but PARTIAL.
        party: server the message is for or from.
    """
    whole = parameters.whole_keys or party == 0
    if kind is Kind.REQUEST:
        return SEED_BYTES + (parameters.correction_bytes if whole else HASH_BYTES)
    if kind is Kind.UPDATE:
        return (parameters.final_bytes if whole else HASH_BYTES) + (8 * parameters.dense if party else 0)
    if kind is Kind.RESPONSE:
        return parameters.response_bytes
    return parameters.correction_bytes if kind is Kind.FORWARD_REQUEST else parameters.final_bytes


def pack_corrections(words: Corrections) -> bytes:
    """Correction words as bytes: lower halves, upper halves, control bits of right children packed."""
    bits = np.packbits(words.right.astype(np.uint8), axis=None)
    return words.lo.astype("<u8").tobytes() + words.hi.astype("<u8").tobytes() + bits.tobytes()


def unpack_corrections(data: bytes, parameters: Parameters) -> Corrections:
    """Correction words back.

    Args:
        data: `correction_bytes` bytes.
        parameters: of the round.

    Raises:
        TransportError: wrong length, or bits set beyond the last.
    """
    depth, trees = parameters.depth, parameters.trees
    count = depth * trees
    if len(data) != parameters.correction_bytes:
        raise TransportError(f"secemb: correction words have {parameters.correction_bytes} bytes, not {len(data)}")
    planes = np.frombuffer(data, dtype="<u8", count=2 * count).astype(np.uint64).reshape(2, depth, trees)
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8, offset=count * BLOCK_BYTES))
    if bits[count:].any():
        raise TransportError("secemb: correction words have bits set beyond the last; they are not what a client sends")
    return Corrections(planes[0], planes[1], bits[:count].astype(np.uint64).reshape(depth, trees))
