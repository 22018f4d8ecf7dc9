"""One server's round, in memory and on disk at the same time.

Not for several threads at once, like the `secemb.server.Server` in it: the `worker` calls it from one thread.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Sequence
from enum import IntEnum

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrec_unlearn.errors import RunError, TransportError
from fedrec_unlearn.secemb.parameters import Round
from fedrec_unlearn.secemb.server import Server
from fedrec_unlearn.secemb.wire import Kind, Replayed, header_of
from fedrec_unlearn.serving.bodies import BATCH
from fedrec_unlearn.serving.log_file import Record
from fedrec_unlearn.serving.receipt import Key, Receipt, Received
from fedrec_unlearn.serving.refused import RefusedError
from fedrec_unlearn.serving.spool import ClosedRound, OpenRound, Spool

log = logging.getLogger("fedrec_unlearn.serving")


class _Kept(IntEnum):
    """Kinds of records in the spool."""

    MESSAGE = 1
    FORWARD = 2
    FORWARDED = 3
    """That a message's forward has arrived: kind (one byte) and client id."""


class Keeper:
    """The round a server holds."""

    def __init__(self, party: int, key: X25519PrivateKey, spool: Spool) -> None:
        """Take up the round where the spool has it.

        Args:
            party: 0 or 1.
            key: the server's sealing key.
            spool: its folder.

        Raises:
            RunError: the spool is damaged.
        """
        self.party = party
        self.broken: str | None = None
        """Why nothing can be kept any more; None where all is well."""
        self.forwards: dict[Key, bytes] = {}
        """What server 1 has not been seen to have, in the order it was accepted."""
        self.forwarded_bytes = 0
        self.round: Round | None = None
        """The round that is open or was closed last."""
        self._key, self._spool = key, spool
        self._server: Server | None = None
        self._accepted: set[Key] = set()
        self._acknowledged: list[Record] = []
        self._partial: tuple[frozenset[bytes], bytes] | None = None
        try:
            if spool.current is not None:
                self.round = Round.from_bytes(spool.current.description)
            if isinstance(spool.current, OpenRound):
                self._replay(spool.current)
        except TransportError as error:
            raise RunError(
                f"the round in {spool.folder} cannot be taken up again: {error}; start the version of this program "
                "that wrote it, or move the round's folder away to give it up"
            ) from error

    @property
    def is_open(self) -> bool:
        """Whether messages are received."""
        return self._server is not None

    def open(self, description: bytes, table: bytes) -> Round:
        """Open a round; the one before is given up if it is still open. Again with the same bytes: nothing happens.

        Args:
            description: `Round.to_bytes`.
            table: little-endian int64, row by row.

        Raises:
            RefusedError: it is closed, or was opened before, or a later one of its run was, or the disk failed.
            TransportError: the table is not the one the round names.
        """
        self._check_health()
        round_ = Round.from_bytes(description)
        if self.round == round_ and self._server is not None:
            return round_
        self._spool.may_open(round_.run, round_.number)
        server = self._server_of(round_, table)
        try:
            self._spool.open(round_.run, round_.number, description, table)
        except OSError as error:
            raise RefusedError(503, f"the round cannot be kept: {error.strerror}; free space and try again") from error
        self.round, self._server = round_, server
        self._accepted, self._acknowledged, self._partial = set(), [], None
        self.forwards, self.forwarded_bytes = {}, 0
        log.info("party %d opened round %d with %d items", self.party, round_.number, round_.parameters.n_items)
        return round_

    def receive(self, messages: Sequence[bytes]) -> list[Receipt | TransportError]:
        """Take messages of clients, or at party 1 also forwarded ones; on the disk before this returns.

        Returns:
            For each its receipt, or the error why it was refused.

        Raises:
            RefusedError: the disk failed; nothing more is received until the server is started again.
        """
        self._check_health()
        outcomes: list[Receipt | TransportError] = []
        records: list[Record] = []
        for message in messages:
            try:
                receipt = self._receive(message)
            except TransportError as error:
                outcomes.append(error)
                continue
            outcomes.append(receipt)
            if not receipt.repeated:
                forwarded = receipt.key[0] in (Kind.FORWARD_REQUEST, Kind.FORWARD_UPDATE)
                records.append((_Kept.FORWARD if forwarded else _Kept.MESSAGE, message))
        self._keep(records)
        return outcomes

    def answer(self, clients: Collection[bytes]) -> dict[bytes, bytes]:
        """Responses to those of the clients whose requests are complete."""
        if self._server is None:
            return {}
        ready = sorted(self._server.requests.intersection(clients))
        answers: dict[bytes, bytes] = {}
        for start in range(0, len(ready), BATCH):
            answers |= self._server.answer(ready[start : start + BATCH])
        return answers

    def acknowledge(self, digest: bytes, keys: Collection[Key]) -> None:
        """Server 1 has these forwards; written with the next messages, since forwarding twice does no harm."""
        if self.round is None or self.round.digest != digest:
            return
        for key in keys:
            message = self.forwards.pop(key, None)
            if message is not None:
                self.forwarded_bytes += len(message)
                self._acknowledged.append((_Kept.FORWARDED, bytes([key[0]]) + key[1]))

    def received(self) -> Received:
        """How far the round is.

        Raises:
            RefusedError: there is no round.
        """
        if self.round is None:
            raise RefusedError(404, "no round is open; open one first")
        if self._server is None:
            closed = self._closed()
            return Received(self.round, closed.accepted, True, self.forwarded_bytes)
        return Received(self.round, self._server.received, False, self.forwarded_bytes)

    def close(self, digest: bytes, accepted: frozenset[bytes]) -> bytes:
        """Fix who is in the sum and make this server's part of it; on the disk before this returns.

        Args:
            digest: of the round.
            accepted: ids of the clients.

        Returns:
            The part, the same bytes when asked again with the same clients.

        Raises:
            RefusedError: another round, closed with other clients, too few or unknown clients, or the disk failed.
        """
        if self.round is None or self.round.digest != digest:
            raise RefusedError(404, "this is not the round that is open here; see what is open with /health")
        if self._server is None:
            closed = self._closed()
            if closed.accepted != accepted:
                raise RefusedError(
                    409,
                    f"round {self.round.number} is closed with {len(closed.accepted)} clients and its one sum is made; "
                    "with another set of clients, the difference would show single clients",
                )
            return closed.partial
        self._check_health()
        try:
            # made once: noise drawn a second time could be averaged away
            if self._partial is None or self._partial[0] != accepted:
                self._partial = accepted, self._server.close(accepted).to_bytes()
        except TransportError as error:
            raise RefusedError(409, str(error)) from error
        try:
            closed = self._spool.close_round(accepted, self._partial[1])
        except OSError as error:
            raise RefusedError(503, f"the sum cannot be kept: {error.strerror}; free space and try again") from error
        self._server, self._partial = None, None
        self.forwards, self._acknowledged = {}, []
        log.info("party %d closed round %d with %d clients", self.party, self.round.number, len(accepted))
        return closed.partial

    def flush(self) -> None:
        """Write what waits for the next message to be written with it; for an orderly end."""
        if self.broken is None and isinstance(self._spool.current, OpenRound):
            with contextlib.suppress(OSError):  # what is not written down is forwarded again, which does no harm
                self._spool.current.log.append(self._acknowledged)
        self._acknowledged = []

    def _receive(self, message: bytes) -> Receipt:
        """Feed the state machine one message; changes nothing where it raises."""
        server = self._server
        header = header_of(message)
        key = (header.kind, header.client)
        if server is None:
            raise RefusedError(409, f"round {header.number} is closed")
        forward: bytes | None = None
        try:
            if header.kind in (Kind.FORWARD_REQUEST, Kind.FORWARD_UPDATE):
                server.receive_forward(message)
            else:
                forward = server.receive(message)
        except Replayed:
            return Receipt(key, True, self.forwards.get(key))
        except TransportError as error:
            if key in self._accepted:
                raise RefusedError(
                    409, f"{error}; another message of this kind and client was accepted before"
                ) from error
            raise
        self._accepted.add(key)
        if forward is not None:
            self.forwards[key] = forward
        return Receipt(key, False, forward)

    def _keep(self, records: list[Record]) -> None:
        if not records:
            return
        current = self._spool.current
        assert isinstance(current, OpenRound)
        try:
            current.log.append([*self._acknowledged, *records])
        except OSError as error:
            # memory is ahead of the disk now; only a start from the disk makes them equal again
            self.broken = f"the spool cannot be written ({error.strerror}); free space and start this server again"
            log.error("party %d stopped receiving: %s", self.party, self.broken)
            raise RefusedError(503, self.broken) from error
        self._acknowledged = []

    def _check_health(self) -> None:
        if self.broken is not None:
            raise RefusedError(503, self.broken)

    def _closed(self) -> ClosedRound:
        assert isinstance(self._spool.current, ClosedRound)
        return self._spool.current

    def _server_of(self, round_: Round, table: bytes) -> Server:
        p = round_.parameters
        if len(table) != 8 * p.n_items * p.width:
            raise RefusedError(400, f"a table of this round has {8 * p.n_items * p.width} bytes, not {len(table)}")
        rows = np.frombuffer(table, dtype="<i8").reshape(p.n_items, p.width).astype(np.int64, copy=False)
        return Server(self.party, round_, rows, self._key)

    def _replay(self, kept: OpenRound) -> None:
        assert self.round is not None
        self._server = self._server_of(self.round, kept.table)
        count = 0
        for kind, payload in kept.log.replay():
            if kind == _Kept.FORWARDED:
                message = self.forwards.pop((Kind(payload[0]), payload[1:]), b"")
                self.forwarded_bytes += len(message)
                continue
            self._receive(payload)
            count += 1
        log.info("party %d took up round %d with %d messages", self.party, self.round.number, count)
        if kept.log.cut:
            log.warning("party %d cut %d bytes of an unfinished write off", self.party, kept.log.cut)
