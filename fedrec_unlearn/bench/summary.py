"""From the rows of a study, one for each arm and seed, to means with intervals: the content of bench.json.

Intervals are 95 % t-intervals over training seeds. Each seed has its own folds and attackers too, so they cover both.
Utility is compared seed by seed with the baseline's run of the same seed (which shares its initial state and cohorts),
and the interval is that of the ratios.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedrec_unlearn.bench.study import Study
from fedrec_unlearn.errors import DataError
from fedrec_unlearn.metrics import mean_interval

Row = Mapping[str, Any]


def summarise(study: Study, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """`summary` of bench.json: one entry for each arm, attribute and surface.

    Args:
        study: says which arms and metrics, and their order.
        rows: of all arms and seeds.

    Raises:
        DataError: an arm lacks a seed, or a figure is not finite.
    """
    of_arm = {arm.name: [row for row in rows if row["arm"] == arm.name] for arm in study.arms}
    for name, own in of_arm.items():
        if sorted(row["seed"] for row in own) != sorted(study.seeds):
            raise DataError(f"arm {name}: there are results for {len(own)} seeds, not one for each of {study.seeds}")
        own.sort(key=lambda row: study.seeds.index(row["seed"]))
    summary = []
    for arm in study.arms:
        own = of_arm[arm.name]
        kept = {key: _utility(own, of_arm[study.baseline], key) for key in study.utility_keys}
        for attribute, surface in _attacked(own):
            summary.append(
                {
                    "arm": arm.name,
                    "label": arm.label,
                    "group": arm.group,
                    "unlearns": list(arm.unlearns),
                    "method": arm.config.unlearn.method,
                    "epsilon": _common([row["epsilon"] for row in own]),
                    "attribute": attribute,
                    "surface": surface,
                    **_attackers(own, attribute, surface),
                    "utility": kept,
                }
            )
    return summary


def _attacked(rows: Iterable[Row]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((found["attribute"], found["surface"]) for row in rows for found in row["attack"]))


def _common(values: Sequence[float | None]) -> float | None:
    """The value all seeds share; None where each chose its own."""
    return values[0] if len(set(values)) == 1 else None


def _utility(rows: Sequence[Row], baseline: Sequence[Row], key: str) -> dict[str, float | None]:
    own = [row["metrics"][key] for row in rows]
    if not all(row["metrics"][key] for row in baseline):
        raise DataError(f"{key} of {baseline[0]['arm']} is 0 or not known for a seed; nothing can be compared with it")
    ratios = mean_interval([a / row["metrics"][key] for a, row in zip(own, baseline, strict=True)])
    return {
        "mean": mean_interval(own).mean,
        "ratio": ratios.mean,
        "low": _known(ratios.low),
        "high": _known(ratios.high),
    }


def _attackers(rows: Sequence[Row], attribute: str, surface: str) -> dict[str, Any]:
    """`attackers` and `worst`: that with the largest distance of its mean from chance, in either direction."""
    values: dict[str, list[float]] = {}
    chance = math.nan
    for row in rows:
        for found in row["attack"]:
            if (found["attribute"], found["surface"]) == (attribute, surface):
                values.setdefault(found["attacker"], []).append(found["balanced_accuracy"])
                chance = found["chance"]
    attackers = {}
    worst: dict[str, Any] = {}
    for name, per_seed in values.items():
        over = mean_interval(per_seed)
        attackers[name] = {
            "mean": over.mean, "low": _known(over.low), "high": _known(over.high), "per_seed": per_seed,
        }  # fmt: skip
        distance = abs(over.mean - chance)
        if worst and distance <= worst["distance"]:
            continue
        ends = (over.low - chance, over.high - chance)
        # the side of chance is that of the mean: an interval that reaches across it begins below 0
        near, far = ends if over.mean >= chance else (-ends[1], -ends[0])
        worst = {
            "attacker": name,
            "mean": over.mean,
            "low": _known(over.low),
            "high": _known(over.high),
            "distance": distance,
            "distance_low": _known(near),
            "distance_high": _known(far),
        }
    return {"chance": chance, "attackers": attackers, "worst": worst}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
