"""The figures of a report for programs: JSON with stable keys, and CSV in long format."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Any

import numpy as np

from fedrec_unlearn.report.curves import FloatArray
from fedrec_unlearn.report.export_unlearning import unlearning_json, unlearning_rows
from fedrec_unlearn.report.figures import RunFigures
from fedrec_unlearn.report.inference import AttackResult, Estimate
from fedrec_unlearn.report.summary import compare, summarise

FORMAT = 1
"""Layout of report.json."""

COLUMNS = ("run", "section", "name", "attribute", "surface", "attacker", "metric", "value", "low", "high")
"""Columns of report.csv."""

_ESTIMATES = ("balanced_accuracy", "above_chance", "macro_f1", "auc", "accuracy")


def to_json(runs: Sequence[RunFigures]) -> str:
    """All figures as one JSON object; what was not measured is null, never NaN.

    Keys: `format`, `comparison` (sentences), and `runs`, each with `label`, `folder`, `summary` (sentences),
    `facts`, `options`, `learning`, `ranking`, `attack`, `traffic`, `time`, `projection`, `unlearning` (null
    without). The projection holds points and labels, but no user ids.
    """
    content = {
        "format": FORMAT,
        "comparison": compare(runs) if len(runs) > 1 else [],
        "runs": [_run(run) for run in runs],
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def to_csv(runs: Sequence[RunFigures]) -> str:
    """All numbers, one a line, with the columns of `COLUMNS`.

    `section` is one of run, learning, ranking, attack, traffic, time, projection, unlearning; `name` is a round
    (learning, traffic, time, the adversary of unlearning), a part of the data (ranking), `before`, `after`, `change`
    or `ratio` (unlearning), or empty. `low` and `high` bound the 95 %
    interval of an attack's figures. Texts stay in the JSON, and so do the points of the projection. A name
    that a spreadsheet would take for a formula has an apostrophe put before it.
    """
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in runs:
        for section, name, attribute, surface, attacker, metric, *numbers in _rows(run):
            texts = (run.label, section, name, attribute, surface, attacker, metric)
            writer.writerow([*map(_inert, texts), *("" if n is None else repr(n) for n in numbers)])
    return buffer.getvalue()


def _inert(text: str) -> str:
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _list(values: FloatArray) -> list[float | None]:
    return [_plain(value) for value in values]


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _attack(result: AttackResult) -> dict[str, Any]:
    return {
        "attribute": result.attribute,
        "surface": result.surface,
        "attacker": result.attacker,
        "classes": list(result.classes),
        "counts": list(result.counts),
        "n_users": result.n_users,
        "n_missing": result.n_missing,
        "chance": result.chance,
        "majority": result.majority,
        **{name: _estimate(getattr(result, name)) for name in _ESTIMATES},
        "worst": result.worst,
    }


def _projection(run: RunFigures) -> dict[str, Any] | None:
    found = run.projection
    if found is None:
        return None
    return {
        "n_users": found.n_users,
        "n_shown": len(found.points),
        "width": found.width,
        "explained_variance": list(found.explained_variance),
        "points": found.points.tolist(),
        "attributes": {
            name: {"classes": list(classes), "labels": labels.tolist()}
            for name, (classes, labels) in found.attributes.items()
        },
        "points_before": None if found.points_before is None else found.points_before.tolist(),
        "explained_variance_before": found.explained_variance_before and list(found.explained_variance_before),
    }


def _run(run: RunFigures) -> dict[str, Any]:
    rounds = run.rounds
    return {
        "label": run.label,
        "folder": run.folder,
        "summary": summarise(run),
        "facts": run.facts,
        "options": run.options,
        "learning": {
            "round": rounds.round.tolist(),
            "loss": _list(rounds.loss),
            "loss_smoothed": _list(run.smooth_loss),
            "smoothing_rounds": run.smoothing,
            "selected_by": run.selected_by,
            "best_round": run.best_round,
            "evaluations": [
                {"round": e.round, "best": e.best, "metrics": {k: _finite(v) for k, v in e.metrics.items()}}
                for e in run.evaluations
            ],
        },
        "ranking": run.ranking,
        "attack": [_attack(result) for result in run.attack],
        "traffic": {
            **run.traffic,
            "round": rounds.round.tolist(),
            "up_per_user_by_round": _list(rounds.up_per_client),
            "down_per_user_by_round": _list(rounds.down_per_client),
            "cumulative_up_per_user": _list(run.cumulative_up),
            "cumulative_down_per_user": _list(run.cumulative_down),
        },
        "time": {**run.time, "round": rounds.round.tolist(), "seconds": _list(rounds.seconds)},
        "projection": _projection(run),
        "unlearning": None if run.unlearning is None else unlearning_json(run.unlearning, run),
    }


def _finite(value: float | None) -> float | None:
    return None if value is None else _plain(value)


_Row = tuple[str, str, str, str, str, str, float | None, float | None, float | None]


def _row(section: str, name: object, metric: str, value: float | None) -> _Row:
    return (section, str(name), "", "", "", metric, value, None, None)


def _rows(run: RunFigures) -> Iterator[_Row]:
    for key, fact in run.facts.items():
        if isinstance(fact, int | float) and not isinstance(fact, bool):
            yield _row("run", "", key, fact)
    rounds = run.rounds
    by_round = (
        ("learning", "loss", rounds.loss),
        ("learning", "loss_smoothed", run.smooth_loss),
        ("traffic", "up_per_user", rounds.up_per_client),
        ("traffic", "down_per_user", rounds.down_per_client),
        ("traffic", "cumulative_up_per_user", run.cumulative_up),
        ("traffic", "cumulative_down_per_user", run.cumulative_down),
        ("time", "seconds", rounds.seconds),
    )
    for section, metric, values in by_round:
        for number, value in zip(rounds.round, values, strict=True):
            if np.isfinite(value):
                yield _row(section, number, metric, float(value))
    for evaluation in run.evaluations:
        for metric, found in evaluation.metrics.items():
            yield _row("learning", evaluation.round, metric, _finite(found))
    for metric, parts in run.ranking.items():
        for part, found in parts.items():
            if found is not None:
                yield _row("ranking", part, metric, found)
    for result in run.attack:
        where = ("attack", "", result.attribute, result.surface, result.attacker)
        yield (*where, "chance", result.chance, None, None)
        yield (*where, "majority", result.majority, None, None)
        for metric in _ESTIMATES:
            estimate: Estimate = getattr(result, metric)
            yield (*where, metric, estimate.value, estimate.low, estimate.high)
    for section, totals in (("traffic", run.traffic), ("time", run.time)):
        for metric, found in totals.items():
            yield _row(section, "", metric, found)
    if run.projection is not None:
        for number, share in enumerate(run.projection.explained_variance, start=1):
            yield _row("projection", f"component {number}", "explained_variance", share)
    if run.unlearning is not None:
        yield from unlearning_rows(run.unlearning)
