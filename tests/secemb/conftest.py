"""What the tests of SecEmb share: a round's parameters and table, its clients, and what plain addition says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedrec_unlearn.secemb.client import Client, Messages
from fedrec_unlearn.secemb.local import LocalPair
from fedrec_unlearn.secemb.parameters import Parameters, Round
from fedrec_unlearn.secemb.server import Server, Total

IntArray = NDArray[np.int64]

SMALL: dict[str, Any] = {
    "n_items": 61,
    "width": 3,
    "payload": 4,
    "dense": 2,
    "max_items": 5,
    "bins": 12,
    "limit": 1000,
    "max_clients": 8,
    "min_clients": 2,
}
"""Parameters of a round that is over in a moment; its bins have 21 slots, not a power of two."""


@dataclass
class Play:
    """A round with both servers in this process, and the same sums by plain addition beside it."""

    round: Round
    table: IntArray
    pair: LocalPair
    rows: IntArray
    dense: IntArray
    clients: list[Client] = field(default_factory=list)
    items: list[IntArray] = field(default_factory=list)

    @property
    def servers(self) -> tuple[Server, Server]:
        return self.pair.servers

    def client(self, number: int | None = None) -> Client:
        """A client; identifiers follow from its number."""
        number = len(self.clients) if number is None else number
        made = Client(self.round, self.pair.keys, client_id(number))
        self.clients.append(made)
        return made

    def ask(self, held: Sequence[IntArray]) -> list[Messages]:
        """New clients with these items ask; their updates, still to be made, belong to `self.clients`."""
        news = [self.client() for _ in held]
        self.items.extend(held)
        return self.pair.request([client.request(items) for client, items in zip(news, held, strict=True)])

    def count(self, client: Client, items: IntArray, rows: IntArray, dense: IntArray) -> None:
        """What the client's update adds to the plain sums."""
        limit = self.round.parameters.limit
        self.rows[items[client.placed]] += np.clip(rows, -limit, limit)
        self.dense += dense

    def check(self, total: Total) -> None:
        np.testing.assert_array_equal(total.rows, self.rows)
        np.testing.assert_array_equal(total.dense, self.dense)


def client_id(number: int) -> bytes:
    return hashlib.sha256(f"client {number}".encode()).digest()[:16]


def _make(number: int = 3, seed: int = 0, table: IntArray | None = None, **options: Any) -> Play:
    p = Parameters(**(SMALL | options))
    if table is None:
        table = np.random.default_rng(seed).integers(-(1 << 31), 1 << 31, (p.n_items, p.width))
    round_ = Round.of(p, b"a run's 16 bytes", number, table)
    pair = LocalPair()
    pair.open(round_, table)
    return Play(round_, table, pair, np.zeros((p.n_items, p.payload), dtype=np.int64), np.zeros(p.dense, np.int64))


def _complete(play: Play, held: Sequence[IntArray], seed: int = 0, reach: int | None = None) -> Total:
    """Bring clients with these items through the whole round; rows are checked on the way."""
    p, rng = play.round.parameters, np.random.default_rng(seed)
    reach = p.limit if reach is None else reach
    first = len(play.clients)
    updates = []
    answers = play.ask(held)
    for client, items, responses in zip(play.clients[first:], held, answers, strict=True):
        np.testing.assert_array_equal(client.rows(responses), play.table[items[client.placed]])
        rows = rng.integers(-reach, reach, (len(client.placed), p.payload), endpoint=True)
        dense = rng.integers(-(1 << 40), 1 << 40, p.dense)
        play.count(client, items, rows, dense)
        updates.append(client.update(rows, dense))
    play.pair.update(updates)
    return play.pair.close()


@pytest.fixture(scope="session")
def make_round() -> Callable[..., Play]:
    """`make_round(number=3, seed=0, table=None, **parameters) -> Play`; parameters over those of a small round."""
    return _make


@pytest.fixture(scope="session")
def complete() -> Callable[..., Total]:
    """`complete(play, held, seed=0, reach=None) -> Total`: all clients to the end, rows compared on the way."""
    return _complete
