"""Tables of a study as rows of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedrec_unlearn.report.inference import Estimate
from fedrec_unlearn.report.protection import SPECIFIC
from fedrec_unlearn.report.study import EMBEDDING, Entry, Study
from fedrec_unlearn.report.tables import MISSING, Cell, Row, estimate_cell
from fedrec_unlearn.report.wording import (
    attacker_name,
    count,
    decimal,
    duration,
    listed,
    metric_in_full,
    percent,
    signed,
    surface_name,
)

GRADIENT_ATTACKS = {
    "bias_sign": "bias sign",
    "row_sum": "row sum (iDLG)",
    "gram": "Gram",
    "exact": "exact",
    "dlg": "DLG",
    "dlg_noise": "DLG, noise too",
    "dlg_residual": "DLG, residual",
}
"""Attack on gradients -> name."""

DEFENCES = {
    "none": "none",
    "label_rr": "randomised response",
    "soft_labels": "soft labels",
    "pruning": "pruning",
    "clip_noise": "clipping and noise",
    "secure_aggregation": "secure aggregation",
}
"""What stands between a client's gradient and the attacker -> name."""

ADVERSARIES = {"mlp": "MLP", "vae": "VAE", "dsvae": "DSVAE"}
"""Adversary -> name."""


def inferred_rows(study: Study) -> list[Row]:
    """What is inferred: classes, chance and majority of each attribute."""
    return [
        Row(
            name,
            (
                Cell("; ".join(f"{c}: {count(n)}" for c, n in zip(found.classes, found.counts, strict=False))),
                Cell(percent(found.chance), found.chance),
                MISSING if found.majority is None else Cell(percent(found.majority), found.majority),
            ),
        )
        for name, found in study.attributes.items()
    ]


def arm_columns(study: Study, entries: Sequence[Entry]) -> list[str]:
    """Columns of the table of arms; the first holds words."""
    attackers = [attacker_name(name) for name in _attackers(entries)]
    kept = [f"Kept: {metric_in_full(m)}" for m in study.metrics]
    return ["Arm", *attackers, "Furthest above", "Furthest below", *kept, *(["Time"] if study.seconds else [])]


def arm_rows(study: Study, entries: Sequence[Entry]) -> list[Row]:
    """A row an arm: balanced accuracy of each attacker, the worst in both directions, what is kept, and its time."""
    attackers = _attackers(entries)
    rows = []
    for entry in entries:
        cells = []
        for attacker in attackers:
            found = entry.attackers.get(attacker)
            worst = attacker == entry.worst_attacker
            value = None if found is None else found.value
            cells.append(MISSING if value is None else Cell(decimal(value), value, mark=worst))
        cells += [_end(entry, distance) for distance in entry.furthest]
        cells += [_kept_cell(study, entry, metric) for metric in study.metrics]
        if study.seconds:
            seconds = study.seconds.get(entry.arm)
            cells.append(MISSING if seconds is None else Cell(duration(seconds), seconds))
        rows.append(Row(f"{entry.label}{' *' if entry.arm in study.pooled else ''}", tuple(cells)))
    return rows


def surface_rows(study: Study, attribute: str) -> tuple[list[str], list[Row]]:
    """(columns, rows): an arm a row, a surface a column with its worst attacker; marked where it is over-shoot."""
    surfaces = study.surfaces(attribute)
    arms = list(dict.fromkeys(e.arm for s in surfaces for e in study.compared(attribute, s)))
    rows = []
    for arm in arms:
        cells, label = [], arm
        for surface in surfaces:
            found = next((e for e in study.compared(attribute, surface) if e.arm == arm), None)
            if found is None or found.worst.value is None:
                cells.append(MISSING)
                continue
            label = found.label
            base = study.base(attribute, surface)
            cells.append(estimate_cell(found.worst, mark=base is not None and is_overshoot(found, base)))
        rows.append(Row(label, tuple(cells)))
    return ["Arm", *(surface_name(surface) for surface in surfaces)], rows


def is_overshoot(entry: Entry, base: Entry) -> bool:
    """Whether an arm is further from chance than the baseline on the same surface, by more than its interval."""
    found, before = entry.distance, base.distance.value
    reached = found.value if found.low is None else found.low
    return entry.arm != base.arm and reached is not None and before is not None and reached > before


SPECIFICITY_COLUMNS = ("Arm", "Unlearns", "Not unlearned", "Worst attacker", "Without unlearning", "Distance, change")
"""Columns of the table of attributes that an arm does not unlearn; the first three hold words."""


def specificity_rows(study: Study) -> list[Row]:
    """Attributes that an arm does not unlearn: how far the worst attacker's distance from chance has changed."""
    rows = []
    for entry in study.entries:
        if entry.surface != EMBEDDING or entry.arm == study.baseline or entry.attribute in entry.unlearns:
            continue
        base = study.base(entry.attribute)
        before = None if base is None else base.distance.value
        after = entry.distance.value
        if base is None or before is None or after is None:
            continue
        change = after - before
        cells = (
            Cell(listed(list(entry.unlearns)) if entry.unlearns else "nothing"),
            Cell(entry.attribute),
            estimate_cell(entry.worst),
            estimate_cell(base.worst),
            Cell(signed(change), change, mark=abs(change) > SPECIFIC),
        )
        rows.append(Row(entry.label, cells))
    return rows


@dataclass(frozen=True)
class InversionTable:
    """Attacks on an adversary's gradients for one attribute: an adversary and defence a row, an attack a column."""

    title: str
    columns: tuple[str, ...]
    """The first three hold words."""
    rows: tuple[Row, ...]
    """Marked are accuracies whose 95 % interval leaves chance out."""


def inversion_tables(study: Study) -> list[InversionTable]:
    """A table an attribute and number of classes, in order of appearance."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for result in study.inversion:
        classes = f"{result['classes']} classes, " if result.get("classes") else ""
        attribute = f"{result['attribute']}, " if result.get("attribute") else ""
        title = f"Accuracy of each attack: {attribute}{classes}chance {decimal(float(result['chance']))}"
        parts.setdefault(title, []).append(result)
    return [_inversion_table(title, results) for title, results in parts.items()]


def _inversion_table(title: str, results: Sequence[dict[str, Any]]) -> InversionTable:
    attacks = list(dict.fromkeys(result["attack"] for result in results))
    places: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for result in results:
        adversary = ADVERSARIES.get(result["adversary"], result["adversary"])
        if result.get("head") and result["head"] != "none":
            adversary += f", {result['head']} drawn"
        defence = DEFENCES.get(result["defence"], result["defence"])
        places.setdefault((adversary, str(result.get("stage") or ""), defence), {})[result["attack"]] = result
    rows = [
        Row(adversary, (Cell(stage), Cell(defence), *(_inversion_cell(found.get(attack)) for attack in attacks)))
        for (adversary, stage, defence), found in places.items()
    ]
    names = (GRADIENT_ATTACKS.get(attack, attack) for attack in attacks)
    return InversionTable(title, ("Adversary", "Parameters", "Defence", *names), tuple(rows))


def _inversion_cell(result: dict[str, Any] | None) -> Cell:
    if result is None:
        return MISSING
    accuracy, chance, low, high = (result.get(key) for key in ("accuracy", "chance", "low", "high"))
    assert isinstance(accuracy, int | float)
    assert isinstance(chance, int | float)
    bounded = isinstance(low, int | float) and isinstance(high, int | float)
    telling = bounded and not low <= chance <= high  # type: ignore[operator]
    return Cell(decimal(accuracy, 2), float(accuracy), mark=telling)


def target_rows(study: Study) -> list[Row]:
    """Aims, what each asks for, what was measured, and whether it is met."""
    return [
        Row(
            target["aim"],
            (Cell("met" if target["met"] else "not met"), Cell(target["must"]), Cell(target["measured"])),
        )
        for target in study.targets
    ]


def _attackers(entries: Sequence[Entry]) -> list[str]:
    return list(dict.fromkeys(name for entry in entries for name in entry.attackers))


def _kept_cell(study: Study, entry: Entry, metric: str) -> Cell:
    found = entry.kept.get(metric, Estimate(None))
    # the baseline is compared with itself: 1, without any spread
    return estimate_cell(Estimate(found.value) if entry.arm == study.baseline else found)


def _end(entry: Entry, distance: float | None) -> Cell:
    """The furthest on one side of chance; that of the worst attacker with its interval."""
    if distance is None:
        return MISSING
    worst = entry.worst.minus(entry.chance)
    if worst.value is not None and worst.value * distance > 0 and abs(worst.value) >= abs(distance) - 1e-12:
        return estimate_cell(worst, signed, mark=True)
    return Cell(signed(distance), distance)
