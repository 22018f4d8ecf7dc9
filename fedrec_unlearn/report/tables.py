"""Tables of a report as rows of cells; how they become HTML is the template's business."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedrec_unlearn.report.figures import PARTS, RunFigures
from fedrec_unlearn.report.inference import AttackResult, Estimate
from fedrec_unlearn.report.wording import (
    FACTS,
    attacker_name,
    byte_size,
    count,
    decimal,
    duration,
    metric_meaning,
    metric_name,
    moment,
    percent,
    protocol_meaning,
    signed,
    smaller_is_better,
    surface_name,
)


@dataclass(frozen=True)
class Cell:
    """A cell: what is read, and the number behind it with all its digits."""

    text: str
    value: float | None = None
    detail: str = ""
    """Smaller print behind the text, such as an interval."""
    mark: bool = False
    """Set apart: the best or the worst of its kind."""


@dataclass(frozen=True)
class Row:
    """A row of cells with its header."""

    head: str
    cells: tuple[Cell, ...]
    code: str = ""
    """The head's name in the files, where it has another."""


MISSING = Cell("")


def _cell(value: float | None, words: Callable[[float], str]) -> Cell:
    return MISSING if value is None else Cell(words(value), value)


def estimate_cell(estimate: Estimate, words: Callable[[float], str] = decimal, *, mark: bool = False) -> Cell:
    """A value with its interval."""
    if estimate.value is None:
        return MISSING
    has_interval = estimate.low is not None and estimate.high is not None
    detail = f"[{words(estimate.low)}, {words(estimate.high)}]" if has_interval else ""  # type: ignore[arg-type]
    return Cell(words(estimate.value), estimate.value, detail, mark)


def fact_rows(runs: Sequence[RunFigures]) -> list[Row]:
    """What was run: a row a fact, a cell a run; facts that no run tells are left out."""
    rows = [Row(name, tuple(_fact(run, key) for run in runs)) for key, name in FACTS.items()]
    return [row for row in rows if any(cell.text for cell in row.cells)]


def _fact(run: RunFigures, key: str) -> Cell:
    facts = run.facts
    value = facts.get(key)
    if key == "rounds":
        done, planned = facts["rounds_done"], facts["rounds_planned"]
        if not isinstance(done, int):
            return _cell(_as_number(planned), lambda n: f"{count(n)} planned")
        of = f" of {count(planned)}" if isinstance(planned, int) and planned != done else ""
        early = ", stopped early" if facts["stopped_early"] else ""
        return Cell(f"{count(done)}{of}{early}", done)
    if key == "interactions":
        parts = [("train", "n_train"), ("validation", "n_valid"), ("test", "n_test")]
        told = [f"{count(n)} {word}" for word, name in parts if isinstance(n := facts[name], int)]
        return Cell(" + ".join(told))
    if value is None or value == "":
        return MISSING
    if isinstance(value, str):
        return Cell(moment(value) if key == "created" else value)
    if key == "clients_per_round" and value == 0:
        return Cell("all", 0)
    words = {"train_seconds": duration, "peak_memory_mib": lambda n: f"{decimal(n, 0)}\u00a0MiB", "seed": str}
    return Cell(words.get(key, count)(value), value)  # type: ignore[operator]


def _as_number(value: object) -> float | None:
    return value if isinstance(value, int | float) else None


def option_rows(runs: Sequence[RunFigures]) -> list[Row]:
    """Options in which the runs differ; where a run is written to is not one."""
    names = dict.fromkeys(name for run in runs for name in run.options if name != "output")
    rows = [Row(name, tuple(Cell(run.options.get(name, "")) for run in runs)) for name in names]
    return [row for row in rows if len({cell.text for cell in row.cells}) > 1]


def ranking_rows(runs: Sequence[RunFigures]) -> list[Row]:
    """A row a metric; cells are test of each run, then validation of each, then popularity of each."""
    rows = []
    for metric in dict.fromkeys(name for run in runs for name in run.ranking):
        values = {part: [run.ranking.get(metric, {}).get(part) for run in runs] for part in PARTS}
        known = [value for value in values["test"] if value is not None]
        best = (min if smaller_is_better(metric) else max)(known) if len(known) > 1 else None
        cells = [
            Cell(decimal(value, 4), value, mark=part == "test" and value == best) if value is not None else MISSING
            for part in PARTS
            for value in values[part]
        ]
        rows.append(Row(metric_name(metric), tuple(cells), metric))
    return rows


def metric_notes(runs: Sequence[RunFigures]) -> list[tuple[str, str]]:
    """What the metrics and protocols of the ranking table mean: (name, meaning), each once."""
    metrics = list(dict.fromkeys(name for run in runs for name in run.ranking))
    notes: dict[str, str] = {}
    for metric in metrics:
        name = metric_name(metric).partition("@")[0]
        if meaning := metric_meaning(metric):
            notes[name] = f"{meaning}."
    for metric in metrics:
        if protocol := protocol_meaning(metric):
            name, _, meaning = protocol.partition(": ")
            notes[name] = meaning
    return list(notes.items())


def surfaces_of(runs: Sequence[RunFigures]) -> list[str]:
    """Names of the surfaces attacked, in order of appearance."""
    return list(dict.fromkeys(surface_name(result.surface) for run in runs for result in run.attack))


def attack_columns(runs: Sequence[RunFigures], figures: Sequence[str]) -> list[str]:
    """Columns of an attack table; where all attack the same surface, its column is left out."""
    seen = ["Attacker sees"] if len(surfaces_of(runs)) > 1 else []
    return ["Attribute", *seen, "Attacker", *figures]


ATTACK_FIGURES = ("Balanced accuracy", "From chance", "Macro-F1", "AUC", "Accuracy", "Majority")
"""Figures in the attack table of one run."""


def attack_rows(run: RunFigures) -> list[Row]:
    """The attack table of one run, with `ATTACK_FIGURES`; the JSON has an interval for each figure."""
    several = len(surfaces_of([run])) > 1
    return [
        Row(
            result.attribute,
            (
                *([Cell(surface_name(result.surface))] if several else []),
                Cell(attacker_name(result.attacker), mark=result.worst),
                estimate_cell(result.balanced_accuracy, mark=result.worst),
                _cell(result.above_chance.value, signed),
                _cell(result.macro_f1.value, decimal),
                _cell(result.auc.value, decimal),
                _cell(result.accuracy.value, decimal),
                _cell(result.majority, decimal),
            ),
        )
        for result in run.attack
    ]


def target_rows(run: RunFigures) -> list[Row]:
    """What is inferred, in one run: classes, users, chance and majority of each attribute."""
    targets: dict[str, AttackResult] = {}
    for result in run.attack:
        targets.setdefault(result.attribute, result)
    return [
        Row(
            attribute,
            (
                Cell("; ".join(f"{name}: {count(n)}" for name, n in zip(r.classes, r.counts, strict=True))),
                _cell(r.n_missing, count),
                _cell(r.chance, percent),
                _cell(r.majority, percent),
            ),
        )
        for attribute, r in targets.items()
    ]


def balanced_accuracy_rows(runs: Sequence[RunFigures]) -> list[Row]:
    """Runs side by side: a row an attack, its balanced accuracy in each run."""
    several = len(surfaces_of(runs)) > 1
    keys = dict.fromkeys((r.attribute, r.surface, r.attacker) for run in runs for r in run.attack)
    rows = []
    for attribute, surface, attacker in keys:
        cells = [Cell(surface_name(surface))] if several else []
        cells.append(Cell(attacker_name(attacker)))
        for run in runs:
            found = [r for r in run.attack if (r.attribute, r.surface, r.attacker) == (attribute, surface, attacker)]
            cells.append(estimate_cell(found[0].balanced_accuracy, mark=found[0].worst) if found else MISSING)
        rows.append(Row(attribute, tuple(cells)))
    return rows


TRAFFIC = {
    "up_per_user_and_round": "Sent by a user in a round (median)",
    "down_per_user_and_round": "Received by a user in a round (median)",
    "up_per_user": "Sent by an average user in all",
    "down_per_user": "Received by an average user in all",
    "up_total": "Sent by all users",
    "down_total": "Received by all users",
}
"""Figure -> name."""

TIMES = {
    "round_median": "A round (median)",
    "round_p95": "A round (95th percentile)",
    "round_max": "The longest round",
    "rounds_total": "All rounds",
    "evaluations_total": "All evaluations",
    "training_total": "Training, from start to end",
    "attack_total": "Attack",
}
"""Figure -> name."""


def traffic_rows(runs: Sequence[RunFigures]) -> list[Row]:
    """Bytes: a row a figure, a cell a run."""
    rows = [Row(name, tuple(_traffic(run, key) for run in runs)) for key, name in TRAFFIC.items()]
    return [row for row in rows if any(cell.text for cell in row.cells)]


def _traffic(run: RunFigures, key: str) -> Cell:
    value = run.traffic[key]
    low, high = run.traffic.get(f"{key}_min"), run.traffic.get(f"{key}_max")
    detail = f"{byte_size(low)} to {byte_size(high)}" if low is not None and high is not None and low < high else ""
    return MISSING if value is None else Cell(byte_size(value), value, detail)


def time_rows(runs: Sequence[RunFigures]) -> list[Row]:
    """Seconds: a row a figure, a cell a run."""
    rows = [Row(name, tuple(_cell(run.time[key], duration) for run in runs)) for key, name in TIMES.items()]
    return [row for row in rows if any(cell.text for cell in row.cells)]
