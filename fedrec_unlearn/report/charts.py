"""Charts over the rounds: loss, validation metric, traffic and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.report.curves import FloatArray
from fedrec_unlearn.report.figures import RunFigures
from fedrec_unlearn.report.svg import Series, axes_of, colour, drawing, key_glyph, series, to_svg
from fedrec_unlearn.report.wording import (
    byte_size,
    bytes_unit,
    count,
    decimal,
    duration,
    metric_name,
    plural,
    smaller_is_better,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 380.0
HEIGHT = 250.0
MARGINS = {"left": 46.0, "right": 12.0, "top": 12.0, "bottom": 38.0}
MAX_VERTICES = 400
"""Points of a line at most: more than a chart has pixels only make the page heavy."""


@dataclass(frozen=True)
class Chart:
    """A drawn chart with what goes around it."""

    title: str
    words: str
    """The chart in words: its text alternative."""
    svg: str
    """Markup that is safe to inline: names in it are escaped."""
    key: tuple[tuple[str, str], ...] = ()
    """Legend: (label, sample)."""
    note: str = ""


def loss_chart(runs: Sequence[RunFigures], name: str) -> Chart | None:
    """Training loss of each round, as a moving mean; of a single run also as it is."""
    shown = [(k, run) for k, run in enumerate(runs) if np.isfinite(run.rounds.loss).any()]
    if not shown:
        return None
    words, notes = [], []
    with drawing(WIDTH, HEIGHT) as figure:
        axes = axes_of(figure, **MARGINS)
        for number, run in shown:
            style = series(number)
            if len(runs) == 1:
                _spread(axes, run.rounds.round, run.rounds.loss, style)
            draw_line(axes, run.rounds.round, run.smooth_loss, style, marked=len(runs) > 1)
            words.append(f"{_whose(runs, run)}loss {_from_to(run)}")
            notes.append(run.smoothing)
        over_rounds(axes)
        svg = to_svg(figure, name, text := f"Training loss per round. {'; '.join(words)}.")
    window = f"{min(notes)} to {max(notes)}" if min(notes) < max(notes) else str(max(notes))
    note = (
        ""
        if max(notes) == 1
        else f"Line: moving mean over {window} rounds." + (" Shaded: single rounds." if len(runs) == 1 else "")
    )
    return Chart("Training loss", text, svg, run_key(runs, line=True), note)


def validation_chart(runs: Sequence[RunFigures], metric: str, name: str) -> Chart | None:
    """A validation metric at each evaluation, with the best round marked."""
    words = []
    best_shown = False
    with drawing(WIDTH, HEIGHT) as figure:
        axes = axes_of(figure, **MARGINS)
        for number, run in enumerate(runs):
            points = [(e.round, e.metrics[metric]) for e in run.evaluations if e.metrics.get(metric) is not None]
            if run.selected_by != metric or not points:
                continue
            x, y = np.array([p[0] for p in points]), np.array([p[1] for p in points], dtype=np.float64)
            style = series(number)
            draw_line(axes, x, y, style, marked=True)
            values = dict(zip(x.tolist(), y.tolist(), strict=True))
            pick = min if smaller_is_better(metric) else max
            best = run.best_round if run.best_round in values else pick(values, key=lambda r: values[r])
            assert best is not None
            # drawn apart, as a long line is thinned and may pass it by
            axes.plot([best], [values[best]], style.marker, color=style.colour, markersize=5.0, markeredgewidth=0.0)
            axes.plot([best], [values[best]], "o", ms=13, mfc="none", mec=colour("ink"), mew=1.4)
            best_shown = True
            words.append(
                f"{_whose(runs, run)}{plural(len(points), 'evaluation')}, "
                f"best {decimal(values[best])} in round {count(best)}, last {decimal(float(y[-1]))}"
            )
        if not best_shown:
            return None
        over_rounds(axes)
        svg = to_svg(figure, name, text := f"Validation {metric_name(metric)} ({metric}). {'; '.join(words)}.")
    return Chart(
        f"Validation {metric_name(metric)}",
        text,
        svg,
        run_key(runs, line=True),
        "Ringed: the best round, which is kept.",
    )


def traffic_chart(runs: Sequence[RunFigures], name: str) -> Chart | None:
    """Bytes an average user has moved so far: up and down of a single run, the sum of several."""
    lines: list[tuple[str, RunFigures, FloatArray]] = []
    for run in runs:
        if len(runs) == 1:
            lines += [("sent", run, run.cumulative_up), ("received", run, run.cumulative_down)]
        else:
            lines.append((run.label, run, run.cumulative_up + run.cumulative_down))
    last = [values[-1] for _, _, values in lines if len(values) and np.isfinite(values[-1])]
    if not last:
        return None
    size, unit = bytes_unit(max(last))
    words = []
    with drawing(WIDTH, HEIGHT) as figure:
        axes = axes_of(figure, **MARGINS)
        for number, (label, run, values) in enumerate(lines):
            if len(values) and np.isfinite(values[-1]):
                draw_line(axes, run.rounds.round, values / size, series(number), marked=True)
                words.append(f"{label}: {byte_size(float(values[-1]))} after round {count(int(run.rounds.round[-1]))}")
        axes.set_ylim(bottom=0)
        over_rounds(axes)
        svg = to_svg(figure, name, text := f"Bytes moved by an average user so far. {'; '.join(words)}.")
    key = tuple((label, key_glyph(series(k), line=True)) for k, (label, _, _) in enumerate(lines))
    note = "" if len(runs) == 1 else "Sent and received together."
    return Chart(f"Traffic of an average user so far ({unit})", text, svg, key, note)


def time_chart(runs: Sequence[RunFigures], name: str) -> Chart | None:
    """Seconds of each round, as a moving mean; of a single run also as they are."""
    shown = [(k, run) for k, run in enumerate(runs) if np.isfinite(run.rounds.seconds).any()]
    if not shown:
        return None
    top = max(float(np.nanpercentile(run.rounds.seconds, 99.0)) for _, run in shown) * 1.15
    size, unit = (1e-3, "ms") if top < 1.0 else (1.0, "s")
    words, hidden = [], False
    with drawing(WIDTH, HEIGHT) as figure:
        axes = axes_of(figure, **MARGINS)
        for number, run in shown:
            style = series(number)
            if len(runs) == 1:
                _spread(axes, run.rounds.round, run.rounds.seconds / size, style)
            draw_line(axes, run.rounds.round, run.smooth_seconds / size, style, marked=len(runs) > 1)
            hidden = hidden or (len(runs) == 1 and float(np.nanmax(run.rounds.seconds)) > top)
            median, longest = run.time["round_median"], run.time["round_max"]
            assert median is not None
            assert longest is not None
            words.append(f"{_whose(runs, run)}median {duration(median)}, longest {duration(longest)}")
        axes.set_ylim(0, top / size if top > 0 else 1.0)
        over_rounds(axes)
        svg = to_svg(figure, name, text := f"Time per round. {'; '.join(words)}.")
    note = "The axis ends at the 99th percentile; single rounds lie above it." if hidden else ""
    return Chart(f"Time per round ({unit})", text, svg, run_key(runs, line=True), note)


def run_key(runs: Sequence[RunFigures], *, line: bool) -> tuple[tuple[str, str], ...]:
    """Legend of the runs; none for a single one."""
    if len(runs) == 1:
        return ()
    return tuple((run.label, key_glyph(series(number), line=line)) for number, run in enumerate(runs))


def _whose(runs: Sequence[RunFigures], run: RunFigures) -> str:
    return "" if len(runs) == 1 else f"{run.label}: "


def _from_to(run: RunFigures) -> str:
    there = np.flatnonzero(np.isfinite(run.smooth_loss))
    first, last = int(there[0]), int(there[-1])
    start, end = float(run.smooth_loss[first]), float(run.smooth_loss[last])
    return (
        f"{decimal(start)} in round {count(int(run.rounds.round[first]))}, "
        f"{decimal(end)} in round {count(int(run.rounds.round[last]))}"
    )


def draw_line(axes: Axes, x: NDArray[np.int64], y: FloatArray, style: Series, *, marked: bool) -> None:
    """A line over rounds, thinned where it has more points than a chart has pixels."""
    step = -(-len(x) // MAX_VERTICES)
    # the last point is always kept: it is the one that is read off
    keep = np.unique(np.append(np.arange(0, len(x), step), len(x) - 1))
    every = max(1, len(keep) // 8)
    axes.plot(
        x[keep],
        y[keep],
        color=style.colour,
        linestyle=style.dash,
        marker=style.marker if marked else "",
        markevery=1 if len(keep) <= 20 else every,
        markersize=5.0,
        markeredgewidth=0.0,
    )


def _spread(axes: Axes, x: NDArray[np.int64], y: FloatArray, style: Series) -> None:
    """The unsmoothed values: a faint line, or the band from least to largest where they would be too many."""
    step = -(-len(x) // MAX_VERTICES)
    if step == 1:
        axes.plot(x, y, color=style.colour, alpha=0.3, linewidth=0.8)
        return
    starts = np.arange(0, len(x), step)
    low, high = np.fmin.reduceat(y, starts), np.fmax.reduceat(y, starts)
    axes.fill_between(x[starts], low, high, color=style.colour, alpha=0.25, linewidth=0.0)


def over_rounds(axes: Axes) -> None:
    """Label and ticks of an axis of rounds, and a grid."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
