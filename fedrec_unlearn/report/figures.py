"""Every figure a report shows, computed once: the page, the JSON and the CSV all read from here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrec_unlearn.report.checks import finite, is_number
from fedrec_unlearn.report.curves import (
    Evaluation,
    FloatArray,
    Rounds,
    evaluations_of,
    moving_mean,
    rounds_of,
    smoothing_window,
)
from fedrec_unlearn.report.facts import Facts, facts_of, options_of
from fedrec_unlearn.report.inference import AttackResult, Estimate, attack_results
from fedrec_unlearn.report.projection import Projection, project
from fedrec_unlearn.report.record import RunRecord
from fedrec_unlearn.report.unlearning import Reference, Unlearning, unlearning_of
from fedrec_unlearn.report.wording import printable

__all__ = ["PARTS", "AttackResult", "Estimate", "RunFigures", "figures_of"]

PARTS = ("test", "valid", "popularity")
"""Columns of the ranking table: the best round on test and validation data, the popularity baseline on test data."""


@dataclass(frozen=True)
class RunFigures:
    """All figures of one run."""

    label: str
    """Name by which the report tells the runs apart; unique in a report."""
    folder: str
    """Name of the run folder, without the path to it."""
    facts: Facts
    """What was run; see `facts_of`."""
    options: dict[str, str]
    """The configuration, flat: `federation.rounds` -> `600`."""
    rounds: Rounds
    smoothing: int
    """Rounds in the moving mean."""
    smooth_loss: FloatArray
    smooth_seconds: FloatArray
    evaluations: tuple[Evaluation, ...]
    selected_by: str | None
    """Validation metric that decides which round is kept, with its protocol."""
    best_round: int | None
    ranking: dict[str, dict[str, float | None]]
    """Metric -> part -> value, parts as in `PARTS`; empty without metrics.json."""
    attack: tuple[AttackResult, ...]
    attack_settings: dict[str, Any]
    traffic: dict[str, float | None]
    time: dict[str, float | None]
    cumulative_up: FloatArray
    """Bytes sent so far by an average user of the data set, at each round."""
    cumulative_down: FloatArray
    projection: Projection | None
    unlearning: Unlearning | None = None
    """What the run has unlearned, None if nothing."""


def figures_of(records: Sequence[RunRecord]) -> list[RunFigures]:
    """Compute the figures of each run, in the order given.

    A run that has unlearned something is held against its own state before or, where that was not measured, against
    a run among `records` that has unlearned nothing from the same data.
    """
    labels = _labels(records)
    runs = [_figures(record, label) for record, label in zip(records, labels, strict=True)]
    references = [
        None
        if record.run.get("unlearn")
        else Reference(
            label=run.label,
            name=str(record.run.get("name") or run.folder),
            data=_data_of(record),
            seed=record.run.get("seed"),
            attack=run.attack,
            ranking=run.ranking,
            round_seconds=run.time["round_median"],
            round_bytes_up=run.traffic["up_per_user_and_round"],
        )
        for record, run in zip(records, runs, strict=True)
    ]
    known = [reference for reference in references if reference is not None]
    return [
        replace(run, unlearning=unlearning_of(record, run.attack, run.ranking, known, _data_of(record)))
        for record, run in zip(records, runs, strict=True)
    ]


def _data_of(record: RunRecord) -> str:
    data = record.run.get("data") or {}
    return str(data.get("fingerprint") or data.get("name"))


def _labels(records: Sequence[RunRecord]) -> list[str]:
    folders = [printable(Path(record.folder).resolve().name) for record in records]
    names = [printable(record.run.get("name") or folder) for record, folder in zip(records, folders, strict=True)]
    labels: list[str] = []
    for name, folder in zip(names, folders, strict=True):
        label = name if names.count(name) == 1 else f"{name} ({folder})"
        number = 2
        while label in labels:
            label, number = f"{name} ({folder}, {number})", number + 1
        labels.append(label)
    return labels


def _figures(record: RunRecord, label: str) -> RunFigures:
    rounds = rounds_of(record.events)
    evaluations = evaluations_of(record.events)
    facts = facts_of(record)
    n_users = facts["n_users"] if isinstance(facts["n_users"], int) else None
    clients = float(np.nanmean(rounds.clients)) if len(rounds.round) else 0.0
    window = smoothing_window(len(rounds.round), clients, n_users)
    ones = np.ones(len(rounds.round))
    share = float(n_users) if n_users else math.nan
    return RunFigures(
        label=label,
        folder=printable(Path(record.folder).resolve().name),
        facts=facts,
        options=options_of(record.config),
        rounds=rounds,
        smoothing=window,
        smooth_loss=moving_mean(rounds.loss, rounds.interactions, window),
        smooth_seconds=moving_mean(rounds.seconds, ones, window),
        evaluations=evaluations,
        selected_by=_selected_by(record, evaluations),
        best_round=_best_round(record, evaluations),
        ranking=_ranking(record.metrics),
        attack=attack_results((record.attack or {}).get("results") or []),
        attack_settings=dict((record.attack or {}).get("config") or {}),
        traffic=_traffic(rounds, share),
        time=_time(rounds, record),
        cumulative_up=np.nancumsum(rounds.bytes_up) / share,
        cumulative_down=np.nancumsum(rounds.bytes_down) / share,
        projection=None if record.users is None else project(record.users, record.users_before),
    )


def _selected_by(record: RunRecord, evaluations: Sequence[Evaluation]) -> str | None:
    if record.metrics is not None and record.metrics.get("selected_by"):
        return printable(record.metrics["selected_by"])
    section = record.config.get("evaluation")
    wanted = section.get("select_by") if isinstance(section, Mapping) else None
    names = [name for evaluation in evaluations for name in evaluation.metrics]
    # the option has no protocol in its name, the events have
    start = f"{wanted}/" if wanted else "ndcg@"
    fitting = [name for name in names if name == wanted or name.startswith(start)]
    return next((printable(name) for name in (fitting or names)), None)


def _best_round(record: RunRecord, evaluations: Sequence[Evaluation]) -> int | None:
    told = [(record.metrics or {}).get("best_round"), record.run.get("best_round")]
    seen = [evaluation.round for evaluation in evaluations if evaluation.best][-1:]
    return next((number for number in (*told, *seen) if isinstance(number, int)), None)


def _ranking(metrics: Mapping[str, Any] | None) -> dict[str, dict[str, float | None]]:
    values = {part: (metrics or {}).get(part) or {} for part in PARTS}
    names = dict.fromkeys(name for part in PARTS for name in values[part])
    return {printable(name): {part: finite(values[part].get(name)) for part in PARTS} for name in names}


def _statistic(values: FloatArray, percent: float) -> float | None:
    finite = values[np.isfinite(values)]
    return float(np.percentile(finite, percent)) if len(finite) else None


def _total(values: FloatArray) -> float | None:
    return float(np.nansum(values)) if np.isfinite(values).any() else None


def _traffic(rounds: Rounds, n_users: float) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for way, values, totals in (
        ("up", rounds.up_per_client, rounds.bytes_up),
        ("down", rounds.down_per_client, rounds.bytes_down),
    ):
        total = _total(totals)
        figures |= {
            f"{way}_per_user_and_round": _statistic(values, 50),
            f"{way}_per_user_and_round_min": _statistic(values, 0),
            f"{way}_per_user_and_round_max": _statistic(values, 100),
            f"{way}_per_user": None if total is None else finite(total / n_users),
            f"{way}_total": total,
        }
    return figures


def _time(rounds: Rounds, record: RunRecord) -> dict[str, float | None]:
    seen = [e.get("seconds") for e in record.events if e["event"] == "evaluation"]
    return {
        "round_median": _statistic(rounds.seconds, 50),
        "round_p95": _statistic(rounds.seconds, 95),
        "round_max": _statistic(rounds.seconds, 100),
        "rounds_total": _total(rounds.seconds),
        "evaluations_total": _total(np.array([s for s in seen if is_number(s)], dtype=np.float64)),
        "training_total": finite(record.run.get("train_seconds")),
        "attack_total": finite((record.attack or {}).get("seconds")),
    }
