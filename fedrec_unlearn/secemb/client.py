"""The client's side of a round: ask for rows, get them, send an update.

**Guarantee.** What a server receives is, whatever items the client holds and however many, as many bytes; a root seed
and correction words that are indistinguishable from random; and of the update, final correction words and a
share of the dense vector that are too. It holds against either server alone if it follows the protocol (a server
that answers from an altered table can recognise the client's update of a row), and not if the two put their views
together.

| case | what happens |
|---|---|
| fewer items than `max_items`, or none | dummy trees; the same bytes |
| more items | `request` refuses: choose which ones before |
| an item without a bin (about never) | left out of `placed`, silently; the same bytes |
| a number beyond `limit`, a dense one beyond `dense_limit` | saturated, counted in `saturated` |
| two sessions under one identifier | the second is refused; with `whole_keys` they may spoil the sum |
| parameters that promise less than the client wants | its own to check before it takes part: `round_` is public |
| a second update from the same trees | refused: it would show the difference of the two |
| an item that nobody else holds | the opened sum shows its row: noise is another step |
"""

from __future__ import annotations

import hashlib
import secrets

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.batch_code import code_of
from fedrec_unlearn.secemb.dense import mask, rest
from fedrec_unlearn.secemb.dpf import Converter, Labels, make_trees
from fedrec_unlearn.secemb.matching import match
from fedrec_unlearn.secemb.parameters import ID_BYTES, IntArray, Round
from fedrec_unlearn.secemb.prg import Blocks, Hashes
from fedrec_unlearn.secemb.sealing import Channel, sealed_bytes
from fedrec_unlearn.secemb.wire import SEED_BYTES, Header, Kind, check_round, content_bytes, header_of, pack_corrections

Messages = tuple[bytes, bytes]


class Client:
    """One client in one round: `request`, `rows`, `update`, once each and in this order.

    The module tells what is guaranteed.

    Args:
        round_: what the client takes part in.
        server_keys: the servers' public sealing keys, 32 bytes each.
        client_id: 16 bytes; one client has one in a round.

    Raises:
        TransportError: not an identifier, not public keys, or the same key twice.
    """

    def __init__(self, round_: Round, server_keys: tuple[bytes, bytes], client_id: bytes) -> None:
        if len(client_id) != ID_BYTES:
            raise TransportError(f"secemb: a client's identifier has {ID_BYTES} bytes, not {len(client_id)}")
        if len(set(server_keys)) != 2 or len(server_keys) != 2:
            raise TransportError(
                "secemb: a client needs the public keys of two servers; whoever has both private ones sees its items"
            )
        self.round, self.client_id = round_, client_id
        self.placed: IntArray = np.empty(0, dtype=np.int64)
        """int64: which of the requested items got a tree, as indices into them, ascending."""
        self.saturated = 0
        """Numbers of the update that were beyond the limit."""
        self._nonce = secrets.token_bytes(ID_BYTES)
        self._channels = tuple(Channel.to_server(key) for key in server_keys)
        self._hashes = Hashes(round_.digest, client_id, self._nonce, round_.parameters.passes)
        self._seeds = (secrets.token_bytes(SEED_BYTES), secrets.token_bytes(SEED_BYTES))
        self._leaves: tuple[Labels, Labels] | None = None
        self._trees: IntArray = self.placed
        self._state = "new"

    def request(self, items: IntArray) -> Messages:
        """Ask for rows.

        Args:
            items: int64 (n,), distinct, n ≤ `max_items`. The first two are placed for certain (with `hashes` ≥ 2).

        Returns:
            A message for server 0 and one for server 1.

        Raises:
            TransportError: too many items, one twice or beyond the catalogue, or asked before.
        """
        self._step("new", "asked")
        p = self.round.parameters
        items = np.asarray(items, dtype=np.int64)
        if items.ndim != 1 or len(items) > p.max_items:
            raise TransportError(
                f"secemb: a client holds at most {p.max_items} items in a round, not {items.size}; "
                "raise max_items, or let it take part with some of them"
            )
        if len(items) and (items.min() < 0 or items.max() >= p.n_items or len(np.unique(items)) < len(items)):
            raise TransportError(f"secemb: items must be distinct and lie in 0 .. {p.n_items - 1}")
        code = code_of(p)
        trees = match(code, items)
        self.placed = np.flatnonzero(trees >= 0)
        self._trees = trees[self.placed]
        points = _below(p.slots, p.trees)
        points[self._trees] = code.leaves(items[self.placed], self._trees)
        roots = [Labels(*self._hashes.root_labels(seed, p.trees, party)) for party, seed in enumerate(self._seeds)]
        words, self._leaves = make_trees(self._hashes, (roots[0], roots[1]), points, p.depth)
        packed = pack_corrections(words)
        for_one = packed if p.whole_keys else hashlib.sha256(packed).digest()
        return self._seal(Kind.REQUEST, self._seeds[0] + packed, self._seeds[1] + for_one)

    def rows(self, responses: Messages) -> IntArray:
        """The rows asked for.

        Args:
            responses: server 0's and server 1's.

        Returns:
            int64 (placed, width).

        Raises:
            TransportError: not the answers to this request.
        """
        self._need("asked")
        p = self.round.parameters
        shares = []
        for party, message in enumerate(responses):
            header = header_of(message)
            check_round(header, self.round, party)
            if (header.kind, header.client, header.nonce) != (Kind.RESPONSE, self.client_id, self._nonce):
                raise TransportError(f"secemb: server {party} answered another request")
            if len(message) != sealed_bytes(Kind.RESPONSE, p.response_bytes):
                raise TransportError(
                    f"secemb: server {party}'s answer has {len(message)} bytes, not what its rows take"
                )
            content = self._channels[party].open(message)
            shares.append(np.frombuffer(content, dtype=p.word).reshape(p.trees, p.width)[self._trees])
        self._state = "served"
        return _signed(np.where(self._negative[:, None], shares[1] - shares[0], shares[0] - shares[1]))

    def update(self, rows: IntArray, dense: IntArray) -> Messages:
        """Send an update of the placed items.

        Args:
            rows: int64 (placed, payload), in the order of `placed`.
            dense: int64 (dense,).

        Returns:
            A message for server 0 and one for server 1.

        Raises:
            TransportError: wrong shapes or types, no rows received yet, or sent before.
        """
        p = self.round.parameters
        if rows.shape != (len(self.placed), p.payload) or rows.dtype != np.int64:
            raise TransportError(
                f"secemb: an update has int64 rows of shape {(len(self.placed), p.payload)}, "
                f"not {rows.dtype} {rows.shape}"
            )
        if dense.shape != (p.dense,) or dense.dtype != np.int64:
            raise TransportError(
                f"secemb: a dense vector is int64 of shape {(p.dense,)}, not {dense.dtype} {dense.shape}"
            )
        self._step("served", "sent")
        assert self._leaves is not None
        saturated = np.clip(rows, -p.limit, p.limit)
        bounded = np.clip(dense, -p.dense_limit, p.dense_limit)
        self.saturated = int((saturated != rows).sum() + (bounded != dense).sum())
        finals = np.zeros((p.trees, p.payload), dtype=p.word)
        finals[self._trees] = saturated.astype(p.word)
        converter = Converter(p.payload, p.word, Blocks(p.trees))
        first, second = (converter.values(self._hashes.convert, labels) for labels in self._leaves)
        finals += second - first
        negative = self._leaves[1].control.astype(bool)[:, None]
        packed = np.where(negative, np.negative(finals), finals).astype(p.word, copy=False).tobytes()
        masked = mask(self.round.digest, self.client_id, self._nonce, self._seeds[0], p.dense)
        for_one = packed if p.whole_keys else hashlib.sha256(packed).digest()
        share = rest(np.ascontiguousarray(bounded), masked).astype("<u8", copy=False).tobytes()
        return self._seal(Kind.UPDATE, packed, for_one + share)

    @property
    def _negative(self) -> NDArray[np.bool_]:
        """Whether server 1 and not server 0 has the control bit at the placed items' leaves."""
        assert self._leaves is not None
        return self._leaves[1].control[self._trees].astype(bool)

    def _seal(self, kind: Kind, zero: bytes, one: bytes) -> Messages:
        messages = []
        for party, content in enumerate((zero, one)):
            assert len(content) == content_bytes(self.round.parameters, kind, party)
            header = Header(kind, party, self.round.number, self.round.digest, self.client_id, self._nonce)
            messages.append(self._channels[party].seal(header, content))
        return messages[0], messages[1]

    def _step(self, before: str, after: str) -> None:
        self._need(before)
        self._state = after

    def _need(self, before: str) -> None:
        if self._state != before:
            raise TransportError(
                f"secemb: this client's session is {self._state!r}, not {before!r}: it asks, is served and sends once; "
                "make a new Client for another round"
            )

    def __repr__(self) -> str:
        return f"Client(round {self.round.number}, {self._state})"


def upload_bytes(round_: Round) -> int:
    """Bytes a client sends in a round, to both servers, in both phases."""
    p = round_.parameters
    kinds = (Kind.REQUEST, Kind.UPDATE)
    return sum(sealed_bytes(kind, content_bytes(p, kind, party)) for kind in kinds for party in (0, 1))


def download_bytes(round_: Round) -> int:
    """Bytes a client receives from both servers."""
    return 2 * sealed_bytes(Kind.RESPONSE, round_.parameters.response_bytes)


def forwarded_bytes(round_: Round) -> int:
    """Bytes server 0 forwards to server 1 for a client."""
    p = round_.parameters
    if p.whole_keys:
        return 0
    kinds = (Kind.FORWARD_REQUEST, Kind.FORWARD_UPDATE)
    return sum(
        len(Header(kind, 1, 0, bytes(32), bytes(16), bytes(16)).to_bytes()) + content_bytes(p, kind, 1)
        for kind in kinds
    )


def _below(bound: int, n: int) -> IntArray:
    """n numbers in 0 .. bound − 1 from the operating system's generator; bias below 2^-43 each, and bound < 2^21."""
    words = np.frombuffer(secrets.token_bytes(8 * n), dtype="<u8") >> np.uint64(21)
    drawn: IntArray = ((words * np.uint64(bound)) >> np.uint64(43)).astype(np.int64)
    return drawn


def _signed(words: NDArray[np.unsignedinteger]) -> IntArray:
    """Ring words as the numbers nearest to zero they stand for."""
    return words.view(np.dtype(f"i{words.dtype.itemsize}")).astype(np.int64)
