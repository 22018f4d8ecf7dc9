"""How often a user's data enter what is published, and what two runs differ in that are not to be told apart."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fedrec_unlearn.errors import ConfigError


class Sampling(StrEnum):
    """Which clients take part in a round."""

    EVERY_ROUND = "every_round"
    PERMUTATION = "permutation"
    POISSON = "poisson"
    WITHOUT_REPLACEMENT = "without_replacement"


class Neighbours(StrEnum):
    """In what two runs differ that are not to be told apart."""

    ZERO_OUT = "zero_out"
    ADD_OR_REMOVE = "add_or_remove"
    REPLACE_ONE = "replace_one"

    @property
    def sensitivity(self) -> int:
        """By how many clipping norms a sum can differ, at most."""
        return 2 if self is Neighbours.REPLACE_ONE else 1


@dataclass(frozen=True)
class Schedule:
    """How often a user's data enter a published sum, and against which neighbour they are protected.

    Raises:
        ConfigError: a number is out of range, or sampling and neighbours do not go together.
    """

    rounds: int
    """How many sums are opened, 0 or more."""
    clients: int
    """How many users can take part."""
    clients_per_round: int
    """How many do, on average for `poisson`; 0 for all."""
    sampling: Sampling
    neighbours: Neighbours

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampling", _member(Sampling, self.sampling, "sampling"))
        object.__setattr__(self, "neighbours", _member(Neighbours, self.neighbours, "neighbours"))
        if self.rounds < 0 or self.clients < 1 or not 0 <= self.clients_per_round <= self.clients:
            raise ConfigError(
                f"{self.rounds} rounds with {self.clients_per_round} of {self.clients} clients cannot be accounted for"
            )
        replaced = self.neighbours is Neighbours.REPLACE_ONE
        if self.sampling is Sampling.POISSON and replaced:
            raise ConfigError("poisson sampling is accounted for with neighbours zero_out or add_or_remove")
        if self.sampling is Sampling.WITHOUT_REPLACEMENT and not replaced:
            raise ConfigError("sampling without_replacement is accounted for with neighbours replace_one")

    @property
    def size(self) -> int:
        """Clients in a round."""
        return self.clients_per_round or self.clients

    @property
    def participations(self) -> int:
        """Rounds that count for one user: all of them, or one per pass begun for `permutation`."""
        if self.sampling is Sampling.PERMUTATION:
            return -(-self.rounds // -(-self.clients // self.size))
        return self.rounds

    @property
    def sampling_rate(self) -> float:
        """Probability that a user takes part in a round that counts; 1 where no amplification is claimed."""
        amplified = self.sampling in (Sampling.POISSON, Sampling.WITHOUT_REPLACEMENT)
        return self.size / self.clients if amplified else 1.0


def _member(kind: Any, value: str, what: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise ConfigError(f"{what} is one of {', '.join(kind)}, not {value!r}") from None
