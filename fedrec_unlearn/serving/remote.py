"""Both servers over HTTPS, for whoever opens rounds and plays clients: fits where `secemb.local.LocalPair` fits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.client import Messages
from fedrec_unlearn.secemb.parameters import IntArray, Round
from fedrec_unlearn.secemb.server import Partial, Total, combine
from fedrec_unlearn.serving.bodies import pack_close, pack_open
from fedrec_unlearn.serving.identity import CLIENT, COORDINATOR, sealing_public_key
from fedrec_unlearn.serving.link import Link

T = TypeVar("T")

_POLL_SECONDS = 0.1


class RemotePair:
    """A `secemb.pair.Pair` of servers on the network.

    A server that is unreachable or restarts is waited for and sent the same messages again, which it counts once.

    Guarantee: messages are sealed for the keys in the folder of certificates, never for a key that a server tells. The
    round is closed with the clients whose update both servers have, and a round that one server has closed already
    is closed at the other with the same ones. This object holds coordinator's and clients' certificates together, as
    a simulation must; where clients are on their own, they use `link.Link` with theirs.
    """

    def __init__(
        self,
        urls: tuple[str, str],
        certs: Path,
        *,
        coordinator: str = COORDINATOR,
        client: str = CLIENT,
        connections: int = 16,
        patience: float = 60.0,
    ) -> None:
        """Both servers; nothing is sent yet.

        Args:
            urls: https://host:port of server 0 and of server 1.
            certs: folder of certificates, as `certificates.make_certificates` lays it out.
            coordinator: folder in it with the certificate that opens and closes rounds.
            client: folder in it with the certificate that sends clients' messages.
            connections: messages under way to a server at once.
            patience: seconds to go on trying a server that does not answer.

        Raises:
            ConfigError: a certificate or key is missing or does not fit.
            DependencyError: httpx is not installed.
            TransportError: an address is not one of https.
        """
        certs = Path(certs)
        self.keys: tuple[bytes, bytes] = (sealing_public_key(certs, 0), sealing_public_key(certs, 1))
        self._patience = patience
        self._control = [
            Link(party, url, certs, coordinator, connections=2, patience=patience) for party, url in enumerate(urls)
        ]
        self._clients = [
            Link(party, url, certs, client, connections=connections, patience=patience)
            for party, url in enumerate(urls)
        ]
        # one pool per server: server 1 holds requests back until server 0 has passed its part on
        self._pools = [ThreadPoolExecutor(connections, thread_name_prefix=f"secemb-to-{party}") for party in (0, 1)]
        self._round: Round | None = None
        self._between = 0
        self._known = False

    @property
    def bytes_between(self) -> int:
        """Bytes server 0 has sent to server 1 in the open round, or in the one closed last."""
        if self._round is not None:
            self._between = int(self._control[0].get(self._path("received"))["forwarded_bytes"])
        return self._between

    def open(self, round_: Round, table: IntArray) -> None:
        """Begin a round on both servers; an unfinished one is given up.

        Args:
            round_: what both serve.
            table: int64 (n_items, width), the fixed-point table the round's hash stands for.

        Raises:
            TransportError: a server refuses it, is not the one the keys belong to, or does not answer.
        """
        if not self._known:
            self._meet()
        body = pack_open(round_.to_bytes(), np.ascontiguousarray(table, dtype="<i8").tobytes())
        self._both(lambda link: link.post("/v1/rounds", body), self._control)
        self._round, self._between = round_, 0

    def request(self, messages: Sequence[Messages]) -> list[Messages]:
        """Bring clients' requests to the servers and their answers back, in the same order.

        Raises:
            TransportError: a server refuses one or does not answer.
        """
        return self._deliver("request", messages)

    def update(self, messages: Sequence[Messages]) -> None:
        """Bring clients' updates to the servers.

        Raises:
            TransportError: a server refuses one or does not answer.
        """
        self._deliver("update", messages)

    def close(self) -> Total:
        """Fix the clients both servers have, and open their sum. After an error it may be called again.

        Raises:
            TransportError: no round is open, fewer clients than the round takes, the servers hold different rounds,
                or one of them does not answer.
        """
        round_ = self._open_round()
        accepted, self._between = self._agreed(round_)
        body = pack_close(round_.digest, accepted)
        zero, one = self._both(lambda link: link.post(self._path("close"), body), self._control)
        total = combine(Partial.from_bytes(zero, round_), Partial.from_bytes(one, round_))
        self._round = None
        return total

    def disconnect(self) -> None:
        """Close all connections."""
        for link in (*self._control, *self._clients):
            link.disconnect()
        for pool in self._pools:
            pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> RemotePair:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def _meet(self) -> None:
        """See that behind each address is the server whose key is in the folder."""
        for party, told in enumerate(self._both(lambda link: link.get("/v1/key"), self._control)):
            url = self._control[party].url
            if told["party"] != party:
                raise TransportError(f"at {url} is server {told['party']}, not {party}; exchange the two addresses")
            if told["key"] != self.keys[party].hex():
                raise TransportError(
                    f"server {party} at {url} has another sealing key than the folder of certificates tells; "
                    "use the set of certificates it was started with"
                )
        self._known = True

    def _agreed(self, round_: Round) -> tuple[frozenset[bytes], int]:
        """The clients to close with, and the bytes forwarded for the round."""
        end = time.monotonic() + self._patience
        while True:
            states = self._both(lambda link: link.get(self._path("received")), self._control)
            for party, state in enumerate(states):
                if state["round"] != round_.digest.hex():
                    raise TransportError(
                        f"server {party} holds another round {round_.number} than this run's; open the round again"
                    )
            pending = int(states[0]["pending"])
            if not pending:
                # where a server is closed already, this is its set: it was a part of what the other had
                zero, one = (frozenset(map(bytes.fromhex, state["clients"])) for state in states)
                return zero & one, int(states[0]["forwarded_bytes"])
            if time.monotonic() > end:
                raise TransportError(
                    f"server 0 has {pending} messages that server 1 has not taken within {self._patience:g} s; "
                    "its /health tells why. They are kept: close again when server 1 can be reached from server 0"
                )
            time.sleep(_POLL_SECONDS)

    def _deliver(self, phase: str, messages: Sequence[Messages]) -> list[Messages]:
        self._open_round()
        path = self._path(phase)
        futures: list[tuple[Future[bytes], ...]] = [
            tuple(self._pools[party].submit(self._clients[party].post, path, pair[party]) for party in (0, 1))
            for pair in messages
        ]
        try:
            return [(zero.result(), one.result()) for zero, one in futures]
        except BaseException:
            self._abandon([future for pair in futures for future in pair], self._clients)
            raise

    def _both(self, ask: Callable[[Link], T], links: Sequence[Link]) -> tuple[T, T]:
        """Ask both servers at the same time."""
        futures = [pool.submit(ask, link) for pool, link in zip(self._pools, links, strict=True)]
        try:
            return futures[0].result(), futures[1].result()
        except BaseException:
            self._abandon(futures, links)
            raise

    def _abandon(self, futures: Sequence[Future[Any]], links: Sequence[Link]) -> None:
        """One has failed: let the others end now and not when their patience does."""
        for future in futures:
            future.cancel()
        for link in links:
            link.give_up()
        for future in futures:
            if not future.cancelled():
                future.exception()
        for link in links:
            link.give_up(False)

    def _open_round(self) -> Round:
        if self._round is None:
            raise TransportError("secemb: no round is open")
        return self._round

    def _path(self, what: str) -> str:
        return f"/v1/rounds/{self._open_round().number}/{what}"
