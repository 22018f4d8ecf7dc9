"""Both servers in this process: for trials, tests and simulations, where one machine plays everybody.

Guarantee: none against whoever runs the process, who has both servers' keys. What they are given, compute and
answer are the bytes of the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.client import Messages
from fedrec_unlearn.secemb.parameters import IntArray, Round
from fedrec_unlearn.secemb.server import Server, Total, combine
from fedrec_unlearn.secemb.wire import header_of


class LocalPair:
    """A `Pair` of servers in this process, with fresh keys."""

    def __init__(self) -> None:
        self._private = (X25519PrivateKey.generate(), X25519PrivateKey.generate())
        first, second = (key.public_key().public_bytes_raw() for key in self._private)
        self.keys = (first, second)
        self._servers: tuple[Server, Server] | None = None
        self._between = 0

    @property
    def bytes_between(self) -> int:
        """Bytes server 0 has sent to server 1 in the open round."""
        return self._between

    @property
    def servers(self) -> tuple[Server, Server]:
        """Both, in the open round.

        Raises:
            TransportError: no round is open.
        """
        if self._servers is None:
            raise TransportError("secemb: no round is open")
        return self._servers

    def open(self, round_: Round, table: IntArray) -> None:
        """See `Pair.open`."""
        zero, one = (Server(party, round_, table, key) for party, key in enumerate(self._private))
        self._servers, self._between = (zero, one), 0

    def request(self, messages: Sequence[Messages]) -> list[Messages]:
        """See `Pair.request`."""
        self._deliver(messages)
        clients = [header_of(zero).client for zero, _ in messages]
        zeros, ones = (server.answer(clients) for server in self.servers)
        return [(zeros[client], ones[client]) for client in clients]

    def update(self, messages: Sequence[Messages]) -> None:
        """See `Pair.update`."""
        self._deliver(messages)

    def close(self) -> Total:
        """See `Pair.close`."""
        zero, one = self.servers
        accepted = zero.received & one.received
        total = combine(zero.close(accepted), one.close(accepted))
        self._servers = None
        return total

    def _deliver(self, messages: Sequence[Messages]) -> None:
        zero, one = self.servers
        for for_zero, for_one in messages:
            forward = zero.receive(for_zero)
            one.receive(for_one)
            if forward is not None:
                self._between += len(forward)
                one.receive_forward(forward)
