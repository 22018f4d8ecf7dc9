"""What a run has unlearned, and what that did: figures before and after, of the same users and items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.report.checks import finite
from fedrec_unlearn.report.curves import FloatArray, moving_mean
from fedrec_unlearn.report.inference import AttackResult, attack_results, worst_result
from fedrec_unlearn.report.methods import Method, method_of
from fedrec_unlearn.report.record import RunRecord
from fedrec_unlearn.report.wording import CONTROLS, printable

Ranking = Mapping[str, Mapping[str, float | None]]

ADVERSARY_WINDOW = 25
"""Rounds in the moving mean of the training adversary's accuracy."""


@dataclass(frozen=True)
class Reference:
    """A run beside that has unlearned nothing: what "before" is where a run's own state before was not measured."""

    label: str
    name: str
    data: str
    """Fingerprint, or name, of the data: only runs on the same data are compared."""
    seed: object
    attack: tuple[AttackResult, ...]
    ranking: Ranking
    round_seconds: float | None
    round_bytes_up: float | None


@dataclass(frozen=True)
class Kept:
    """A ranking metric on test data before and after."""

    metric: str
    before: float | None
    after: float | None

    @property
    def ratio(self) -> float | None:
        """After over before."""
        if self.before is None or self.after is None or self.before == 0:
            return None
        return self.after / self.before


@dataclass(frozen=True)
class Leak:
    """What the worst attacker on a surface learns of an attribute, before and after."""

    attribute: str
    surface: str
    unlearned: bool
    """Whether the attribute was to be unlearned."""
    before: AttackResult | None
    after: AttackResult | None
    telling: AttackResult | None
    """Of the attacks after, the furthest from chance of those that are beyond luck; None if none is."""

    @property
    def chance(self) -> float:
        """Balanced accuracy of guessing."""
        found = self.after or self.before
        assert found is not None
        return found.chance

    @property
    def change(self) -> float | None:
        """Distance of the worst attacker from chance: after less before."""
        before = None if self.before is None else self.before.distance.value
        after = None if self.after is None else self.after.distance.value
        return None if before is None or after is None else after - before

    @property
    def overshoot(self) -> bool:
        """The attribute can be told, and better than before, by more than the interval over seeds."""
        if self.telling is None or self.before is None or self.before.distance.value is None:
            return False
        reached = self.telling.distance
        low = reached.value if reached.low is None else reached.low
        return low is not None and low > self.before.distance.value


@dataclass(frozen=True)
class Adversary:
    """How well the training adversary did, round by round."""

    attribute: str
    round: NDArray[np.int64]
    accuracy: FloatArray
    """Share of the round's clients whose class it named; NaN where it was not recorded."""
    smooth: FloatArray
    window: int
    """Rounds in the moving mean."""
    n_classes: int | None
    majority: float | None
    """Share of the largest class: the accuracy of always naming it."""


@dataclass(frozen=True)
class Unlearning:
    """One run that has unlearned attributes."""

    method: str
    """As in run.json."""
    attributes: tuple[str, ...]
    epsilon: float | None
    chosen: bool
    source: str | None
    """Name of the run it started from, None where it was trained from scratch."""
    secure_sums: bool | None
    seconds: float | None
    """Of the step after training."""
    bytes_up: float | None
    """Of the step after training, all clients together."""
    bytes_down: float | None
    known: dict[str, int]
    missing: dict[str, int]
    pooled_rows: bool
    leaks: tuple[Leak, ...]
    """Unlearned attributes first."""
    leaks_before: str | None
    """Which state the attacks before were on, in words; None where there are none."""
    kept: tuple[Kept, ...]
    kept_before: str | None
    """Which state the ranking before is of, in words; None where there is none."""
    reference: Reference | None
    """The run beside that it is held against, if there is one on the same data."""
    adversary: tuple[Adversary, ...]

    @property
    def keeps_copy(self) -> bool:
        """Whether its run folder keeps the embeddings before unlearning."""
        return self.source is not None or (self.words.afterwards and not self.words.during)

    @property
    def words(self) -> Method:
        """The method in words."""
        return method_of(self.method)

    def of(self, attribute: str) -> list[Leak]:
        """Leaks of one attribute."""
        return [leak for leak in self.leaks if leak.attribute == attribute]


def unlearning_of(
    record: RunRecord,
    attack: tuple[AttackResult, ...],
    ranking: Ranking,
    references: Sequence[Reference],
    data: str,
) -> Unlearning | None:
    """Figures of a run's unlearning, None if it has unlearned nothing.

    Args:
        record: the run.
        attack: its attacks after unlearning.
        ranking: its ranking table.
        references: runs of the same report that have unlearned nothing.
        data: fingerprint, or name, of its data.
    """
    told = record.run.get("unlearn")
    if not told or told["method"] == "none":
        return None
    source = printable(told["source"]) if told.get("source") else None
    reference = _reference(references, data, source, record.run.get("seed"))
    before = attack_results((record.attack or {}).get("before") or [])
    metrics = {printable(k): finite(v) for k, v in ((record.metrics or {}).get("before") or {}).items()}
    leaks_before = kept_before = f"the run {source}" if source else "the state before the step"
    if reference is not None and not before:
        before, leaks_before = reference.attack, f"the run {reference.label}"
    if reference is not None and not metrics:
        metrics = {name: parts.get("test") for name, parts in reference.ranking.items()}
        kept_before = f"the run {reference.label}"
    attributes = tuple(printable(name) for name in told["attributes"])
    kept = [Kept(name, metrics.get(name), parts.get("test")) for name, parts in ranking.items()]
    return Unlearning(
        method=printable(told["method"]),
        attributes=attributes,
        epsilon=finite(told.get("epsilon")),
        chosen=bool(told.get("chosen")),
        source=source,
        secure_sums=told.get("secure_sums"),
        seconds=finite(told.get("seconds")),
        bytes_up=finite(told.get("bytes_up")),
        bytes_down=finite(told.get("bytes_down")),
        known=_counts(told.get("known")),
        missing=_counts(told.get("missing")),
        pooled_rows=bool(told.get("pooled_rows")),
        leaks=_leaks(before, attack, attributes),
        leaks_before=leaks_before if before else None,
        kept=tuple(pair for pair in kept if pair.before is not None and pair.after is not None),
        kept_before=kept_before if metrics else None,
        reference=reference,
        adversary=_adversaries(record, attributes),
    )


def _reference(references: Sequence[Reference], data: str, source: str | None, seed: object) -> Reference | None:
    fitting = [reference for reference in references if reference.data == data]
    # the run it started from, else one of the same seed, else the first
    fitting.sort(key=lambda reference: (printable(reference.name) != source, reference.seed != seed))
    return fitting[0] if fitting else None


def _counts(found: Mapping[str, Any] | None) -> dict[str, int]:
    return {printable(name): int(number) for name, number in (found or {}).items() if number is not None}


def _leaks(
    before: tuple[AttackResult, ...], after: tuple[AttackResult, ...], attributes: tuple[str, ...]
) -> tuple[Leak, ...]:
    targets = list(dict.fromkeys(result.target for result in (*after, *before) if result.surface not in CONTROLS))
    targets.sort(key=lambda target: target[0] not in attributes)
    leaks = []
    for attribute, surface in targets:
        telling = [r for r in after if r.target == (attribute, surface) and r.beyond_luck]
        leaks.append(
            Leak(
                attribute,
                surface,
                attribute in attributes,
                worst_result(before, attribute, surface),
                worst_result(after, attribute, surface),
                max(telling, key=lambda r: r.distance.value or 0.0, default=None),
            )
        )
    return tuple(leaks)


def _adversaries(record: RunRecord, attributes: tuple[str, ...]) -> tuple[Adversary, ...]:
    events = {event["round"]: event for event in record.events if event["event"] == "round" and event.get("adversary")}
    numbers = sorted(events)
    described = (record.run.get("data") or {}).get("attributes") or {}
    found = []
    for name in dict.fromkeys(key for number in numbers for key in events[number]["adversary"]):
        groups = [events[number]["adversary"].get(name) or {} for number in numbers]
        accuracy, clients = (
            np.array([np.nan if (v := finite(g.get(key))) is None else v for g in groups], dtype=np.float64)
            for key in ("accuracy", "clients")
        )
        window = max(1, min(ADVERSARY_WINDOW, len(numbers) // 8) // 2 * 2 + 1)
        sizes = (described.get(name) or {}).get("classes") or {}
        users = [size for size in sizes.values() if isinstance(size, int)] if isinstance(sizes, Mapping) else []
        found.append(
            Adversary(
                printable(name),
                np.array(numbers, dtype=np.int64),
                accuracy,
                moving_mean(accuracy, clients, window),
                window,
                len(users) or None,
                max(users) / sum(users) if users and sum(users) else None,
            )
        )
    return tuple(sorted(found, key=lambda a: a.attribute not in attributes))
