"""One of the two servers in one round: takes messages, answers requests, closes with its share of one sum.

**Guarantee.** Of a client it has a random seed, correction words and shares that tell nothing about the client's
items and values (`client.Client`); what it computes has the same form and takes the same operations for every
client. It gives out one share of one sum: over a set of clients that is fixed before anything is added, of at
least `min_clients`.

| case | what happens |
|---|---|
| a message of another round, server, run, table or parameters | refused by its header, nothing changes |
| the same message again | `Replayed`, nothing changes |
| a client's second, different message | refused, the first one counts |
| a client that sends to one server only, or stops half-way | is in no sum |
| the correction words forwarded by server 0 are altered | refused by their hash |
| `close` again with the same clients | the same share |
| `close` with other clients | refused: the difference of two sums would show who differs |
| a restart before `close` | the same messages fed again give the same state |
| a restart after it | the caller keeps the share and never opens the round again: it could be closed twice |
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.batch_code import code_of
from fedrec_unlearn.secemb.dense import mask
from fedrec_unlearn.secemb.dpf import Labels
from fedrec_unlearn.secemb.evaluation import Evaluator, Key, Table
from fedrec_unlearn.secemb.inbox import Inbox
from fedrec_unlearn.secemb.noise import add_noise
from fedrec_unlearn.secemb.parameters import ID_BYTES, IntArray, Round, table_hash
from fedrec_unlearn.secemb.prg import Hashes
from fedrec_unlearn.secemb.wire import HEADER_BYTES, Header, Kind, check_round, header_of, unpack_corrections

_BATCH = 64
"""Clients whose trees are evaluated together."""
_COUNT = struct.Struct("<I")
_WORD64 = np.dtype("<u8")


@dataclass(frozen=True)
class Partial:
    """One server's share of a round's sum."""

    party: int
    round: Round
    accepted: tuple[bytes, ...]
    """Clients in the sum, ascending."""
    rows: NDArray[np.unsignedinteger]
    """(n_items, payload) ring words; uniform on their own."""
    dense: NDArray[np.uint64]
    """(dense,)."""

    def to_bytes(self) -> bytes:
        """Header, number of clients, their identifiers, rows, dense vector."""
        header = Header(Kind.PARTIAL, self.party, self.round.number, self.round.digest, bytes(16), bytes(16))
        clients = _COUNT.pack(len(self.accepted)) + b"".join(self.accepted)
        return header.to_bytes() + clients + self.rows.tobytes() + self.dense.astype(_WORD64, copy=False).tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, round_: Round) -> Partial:
        """The share back.

        Raises:
            TransportError: not a share of this round's sum.
        """
        header = header_of(data)
        check_round(header, round_, header.party)
        if header.kind is not Kind.PARTIAL or header.client != bytes(16) or header.nonce != bytes(16):
            raise TransportError("secemb: not a server's share of a sum")
        p, start = round_.parameters, HEADER_BYTES + _COUNT.size
        count = _COUNT.unpack_from(data, HEADER_BYTES)[0] if len(data) >= start else 0
        rows_bytes = p.n_items * p.payload * p.word.itemsize
        expected = start + count * ID_BYTES + rows_bytes + p.dense * _WORD64.itemsize
        if not p.min_clients <= count <= p.max_clients:
            raise TransportError(
                f"secemb: a sum is over {p.min_clients} .. {p.max_clients} clients, and this is a share over {count}"
            )
        if len(data) != expected:
            raise TransportError(f"secemb: a share of a sum over {count} clients has {expected} bytes, not {len(data)}")
        accepted = tuple(data[place : place + ID_BYTES] for place in range(start, start + count * ID_BYTES, ID_BYTES))
        if list(accepted) != sorted(set(accepted)):
            raise TransportError("secemb: the clients of a share are not distinct and in order")
        start += count * ID_BYTES
        rows = np.frombuffer(data, dtype=p.word, offset=start, count=p.n_items * p.payload)
        dense = np.frombuffer(data, dtype=_WORD64, offset=start + rows_bytes)
        return cls(header.party, round_, accepted, rows.reshape(p.n_items, p.payload), dense)


@dataclass(frozen=True)
class Total:
    """What a round opens: sums over its clients, and who they are."""

    rows: IntArray
    """int64 (n_items, payload)."""
    dense: IntArray
    """int64 (dense,)."""
    accepted: tuple[bytes, ...]
    """Clients in the sum, ascending."""

    @property
    def clients(self) -> int:
        """How many."""
        return len(self.accepted)


class Server:
    """A server during one round, without input or output; calls must not overlap.

    The module tells what is guaranteed.

    Args:
        party: 0 or 1.
        round_: what it serves.
        table: int64 (n_items, width), the fixed-point table the round's hash stands for.
        private_key: of this server.

    Raises:
        TransportError: a table that is not the round's, or does not fit its ring.
    """

    def __init__(self, party: int, round_: Round, table: IntArray, private_key: X25519PrivateKey) -> None:
        p = round_.parameters
        if party not in (0, 1):
            raise TransportError(f"secemb: the servers are 0 and 1, not {party}")
        if table.shape != (p.n_items, p.width) or table_hash(table) != round_.table:
            raise TransportError(
                "secemb: the table is not the one the round was opened with; both servers need the same"
            )
        if p.ring_bits == 32 and (int(table.min()) < -(1 << 31) or int(table.max()) >= 1 << 31):
            raise TransportError(
                "secemb: the table has numbers beyond 32 bits; use fewer fraction bits or a ring of 64"
            )
        self.party, self.round = party, round_
        self._inbox = Inbox(party, round_, private_key)
        self._table = Table(table, p.word)
        self._evaluator = Evaluator(code_of(p), party)
        self._partial: Partial | None = None

    @property
    def requests(self) -> frozenset[bytes]:
        """Clients whose request is complete."""
        return self._inbox.complete(Kind.REQUEST)

    @property
    def received(self) -> frozenset[bytes]:
        """Clients whose update is complete, after `close` those in the sum; the servers compare them before it."""
        if self._partial is not None:
            return frozenset(self._partial.accepted)
        return self._inbox.complete(Kind.UPDATE)

    def receive(self, message: bytes) -> bytes | None:
        """Take a client's request or update; see `Inbox.receive`."""
        self._need_open()
        return self._inbox.receive(message)

    def receive_forward(self, message: bytes) -> None:
        """Take correction words from server 0; see `Inbox.receive_forward`."""
        self._need_open()
        self._inbox.receive_forward(message)

    def answer(self, clients: Sequence[bytes]) -> dict[bytes, bytes]:
        """Answers to requests that are complete.

        Args:
            clients: any of `requests`; together they cost much less than one by one. Asked again, the same
                answer comes again.

        Raises:
            TransportError: a client without a complete request.
        """
        self._need_open()
        self._need(clients, self.requests, "request")
        answers = {}
        for batch in _batches(clients):
            shares = self._evaluator.retrieve([self._key(client) for client in batch], self._table)
            for client, rows in zip(batch, shares, strict=True):
                entry = self._inbox.entries[client]
                header = Header(Kind.RESPONSE, self.party, self.round.number, self.round.digest, client, entry.nonce)
                assert entry.channel is not None
                answers[client] = entry.channel.seal(header, rows.tobytes())
        return answers

    def close(self, accepted: Collection[bytes]) -> Partial:
        """Fix the clients, add their updates up and give out this server's share of the sum.

        Args:
            accepted: clients both servers have `received`.

        Raises:
            TransportError: too few, clients without a complete update, or closed before with others.
        """
        clients = tuple(sorted(accepted))
        if self._partial is not None:
            if clients != self._partial.accepted:
                raise TransportError(
                    f"secemb: round {self.round.number} was closed with other clients; "
                    "the difference of two sums would show the clients that differ"
                )
            return self._partial
        p = self.round.parameters
        if len(set(clients)) < max(p.min_clients, len(clients)):
            raise TransportError(
                f"secemb: a sum takes at least {p.min_clients} distinct clients, not {len(set(clients))}; "
                "wait for more, or repeat the round"
            )
        if len(clients) > p.max_clients:
            raise TransportError(
                f"secemb: a sum over {len(clients)} clients could leave the ring; the round has at most {p.max_clients}"
            )
        self._need(clients, self.received, "update")
        rows = np.zeros((p.n_items + 1, p.payload), dtype=p.word)
        dense = np.zeros(p.dense, dtype=np.uint64)
        for batch in _batches(clients):
            finals = np.stack([self._finals(client) for client in batch])
            self._evaluator.aggregate([self._key(client) for client in batch], finals, rows)
            for client in batch:
                dense += self._dense_share(client)
        rows = rows[:-1]
        if p.noise:
            add_noise(rows, p.noise)
            add_noise(dense, p.noise)
        self._partial = Partial(self.party, self.round, clients, rows, dense)
        self._inbox.entries.clear()
        return self._partial

    def _need_open(self) -> None:
        if self._partial is not None:
            raise TransportError(f"secemb: round {self.round.number} is closed; take part in the next one")

    def _need(self, clients: Collection[bytes], there: frozenset[bytes], what: str) -> None:
        missing = set(clients) - there
        if missing:
            raise TransportError(
                f"secemb: server {self.party} has no complete {what} of {len(missing)} of these clients"
            )

    def _key(self, client: bytes) -> Key:
        entry, p = self._inbox.entries[client], self.round.parameters
        hashes = Hashes(self.round.digest, client, entry.nonce, p.passes)
        roots = Labels(*hashes.root_labels(entry.seed, p.trees, self.party))
        return Key(hashes, roots, unpack_corrections(entry.public[Kind.REQUEST], p))

    def _finals(self, client: bytes) -> NDArray[np.unsignedinteger]:
        p = self.round.parameters
        return np.frombuffer(self._inbox.entries[client].public[Kind.UPDATE], dtype=p.word).reshape(p.trees, p.payload)

    def _dense_share(self, client: bytes) -> NDArray[np.uint64]:
        entry = self._inbox.entries[client]
        if self.party:
            return np.frombuffer(entry.share, dtype=_WORD64)
        return mask(self.round.digest, client, entry.nonce, entry.seed, self.round.parameters.dense)

    def __repr__(self) -> str:
        return f"Server({self.party}, round {self.round.number}, {len(self._inbox.entries)} clients)"


def combine(first: Partial, second: Partial) -> Total:
    """The exact sums, from both servers' shares in either order.

    Raises:
        TransportError: not the two servers' shares of one sum.
    """
    if {first.party, second.party} != {0, 1}:
        raise TransportError(f"secemb: both shares come from server {first.party}; it takes one of each")
    if first.round != second.round:
        raise TransportError("secemb: the shares belong to different rounds")
    if first.accepted != second.accepted:
        differ = len(set(first.accepted) ^ set(second.accepted))
        raise TransportError(
            f"secemb: the servers' sums are over different clients ({differ} differ); they do not add up"
        )
    rows = first.rows + second.rows
    signed = rows.view(np.dtype(f"i{rows.dtype.itemsize}")).astype(np.int64)
    return Total(signed, (first.dense + second.dense).view(np.int64), first.accepted)


def _batches(clients: Collection[bytes]) -> Iterator[list[bytes]]:
    ordered = list(clients)
    for start in range(0, len(ordered), _BATCH):
        yield ordered[start : start + _BATCH]
