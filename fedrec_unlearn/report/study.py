"""The content of bench.json, checked and read: arms of a study, what attackers read of each, what each keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from fedrec_unlearn.report.checks import check_format, field, finite, need
from fedrec_unlearn.report.inference import Estimate
from fedrec_unlearn.report.wording import listed, printable

EMBEDDING = "user_embedding"
"""The surface on which arms are compared first."""


@dataclass(frozen=True)
class Entry:
    """What attackers read of one attribute on one surface of one arm, over its seeds."""

    arm: str
    label: str
    """Name of the arm; it names the attributes where the arm unlearns several."""
    group: str
    """table or ablation."""
    unlearns: tuple[str, ...]
    method: str
    epsilon: float | None
    attribute: str
    surface: str
    chance: float
    attackers: dict[str, Estimate]
    """Attacker -> balanced accuracy."""
    worst_attacker: str
    worst: Estimate
    """Balanced accuracy of the attacker furthest from chance in either direction."""
    kept: dict[str, Estimate]
    """Metric -> share of the baseline's that is kept, paired by seed."""
    utility: dict[str, float | None]
    """Metric -> mean."""

    @property
    def distance(self) -> Estimate:
        """Of the worst attacker from chance, in either direction."""
        return self.worst.distance(self.chance)

    @property
    def furthest(self) -> tuple[float | None, float | None]:
        """(furthest above chance, furthest below) of the attackers' means, signed; None on a side without any."""
        found = [e.value - self.chance for e in self.attackers.values() if e.value is not None]
        above, below = [d for d in found if d > 0], [d for d in found if d < 0]
        return (max(above, default=None), min(below, default=None))


@dataclass(frozen=True)
class Attribute:
    """What is inferred."""

    classes: tuple[str, ...]
    counts: tuple[int, ...]
    chance: float
    majority: float | None


@dataclass(frozen=True)
class Study:
    """One study."""

    name: str
    title: str
    paper: str
    quick: bool
    created: str
    seeds: tuple[int, ...]
    utility: tuple[str, ...]
    baseline: str
    attributes: dict[str, Attribute]
    entries: tuple[Entry, ...]
    seconds: dict[str, float]
    """Arm -> median of its seconds over seeds."""
    pooled: frozenset[str]
    """Arms whose method sees all users' rows."""
    inversion: tuple[dict[str, Any], ...]
    targets: tuple[dict[str, Any], ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that charts show: NDCG where there is one."""
        return tuple(name for name in self.utility if name.startswith("ndcg@")) or self.utility

    def compared(self, attribute: str, surface: str = EMBEDDING, group: str = "table") -> list[Entry]:
        """The baseline and the arms of a group that unlearn an attribute, in the order of the study."""
        return [
            entry
            for entry in self.entries
            if (entry.attribute, entry.surface) == (attribute, surface)
            and (entry.arm == self.baseline or (entry.group == group and attribute in entry.unlearns))
        ]

    def base(self, attribute: str, surface: str = EMBEDDING) -> Entry | None:
        """The baseline's entry."""
        where = (self.baseline, attribute, surface)
        return next((entry for entry in self.entries if (entry.arm, entry.attribute, entry.surface) == where), None)

    def surfaces(self, attribute: str) -> list[str]:
        """Surfaces on which an attribute was attacked, in order of appearance."""
        return list(dict.fromkeys(entry.surface for entry in self.entries if entry.attribute == attribute))


def read_study(content: Mapping[str, Any], where: object) -> Study:
    """Check and read the content of bench.json.

    Raises:
        RunError: a field is missing or of the wrong type; the message names it.
    """
    check_format(content, where)
    for key in ("study", "title", "baseline"):
        field(content, key, "a text", where)
    for key in ("paper", "created"):
        field(content, key, "a text", where, required=False)
    for key in ("seeds", "utility", "rows", "summary"):
        field(content, key, "a list", where)
    for key in ("inversion", "targets"):
        field(content, key, "a list", where, required=False)
    field(content, "attributes", "an object", where)
    attributes = {
        printable(name): _attribute(found, f"{where}: attributes: {name}")
        for name, found in content["attributes"].items()
    }
    entries = tuple(
        _entry(entry, attributes, f"{where}: summary[{number}]") for number, entry in enumerate(content["summary"])
    )
    seconds: dict[str, list[float]] = {}
    pooled = set()
    for number, row in enumerate(content["rows"]):
        at = f"{where}: rows[{number}]"
        need(isinstance(row, dict), at, "must be an object")
        field(row, "arm", "a text", at)
        field(row, "seconds", "a number", at, required=False)
        if (value := finite(row.get("seconds"))) is not None:
            seconds.setdefault(printable(row["arm"]), []).append(value)
        if row.get("pooled_rows"):
            pooled.add(printable(row["arm"]))
    return Study(
        name=printable(content["study"]),
        title=printable(content["title"]),
        paper=printable(content.get("paper") or ""),
        quick=bool(content.get("quick")),
        created=printable(content.get("created") or ""),
        seeds=tuple(int(seed) for seed in content["seeds"]),
        utility=tuple(printable(str(name)) for name in content["utility"]),
        baseline=printable(content["baseline"]),
        attributes=attributes,
        entries=entries,
        seconds={arm: median(values) for arm, values in seconds.items()},
        pooled=frozenset(pooled),
        inversion=tuple(
            _inversion(r, f"{where}: inversion[{k}]") for k, r in enumerate(content.get("inversion") or ())
        ),
        targets=tuple(_target(t, f"{where}: targets[{k}]") for k, t in enumerate(content.get("targets") or ())),
    )


def _attribute(found: Any, where: str) -> Attribute:
    need(isinstance(found, dict), where, "must be an object")
    field(found, "classes", "a list", where)
    field(found, "counts", "a list", where)
    field(found, "chance", "a number", where)
    return Attribute(
        tuple(printable(str(name)) for name in found["classes"]),
        tuple(int(count) for count in found["counts"]),
        float(found["chance"]),
        finite(found.get("majority")),
    )


def _entry(entry: Any, attributes: Mapping[str, Attribute], where: str) -> Entry:
    need(isinstance(entry, dict), where, "must be an object")
    for key in ("arm", "label", "attribute", "surface", "method"):
        field(entry, key, "a text", where)
    field(entry, "unlearns", "a list", where)
    for key in ("attackers", "worst", "utility"):
        field(entry, key, "an object", where)
    field(entry["worst"], "attacker", "a text", f"{where}: worst")
    name = printable(entry["attribute"])
    need(name in attributes, where, f"attribute {name!r} is not among 'attributes'")
    unlearns = tuple(printable(str(other)) for other in entry["unlearns"])
    label = printable(entry["label"]).replace("ε ", "ε\u00a0")
    kept, utility = {}, {}
    for metric, found in entry["utility"].items():
        field(entry["utility"], metric, "an object", f"{where}: utility")
        kept[printable(metric)] = _estimate(found, "ratio")
        utility[printable(metric)] = finite(found.get("mean"))
    return Entry(
        arm=printable(entry["arm"]),
        label=f"{label} ({listed(list(unlearns))})" if len(unlearns) > 1 else label,
        group=printable(str(entry.get("group") or "table")),
        unlearns=unlearns,
        method=printable(entry["method"]),
        epsilon=finite(entry.get("epsilon")),
        attribute=name,
        surface=printable(entry["surface"]),
        chance=attributes[name].chance,
        attackers={printable(attacker): _estimate(found, "mean") for attacker, found in entry["attackers"].items()},
        worst_attacker=printable(entry["worst"]["attacker"]),
        worst=_estimate(entry["worst"], "mean"),
        kept=kept,
        utility=utility,
    )


def _estimate(found: Mapping[str, Any], value: str) -> Estimate:
    return Estimate(finite(found.get(value)), finite(found.get("low")), finite(found.get("high")))


def _inversion(result: Any, where: str) -> dict[str, Any]:
    need(isinstance(result, dict), where, "must be an object")
    for key in ("adversary", "defence", "attack"):
        field(result, key, "a text", where)
    for key in ("accuracy", "chance"):
        field(result, key, "a number", where)
    for key in ("low", "high", "n", "classes"):
        field(result, key, "a number", where, required=False)
    for key in ("attribute", "head", "stage"):
        field(result, key, "a text", where, required=False)
    return {key: printable(value) if isinstance(value, str) else value for key, value in result.items()}


def _target(target: Any, where: str) -> dict[str, Any]:
    need(isinstance(target, dict), where, "must be an object")
    for key in ("aim", "must", "measured"):
        field(target, key, "a text", where)
    field(target, "met", "true or false", where)
    return {key: printable(value) if isinstance(value, str) else value for key, value in target.items()}
