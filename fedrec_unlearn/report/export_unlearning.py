"""The unlearning of a run for programs: its part of report.json and its lines of report.csv."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from fedrec_unlearn.report.curves import FloatArray
from fedrec_unlearn.report.figures import RunFigures
from fedrec_unlearn.report.inference import AttackResult, Estimate
from fedrec_unlearn.report.protection import statements
from fedrec_unlearn.report.tables_unlearning import result_words
from fedrec_unlearn.report.unlearning import Unlearning

CsvRow = tuple[str, str, str, str, str, str, float | None, float | None, float | None]
"""section, name, attribute, surface, attacker, metric, value, low, high."""


def unlearning_json(found: Unlearning, run: RunFigures) -> dict[str, Any]:
    """Facts, figures before and after, and the sentences on what is protected."""
    return {
        "method": found.method,
        "method_name": found.words.name,
        "attributes": list(found.attributes),
        "epsilon": found.epsilon,
        "chosen": found.chosen,
        "source": found.source,
        "secure_sums": found.secure_sums,
        "pooled_rows": found.pooled_rows,
        "known": found.known,
        "missing": found.missing,
        "seconds": found.seconds,
        "bytes_up": found.bytes_up,
        "bytes_down": found.bytes_down,
        "attack_before": found.leaks_before,
        "ranking_before": found.kept_before,
        "ranking": {
            pair.metric: {"before": pair.before, "after": pair.after, "ratio": pair.ratio} for pair in found.kept
        },
        "surfaces": [
            {
                "attribute": leak.attribute,
                "surface": leak.surface,
                "unlearned": leak.unlearned,
                "chance": leak.chance,
                "before": _worst(leak.before),
                "after": _worst(leak.after),
                "change": leak.change,
                "beyond_luck": None if leak.after is None else leak.telling is not None,
                "overshoot": leak.overshoot,
                "result": result_words(leak),
            }
            for leak in found.leaks
        ],
        "statements": [{"kind": s.kind, "text": s.text} for s in statements(found, run.options, run.attack_settings)],
        "adversary": [
            {
                "attribute": adversary.attribute,
                "round": adversary.round.tolist(),
                "accuracy": _list(adversary.accuracy),
                "accuracy_smoothed": _list(adversary.smooth),
                "smoothing_rounds": adversary.window,
                "majority": adversary.majority,
            }
            for adversary in found.adversary
        ],
    }


def unlearning_rows(found: Unlearning) -> Iterator[CsvRow]:
    """The same numbers, one a line."""
    for metric in ("epsilon", "seconds", "bytes_up", "bytes_down"):
        yield ("unlearning", "", "", "", "", metric, getattr(found, metric), None, None)
    for pair in found.kept:
        for name, value in (("before", pair.before), ("after", pair.after), ("ratio", pair.ratio)):
            yield ("unlearning", name, "", "", "", pair.metric, value, None, None)
    for leak in found.leaks:
        for name, result in (("before", leak.before), ("after", leak.after)):
            if result is None:
                continue
            where = ("unlearning", name, leak.attribute, leak.surface, result.attacker)
            estimates: dict[str, Estimate] = {
                "worst_balanced_accuracy": result.balanced_accuracy,
                "worst_distance": result.distance,
            }
            for metric, estimate in estimates.items():
                yield (*where, metric, estimate.value, estimate.low, estimate.high)
        if leak.change is not None:
            yield ("unlearning", "change", leak.attribute, leak.surface, "", "worst_distance", leak.change, None, None)
    for adversary in found.adversary:
        for number, value in zip(adversary.round, adversary.accuracy, strict=True):
            if math.isfinite(value):
                where = ("unlearning", str(number), adversary.attribute, "", "training adversary")
                yield (*where, "accuracy", float(value), None, None)


def _worst(result: AttackResult | None) -> dict[str, Any] | None:
    if result is None:
        return None
    accuracy, distance = result.balanced_accuracy, result.distance
    return {
        "attacker": result.attacker,
        "balanced_accuracy": {"value": accuracy.value, "low": accuracy.low, "high": accuracy.high},
        "distance": {"value": distance.value, "low": distance.low, "high": distance.high},
    }


def _list(values: FloatArray) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in values]
