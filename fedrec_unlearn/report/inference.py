"""What attribute inference found: one result an attacker, judged against guessing in either direction."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedrec_unlearn.report.checks import finite
from fedrec_unlearn.report.wording import printable

Verdict = Literal["leaks", "inverted", "luck", "none", "open"]
"""leaks: right more often than by luck; inverted: wrong more often than by luck, which tells as much; luck: outside
the interval over seeds, but guessing comes as far with so few users; none: chance lies within the interval; open:
without an interval (one seed), or without a figure."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval; None where it was not measured."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def minus(self, amount: float) -> Estimate:
        """The same estimate, counted from `amount`."""
        value, low, high = (None if v is None else v - amount for v in (self.value, self.low, self.high))
        return Estimate(value, low, high)

    def distance(self, amount: float) -> Estimate:
        """How far the value is from `amount` in either direction; the interval ends at 0 where it crosses it."""
        found = self.minus(amount)
        if found.value is None:
            return found
        low, high = found.low, found.high
        if found.value < 0:
            low, high = (None if high is None else -high), (None if low is None else -low)
        return Estimate(abs(found.value), None if low is None else max(low, 0.0), high)


@dataclass(frozen=True)
class AttackResult:
    """One attacker against one attribute."""

    attribute: str
    surface: str
    attacker: str
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    n_users: int | None
    n_missing: int | None
    chance: float
    majority: float | None
    balanced_accuracy: Estimate
    macro_f1: Estimate
    auc: Estimate
    accuracy: Estimate
    worst: bool
    """The balanced accuracy furthest from chance, in either direction, of those that attack the same attribute on
    the same surface."""

    @property
    def guessing_error(self) -> float:
        """How far from chance guessing comes by luck with these users: 1.96 standard errors of its balanced accuracy.

        The interval over seeds does not cover this: other seeds are other folds of the same users.
        """
        spread = self.chance * (1.0 - self.chance) * sum(1.0 / count for count in self.counts if count)
        return float(1.96 * spread**0.5 / max(len(self.counts), 1))

    @property
    def above_chance(self) -> Estimate:
        """Balanced accuracy less that of guessing."""
        return self.balanced_accuracy.minus(self.chance)

    @property
    def distance(self) -> Estimate:
        """How far the balanced accuracy is from that of guessing, in either direction.

        An attacker that is reliably wrong has found the attribute as well: whoever knows that, inverts it.
        """
        return self.balanced_accuracy.distance(self.chance)

    @property
    def verdict(self) -> Verdict:
        """What the balanced accuracy says; see `Verdict`."""
        value, low, high = self.balanced_accuracy.value, self.balanced_accuracy.low, self.balanced_accuracy.high
        if value is None or low is None or high is None:
            return "open"
        if low <= self.chance <= high:
            return "none"
        if abs(value - self.chance) <= self.guessing_error:
            return "luck"
        return "leaks" if value > self.chance else "inverted"

    @property
    def beyond_luck(self) -> bool:
        """Whether the attribute can be told from what was seen; without an interval, further than guessing comes."""
        value = self.balanced_accuracy.value
        if self.verdict == "open":
            return value is not None and abs(value - self.chance) > self.guessing_error
        return self.verdict in ("leaks", "inverted")

    @property
    def target(self) -> tuple[str, str]:
        """(attribute, surface)."""
        return (self.attribute, self.surface)


def attack_results(entries: Sequence[Mapping[str, Any]]) -> tuple[AttackResult, ...]:
    """Results of attack.json (`results` or `before`), with the worst of each attribute and surface marked."""
    worst: dict[tuple[str, str], int] = {}
    for number, entry in enumerate(entries):
        best = worst.setdefault((entry["attribute"], entry["surface"]), number)
        if _reached(entry) > _reached(entries[best]):
            worst[(entry["attribute"], entry["surface"])] = number
    return tuple(
        AttackResult(
            attribute=printable(entry["attribute"]),
            surface=printable(entry["surface"]),
            attacker=printable(entry["attacker"]),
            classes=tuple(printable(name) for name in entry["classes"]),
            counts=tuple(int(count) for count in entry["counts"]),
            n_users=entry.get("n_users"),
            n_missing=entry.get("n_missing"),
            chance=float(entry["chance"]),
            majority=finite(entry.get("majority")),
            balanced_accuracy=_estimate(entry["balanced_accuracy"]),
            macro_f1=_estimate(entry.get("macro_f1")),
            auc=_estimate(entry.get("auc")),
            accuracy=_estimate(entry.get("accuracy")),
            worst=worst[(entry["attribute"], entry["surface"])] == number,
        )
        for number, entry in enumerate(entries)
    )


def worst_result(results: Iterable[AttackResult], attribute: str, surface: str) -> AttackResult | None:
    """The attack furthest from chance on an attribute and a surface, None if there was none."""
    return next((r for r in results if r.worst and r.target == (attribute, surface)), None)


def _estimate(found: Mapping[str, Any] | None) -> Estimate:
    found = found or {}
    return Estimate(finite(found.get("mean")), finite(found.get("low")), finite(found.get("high")))


def _reached(entry: Mapping[str, Any]) -> float:
    value = finite(entry["balanced_accuracy"]["mean"])
    return -math.inf if value is None else abs(value - float(entry["chance"]))
