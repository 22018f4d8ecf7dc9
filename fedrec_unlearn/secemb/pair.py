"""What training talks to: the two servers, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fedrec_unlearn.secemb.client import Messages
from fedrec_unlearn.secemb.parameters import IntArray, Round
from fedrec_unlearn.secemb.server import Total


class Pair(Protocol):
    """Both servers, for whoever opens rounds and plays clients."""

    keys: tuple[bytes, bytes]
    """Their public sealing keys."""

    def open(self, round_: Round, table: IntArray) -> None:
        """Begin a round on both servers; an unfinished one is given up."""

    def request(self, messages: Sequence[Messages]) -> list[Messages]:
        """Bring clients' requests to the servers and their answers back, in the same order."""

    def update(self, messages: Sequence[Messages]) -> None:
        """Bring clients' updates to the servers."""

    def close(self) -> Total:
        """Fix the clients both servers have, and open their sum."""

    @property
    def bytes_between(self) -> int:
        """Bytes server 0 has sent to server 1 in the open round."""
