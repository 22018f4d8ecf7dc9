"""Bodies of requests and answers that hold more than one SecEmb message; sizes of those that hold one."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence

from fedrec_unlearn.secemb.parameters import Parameters
from fedrec_unlearn.secemb.sealing import sealed_bytes
from fedrec_unlearn.secemb.wire import HEADER_BYTES, Kind, content_bytes
from fedrec_unlearn.serving.refused import RefusedError

BATCH = 64
"""Messages at most that are worked on, written to disk or forwarded together."""
ID_BYTES = 16
DIGEST_BYTES = 32
MAX_DESCRIPTION = 4096
"""Bytes at most of a round's description."""

_LENGTH = struct.Struct("<I")


def message_bytes(parameters: Parameters, kind: Kind, party: int) -> int:
    """Length of a client's message, to the byte, whatever the client holds.

    Args:
        parameters: of the round.
        kind: REQUEST or UPDATE.
        party: server it is for.
    """
    return sealed_bytes(kind, content_bytes(parameters, kind, party))


def forward_bytes(parameters: Parameters, kind: Kind) -> int:
    """Length of what server 0 forwards of one message, FORWARD_REQUEST or FORWARD_UPDATE."""
    return HEADER_BYTES + content_bytes(parameters, kind, 1)


def most_forward_bytes(parameters: Parameters) -> int:
    """Length at most of a body with forwarded messages."""
    largest = max(forward_bytes(parameters, kind) for kind in (Kind.FORWARD_REQUEST, Kind.FORWARD_UPDATE))
    return BATCH * (_LENGTH.size + largest)


def most_close_bytes(parameters: Parameters) -> int:
    """Length at most of a body that closes a round."""
    return DIGEST_BYTES + ID_BYTES * parameters.max_clients


def pack_open(description: bytes, table: bytes) -> bytes:
    """Body that opens a round: length of the description (uint32, little-endian), description, table."""
    return _LENGTH.pack(len(description)) + description + table


def pack_messages(messages: Sequence[bytes]) -> bytes:
    """Body of several messages, each with its length (uint32, little-endian) before it."""
    return b"".join(_LENGTH.pack(len(message)) + message for message in messages)


def unpack_messages(body: bytes) -> list[bytes]:
    """Messages back.

    Raises:
        RefusedError: lengths that do not add up, or more than `BATCH`.
    """
    messages, position = [], 0
    while position < len(body):
        if position + _LENGTH.size > len(body):
            raise RefusedError(400, "body ends within a length; send length and message in turn")
        (length,) = _LENGTH.unpack_from(body, position)
        position += _LENGTH.size
        if position + length > len(body):
            raise RefusedError(400, "body ends within a message; send length and message in turn")
        messages.append(body[position : position + length])
        position += length
    if not 1 <= len(messages) <= BATCH:
        raise RefusedError(400, f"body holds {len(messages)} messages, not 1 to {BATCH}")
    return messages


def pack_close(digest: bytes, accepted: Collection[bytes]) -> bytes:
    """Body that closes a round: its digest, then the clients' ids in order."""
    return digest + b"".join(sorted(accepted))


def unpack_close(body: bytes) -> tuple[bytes, frozenset[bytes]]:
    """Digest and ids back.

    Raises:
        RefusedError: another length, or an id twice.
    """
    ids = [body[i : i + ID_BYTES] for i in range(DIGEST_BYTES, len(body), ID_BYTES)]
    if len(body) < DIGEST_BYTES or (ids and len(ids[-1]) != ID_BYTES) or len(set(ids)) != len(ids):
        raise RefusedError(
            400, f"body must be a digest of {DIGEST_BYTES} bytes and distinct ids of {ID_BYTES} bytes each"
        )
    return body[:DIGEST_BYTES], frozenset(ids)
