"""What a server tells of a message it took, and of how far its round is."""

from __future__ import annotations

from dataclasses import dataclass

from fedrec_unlearn.secemb.parameters import Round
from fedrec_unlearn.secemb.wire import Kind

Key = tuple[Kind, bytes]
"""Kind of a client's message and the client's id: what there is one of in a round."""


@dataclass(frozen=True)
class Receipt:
    """What became of one message."""

    key: Key
    repeated: bool
    """It was accepted before, byte for byte."""
    forward: bytes | None
    """What server 1 must be given, unless it was before."""


@dataclass(frozen=True)
class Received:
    """How far a round is."""

    round: Round
    clients: frozenset[bytes]
    """Whose update is complete; of a closed round, who is in the sum."""
    closed: bool
    forwarded_bytes: int
    """What server 0 has forwarded in the round, each message once."""
