"""Results on the terminal: the ranking and attack tables of a run, and a comparison of several."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from fedrec_unlearn.report.figures import AttackResult, Estimate, RunFigures

ABSENT = "-"
"""Stands for a figure that was not measured."""


@dataclass(frozen=True)
class Table:
    """Text in rows and columns; the first column is a name, those in `figures` are aligned to the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: frozenset[int] = frozenset()
    """Positions of the columns that hold figures."""
    strong: frozenset[int] = frozenset()
    """Positions of the rows to stand out; they are marked with a star where there is no bold type."""
    note: str = ""


def figures_of_runs(runs: Sequence[Path]) -> list[RunFigures]:
    """Figures of finished or unfinished runs, as the report shows them.

    Raises:
        RunError: a folder is not a run or its files are damaged.
    """
    from fedrec_unlearn.report.figures import figures_of
    from fedrec_unlearn.report.record import read_run

    return figures_of([read_run(run) for run in runs])


def ranking_table(run: RunFigures) -> Table | None:
    """Ranking metrics of the best round beside the popularity baseline; None before there are any."""
    if not run.ranking:
        return None
    rows = tuple(
        (name, _figure(parts["valid"]), _figure(parts["test"]), _figure(parts["popularity"]))
        for name, parts in run.ranking.items()
    )
    best = "" if run.best_round is None else f", best round {run.best_round}"
    selected = next((number for number, name in enumerate(run.ranking) if name == run.selected_by), None)
    return Table(
        f"Recommendation{best}",
        ("metric", "valid", "test", "most popular items, test"),
        rows,
        figures=frozenset({1, 2, 3}),
        strong=frozenset() if selected is None else frozenset({selected}),
        note="" if selected is None else "* chose the best round, on validation data",
    )


def attack_table(run: RunFigures) -> Table | None:
    """Every attacker beside chance and the majority class; None before there was an attack."""
    if not run.attack:
        return None
    rows = tuple(
        (
            result.attribute,
            result.surface,
            result.attacker,
            _interval(result.balanced_accuracy),
            _figure(result.chance, 3),
            _interval(result.accuracy, bounds=False),
            _figure(result.majority, 3),
            _interval(result.auc, bounds=False),
        )
        for result in run.attack
    )
    return Table(
        "Attribute inference",
        (
            "attribute",
            "attacker sees",
            "attacker",
            "balanced accuracy, 95 % interval",
            "chance",
            "accuracy",
            "majority",
            "AUC",
        ),
        rows,
        figures=frozenset(range(3, 8)),
        strong=frozenset(number for number, result in enumerate(run.attack) if result.worst),
        note="* furthest from chance; compare balanced accuracy with chance, accuracy with majority",
    )


def unlearning_table(run: RunFigures) -> Table | None:
    """The worst attacker before and after beside the ranking before and after; None where nothing was compared."""
    found = run.unlearning
    if found is None or not (found.leaks_before or found.kept_before):
        return None
    rows: list[tuple[str, ...]] = [
        (kept.metric, "test", _figure(kept.before), _figure(kept.after), ABSENT, f"{_figure(kept.ratio, 3)} kept")
        for kept in found.kept
    ]
    for leak in found.leaks:
        sides = (ABSENT if side is None else _interval(side.balanced_accuracy) for side in (leak.before, leak.after))
        told = "over-shoot: told better than before" if leak.overshoot else ""
        name = f"{leak.attribute}{' (unlearned)' if leak.unlearned else ''}"
        rows.append((name, leak.surface, *sides, _figure(leak.chance, 3), told))
    return Table(
        f"Unlearning {', '.join(found.attributes)} by {found.method}",
        ("what", "seen by the attacker", "before", "after", "chance", ""),
        tuple(rows),
        figures=frozenset({2, 3, 4}),
        note="attributes: balanced accuracy of the attacker furthest from chance, in either direction",
    )


def comparison_table(runs: Sequence[RunFigures]) -> Table:
    """One row a run: a ranking metric they share and the strongest attack on each attribute."""
    from fedrec_unlearn.report.summary import shared_metric, targets, worst_of

    metric = shared_metric(runs)
    attacked = targets(runs)
    surfaces = {surface for _, surface in attacked}
    columns = ["run", *([f"test {metric}"] if metric else [])]
    columns += [name if len(surfaces) == 1 else f"{name} from {surface}" for name, surface in attacked]
    rows = []
    for run in runs:
        worst = [worst_of(run, *target) for target in attacked]
        ranking = [_figure(run.ranking.get(metric, {}).get("test"))] if metric else []
        rows.append((run.label, *ranking, *map(_against_chance, worst)))
    note = "attributes: balanced accuracy of the strongest attacker (chance)" if attacked else ""
    return Table("Comparison", tuple(columns), tuple(rows), figures=frozenset(range(1, len(columns))), note=note)


def _against_chance(result: AttackResult | None) -> str:
    return ABSENT if result is None else f"{_interval(result.balanced_accuracy)} ({_figure(result.chance, 3)})"


def _figure(value: float | None, digits: int = 4) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"


def _interval(estimate: Estimate, bounds: bool = True) -> str:
    if not bounds or estimate.low is None or estimate.high is None:
        return _figure(estimate.value, 3)
    return f"{_figure(estimate.value, 3)} [{estimate.low:.3f}, {estimate.high:.3f}]"


def print_table(table: Table, stream: TextIO | None = None) -> None:
    """Write the table: drawn on a terminal, as aligned text elsewhere.

    Args:
        table: what to show.
        stream: standard output when None.
    """
    stream = sys.stdout if stream is None else stream
    if stream.isatty():
        _print_rich(table, stream)
    else:
        print(plain_text(table), file=stream, flush=True)


def plain_text(table: Table) -> str:
    """The table as aligned text, columns two spaces apart."""
    marked = [
        (("* " if number in table.strong else "  ") + row[0] if table.strong else row[0], *row[1:])
        for number, row in enumerate(table.rows)
    ]
    header = (f"  {table.columns[0]}" if table.strong else table.columns[0], *table.columns[1:])
    widths = [max(len(row[column]) for row in (header, *marked)) for column in range(len(header))]

    def aligned(row: Sequence[str]) -> str:
        cells = (
            f"{cell:>{width}}" if column in table.figures else f"{cell:<{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    lines = [table.title, aligned(header), *map(aligned, marked)]
    return "\n".join([*lines, table.note, ""] if table.note else [*lines, ""])


def _print_rich(table: Table, stream: TextIO) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=Text(table.title, "bold"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(table.columns):
        drawn.add_column(Text(column), justify="right" if number in table.figures else "left")
    for number, row in enumerate(table.rows):
        star = "* " if table.strong and number in table.strong else "  " if table.strong else ""
        cells = (Text(star + row[0]), *map(Text, row[1:]))
        drawn.add_row(*cells, style="bold" if number in table.strong else None)
    console = Console(file=stream)
    console.print(drawn)
    if table.note:
        console.print(Text(table.note, style="dim"))
        console.print()
