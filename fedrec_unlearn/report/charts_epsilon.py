"""Figures over the strength of unlearning: panels one below the other, with one logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedrec_unlearn.report.charts import WIDTH, Chart
from fedrec_unlearn.report.inference import Estimate
from fedrec_unlearn.report.svg import colour, drawing, key_glyph, series, to_svg
from fedrec_unlearn.report.wording import decimal, headed, strength

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEFT, RIGHT, TOP, BOTTOM, GAP = 46.0, 12.0, 26.0, 40.0, 34.0
PANEL = 150.0
"""Height of a panel, in SVG units like the margins."""


@dataclass(frozen=True)
class Line:
    """One method over its strengths."""

    label: str
    points: tuple[tuple[float, Estimate], ...]
    """(ε, value), ε positive; values that are None are left out."""

    @property
    def shown(self) -> list[tuple[float, float, Estimate]]:
        """(ε, value, estimate) ascending by ε."""
        return sorted((e, found.value, found) for e, found in self.points if e > 0 and found.value is not None)


@dataclass(frozen=True)
class Panel:
    """One figure over ε."""

    label: str
    lines: tuple[Line, ...]
    none: float | None
    """Without unlearning: a dashed line across."""
    leak: bool
    """Distance from chance: what lies above `none` is over-shoot."""
    floor: float | None = None
    """The least that is accepted: a dotted line."""
    words: str = ""
    """What the values are, in words."""


def overshoots(line: Line, none: float | None) -> list[float]:
    """Strengths at which an attribute is more readable than without unlearning."""
    return [] if none is None else [e for e, value, _ in line.shown if value > none]


def epsilon_chart(title: str, panels: Sequence[Panel], name: str, chosen: float | None = None) -> Chart | None:
    """Panels over ε, None without any point.

    Args:
        title: of the chart.
        panels: at least one; a line has the same style in all of them.
        name: of the chart in its page.
        chosen: a strength to mark.
    """
    panels = [panel for panel in panels if any(line.shown for line in panel.lines)]
    if not panels:
        return None
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines if line.shown))
    strengths = sorted({e for panel in panels for line in panel.lines for e, _, _ in line.shown})
    height = TOP + BOTTOM + PANEL * len(panels) + GAP * (len(panels) - 1)
    words = []
    with drawing(WIDTH, height) as figure:
        figure.patch.set_visible(False)
        for number, panel in enumerate(panels):
            bottom = BOTTOM + (PANEL + GAP) * (len(panels) - 1 - number)
            place = (LEFT / WIDTH, bottom / height, (WIDTH - LEFT - RIGHT) / WIDTH, PANEL / height)
            axes = figure.add_axes(place)
            axes.patch.set_visible(False)
            _strength_axis(axes, strengths, last=number == len(panels) - 1)
            _draw(axes, panel, labels)
            axes.annotate(
                panel.label, (0.0, 1.0), xycoords="axes fraction", xytext=(-LEFT + 2.0, 8.0),
                textcoords="offset points", fontsize=11.0, fontweight="bold", annotation_clip=False,
            )  # fmt: skip
            if chosen is not None:
                axes.axvline(chosen, color=colour("ink"), linewidth=1.0, linestyle=(0, (1, 2)))
            words.append(_in_words(panel))
        marked = f" Chosen: {strength(chosen)}." if chosen is not None else ""
        text = f"{title} against strength ε. {' '.join(words)}{marked}"
        svg = to_svg(figure, name, text)
    key = tuple((label, key_glyph(series(k), line=True)) for k, label in enumerate(labels))
    return Chart(title, text, svg, key if len(labels) > 1 else (), _note(panels, chosen))


def _note(panels: Sequence[Panel], chosen: float | None) -> str:
    told = ["Dashed: without unlearning."] if any(panel.none is not None for panel in panels) else []
    if any(panel.leak and panel.none is not None for panel in panels):
        told.append("Shaded, and ringed points: over-shoot, more readable than without unlearning.")
    if any(panel.floor is not None for panel in panels):
        told.append("Dotted across: the least that is accepted.")
    if chosen is not None:
        told.append(f"Dotted upright: the strength chosen, {strength(chosen)}.")
    if any(found.low is not None for panel in panels for line in panel.lines for _, found in line.points):
        told.append("Bars: 95\u00a0% intervals.")
    return " ".join(told)


def _draw(axes: Axes, panel: Panel, labels: Sequence[str]) -> None:
    ends = [
        end for line in panel.lines for _, _, f in line.shown for end in (f.value, f.low, f.high) if end is not None
    ]
    ends += [value for value in (panel.none, panel.floor) if value is not None]
    low, high = (0.0, max(ends)) if panel.leak else (min(ends), max(ends))
    room = 0.16 * max(high - low, 1e-3)
    bottom, top = (0.0 if panel.leak else low - room), high + room
    axes.set_ylim(bottom, top)
    if panel.none is not None:
        if panel.leak:
            axes.axhspan(panel.none, top, color=colour("series-2"), alpha=0.12, linewidth=0.0)
            _label(axes, 0.0, top, "over-shoot", (6.0, -13.0))
        axes.axhline(panel.none, color=colour("ink"), linewidth=1.2, linestyle=(0, (4, 3)))
    if panel.floor is not None:
        axes.axhline(panel.floor, color=colour("ink"), linewidth=1.0, linestyle=(0, (1, 2)))
    for line in panel.lines:
        if not line.shown:
            continue
        style = series(labels.index(line.label))
        x, y = [e for e, _, _ in line.shown], [value for _, value, _ in line.shown]
        axes.plot(
            x, y, color=style.colour, linestyle=style.dash, marker=style.marker, markersize=6.0, markeredgewidth=0.0
        )
        for e, _, found in line.shown:
            if found.low is not None and found.high is not None:
                axes.plot([e, e], [found.low, found.high], color=style.colour, linewidth=1.4, solid_capstyle="butt")
        if panel.leak:
            over = overshoots(line, panel.none)
            ringed = [(e, value) for e, value, _ in line.shown if e in over]
            for e, value in ringed:
                axes.plot([e], [value], "o", ms=12.0, mfc="none", mec=colour("ink"), mew=1.2)


def _label(axes: Axes, x: float, y: float, text: str, offset: tuple[float, float]) -> None:
    axes.annotate(
        text,
        (x, y),
        xycoords=("axes fraction", "data"),
        xytext=offset,
        textcoords="offset points",
        fontsize=10.5,
        annotation_clip=False,
    )


def _strength_axis(axes: Axes, strengths: Sequence[float], *, last: bool) -> None:
    from matplotlib.ticker import MaxNLocator, NullLocator

    low, high = min(strengths), max(strengths)
    room = max((high / low) ** 0.06, 1.2)
    axes.set_xscale("log")
    axes.set_xlim(low / room, high * room)
    width = (WIDTH - LEFT - RIGHT) / math.log(high * room * room / low)
    shown: list[float] = []
    for value in strengths:
        # labels further apart than they are wide
        if not shown or math.log(value / shown[-1]) * width > 34.0:
            shown.append(value)
    axes.set_xticks(shown, [strength(value) for value in shown] if last else [""] * len(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    if last:
        axes.set_xlabel("strength ε (logarithmic)")


def _in_words(panel: Panel) -> str:
    told = []
    for line in panel.lines:
        if line.shown:
            values = ", ".join(f"{strength(e)}: {decimal(value)}" for e, value, _ in line.shown)
            told.append(f"{line.label} at ε {values}" if len(panel.lines) > 1 else f"ε {values}")
    without = "" if panel.none is None else f"without unlearning {decimal(panel.none)}; "
    return f"{panel.words or headed(panel.label)}: {without}{'; '.join(told)}."
