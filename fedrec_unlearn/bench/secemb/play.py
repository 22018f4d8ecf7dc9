"""A round that is measured: clients with as many items as they may hold, and what their sums are in the clear.

Nothing that is measured may be wrong: `check_rows` and `check_sum` compare with plain integers, to the last bit.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.client import Client, Messages
from fedrec_unlearn.secemb.parameters import IntArray, Parameters, Round
from fedrec_unlearn.secemb.server import Total
from fedrec_unlearn.seeds import Purpose, generator

SEED = 0
"""Of items, table and updates; costs do not depend on them."""


@dataclass(frozen=True)
class Play:
    """A round, and what its clients hold."""

    round: Round
    table: IntArray
    items: list[IntArray]
    """m' distinct items of each client."""
    rows: list[IntArray]
    """Update of each of them, (m', payload)."""
    dense: list[IntArray]

    @classmethod
    def of(cls, parameters: Parameters, clients: int, fraction_bits: int) -> Play:
        """A round with random items and rows of about the size a trained model has."""
        draws = generator(SEED, Purpose.SYNTHETIC, parameters.n_items)
        scale = 0.05 * 2.0**fraction_bits
        shape = parameters.n_items, parameters.width
        table = np.rint(scale * draws.standard_normal(shape)).astype(np.int64)
        held = min(parameters.max_items, parameters.n_items)
        largest = min(parameters.limit, 1 << fraction_bits)

        def numbers(*shape: int) -> IntArray:
            return draws.integers(-largest, largest, size=shape, endpoint=True)

        return cls(
            Round.of(parameters, secrets.token_bytes(16), 0, table),
            table,
            [draws.choice(parameters.n_items, held, replace=False) for _ in range(clients)],
            [numbers(held, parameters.payload) for _ in range(clients)],
            [numbers(parameters.dense) for _ in range(clients)],
        )

    def sessions(self, keys: tuple[bytes, bytes]) -> list[Client]:
        """A session for each client."""
        return [Client(self.round, keys, secrets.token_bytes(16)) for _ in self.items]

    def check_rows(self, sessions: Sequence[Client], received: Sequence[IntArray]) -> None:
        """See that the first clients received the rows they asked for.

        Raises:
            TransportError: they did not.
        """
        for session, items, rows in zip(sessions, self.items, received, strict=False):
            if not np.array_equal(rows, self.table[items[session.placed]]):
                raise TransportError("secemb: rows that were retrieved are not those of the table")

    def check_sum(self, sessions: Sequence[Client], total: Total) -> None:
        """See that a sum over these, the first clients, is what plain integers add up to.

        Raises:
            TransportError: it is not.
        """
        expected = np.zeros((len(self.table), self.round.parameters.payload), dtype=np.int64)
        dense = np.zeros(self.round.parameters.dense, dtype=np.int64)
        for client, session in enumerate(sessions):
            placed = session.placed
            np.add.at(expected, self.items[client][placed], self.rows[client][placed])
            dense += self.dense[client]
        if not (np.array_equal(expected, total.rows) and np.array_equal(dense, total.dense)):
            raise TransportError("secemb: the opened sum is not the sum of the clients' updates")

    def updates(self, sessions: Sequence[Client]) -> list[Messages]:
        """Updates of the first clients."""
        return [
            session.update(self.rows[client][session.placed], self.dense[client])
            for client, session in enumerate(sessions)
        ]
