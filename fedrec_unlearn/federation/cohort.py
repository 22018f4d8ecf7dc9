"""Which clients take part in a round: a function of the seed and the round alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.config import FederationConfig
from fedrec_unlearn.errors import DataError
from fedrec_unlearn.seeds import Purpose, generator

IntArray = NDArray[np.int64]


class Cohorts:
    """Draws a round's clients.

    `permutation`: the clients in a random order, cut into cohorts of `clients_per_round`; every client takes
    part once per pass, and the last cohort of a pass may be smaller. `uniform`: a fresh subset each round.

    Args:
        eligible: ids of the clients that can train, shape (n,).
        config: `clients_per_round` (0: all) and `client_sampling`.
        seed: the run's seed.

    Raises:
        DataError: no client can train.
    """

    def __init__(self, eligible: IntArray, config: FederationConfig, seed: int) -> None:
        if not len(eligible):
            raise DataError("no user has a training interaction (and an unseen item): nothing to train on")
        self.eligible, self.seed = eligible, seed
        self.uniform = config.client_sampling == "uniform"
        self.size = min(config.clients_per_round or len(eligible), len(eligible))
        self.rounds_per_pass = -(-len(eligible) // self.size)
        self._pass = -1
        self._order = eligible

    @property
    def sizes(self) -> tuple[int, int]:
        """Clients of the smallest and of the largest round."""
        rest = 0 if self.uniform else len(self.eligible) % self.size
        return rest or self.size, self.size

    def of(self, round_number: int) -> IntArray:
        """Clients of a round (counted from 0), int64, distinct."""
        if self.uniform:
            draw = generator(self.seed, Purpose.COHORT, round_number)
            return draw.choice(self.eligible, size=self.size, replace=False, shuffle=False)
        which, place = divmod(round_number, self.rounds_per_pass)
        if which != self._pass:  # a cache: the order is a function of the pass
            self._order = generator(self.seed, Purpose.COHORT, which).permutation(self.eligible)
            self._pass = which
        return self._order[place * self.size : (place + 1) * self.size]
