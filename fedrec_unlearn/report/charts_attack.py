"""Charts of what an attacker learns: accuracy against chance, privacy against quality, embeddings in the plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.report.charts import WIDTH, Chart, run_key
from fedrec_unlearn.report.figures import RunFigures
from fedrec_unlearn.report.inference import AttackResult
from fedrec_unlearn.report.projection import Projection
from fedrec_unlearn.report.summary import worst_of
from fedrec_unlearn.report.svg import N_SERIES, Series, axes_of, colour, drawing, key_glyph, series, to_svg
from fedrec_unlearn.report.wording import (
    attacker_name,
    count,
    decimal,
    elide,
    headed,
    metric_name,
    percent,
    plural,
    smaller_is_better,
    surface_name,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_UNKNOWN = Series(colour("muted"), "x", "-")
_OTHER = Series(colour("muted"), ".", "-")


def accuracy_chart(runs: Sequence[RunFigures], attribute: str, surface: str, name: str) -> Chart | None:
    """Balanced accuracy of each attacker with its interval, beside the line of chance."""
    found = [(k, r) for k, run in enumerate(runs) for r in run.attack if r.target == (attribute, surface)]
    found = [(k, r) for k, r in found if r.balanced_accuracy.value is not None]
    if not found:
        return None
    attackers = list(dict.fromkeys(result.attacker for _, result in found))
    band = 22.0 + 16.0 * (len(runs) - 1) + 8.0
    words = []
    with drawing(WIDTH, 60.0 + band * len(attackers)) as figure:
        axes = axes_of(figure, left=122.0, right=50.0, top=22.0, bottom=38.0)
        chances = sorted({result.chance for _, result in found})
        chance_line(axes, chances)
        for number, result in found:
            row = attackers.index(result.attacker)
            y = row + (number - (len(runs) - 1) / 2) * 16.0 / band
            draw_interval(axes, result, y, series(number))
            whose = "" if len(runs) == 1 else f"{runs[number].label}, "
            words.append(f"{whose}{attacker_name(result.attacker)} {_in_words(result)}")
        axes.set_ylim(len(attackers) - 0.5, -0.5)
        axes.set_yticks(range(len(attackers)), [elide(attacker_name(a), 20) for a in attackers])
        axes.tick_params(axis="y", labelcolor=colour("ink"))
        axes.set_xlim(*accuracy_limits([r for _, r in found], chances))
        axes.set_xlabel("balanced accuracy")
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        few_ticks(axes)
        seen = surface_name(surface)
        chance = " / ".join(decimal(c, 3) for c in chances)
        text = f"Balanced accuracy of inferring {attribute} from the {seen}; chance {chance}. {'; '.join(words)}."
        svg = to_svg(figure, name, text)
    return Chart(
        f"Inferring {attribute} from the {seen}",
        text,
        svg,
        run_key(runs, line=False),
        "Bars: 95\u00a0% intervals. Dashed: chance.",
    )


def trade_off_chart(runs: Sequence[RunFigures], attribute: str, surface: str, metric: str, name: str) -> Chart | None:
    """Recommendation quality against the worst leak of an attribute, one point a run."""
    points = []
    for number, run in enumerate(runs):
        worst, quality = worst_of(run, attribute, surface), run.ranking.get(metric, {}).get("test")
        if worst is not None and worst.balanced_accuracy.value is not None and quality is not None:
            points.append((number, run, worst, quality))
    if len(points) < 2:
        return None
    words = []
    with drawing(WIDTH, 270.0) as figure:
        axes = axes_of(figure, left=46.0, right=16.0, top=22.0, bottom=38.0)
        chances = sorted({worst.chance for _, _, worst, _ in points})
        chance_line(axes, chances)
        for number, run, worst, quality in points:
            draw_interval(axes, worst, quality, series(number), labelled=False)
            words.append(f"{run.label}: {metric_name(metric)} {decimal(quality)}, balanced accuracy {_in_words(worst)}")
        values = [quality for *_, quality in points]
        room = max(0.15 * (max(values) - min(values)), 0.05 * max(values), 1e-3)
        axes.set_ylim(min(values) - room, max(values) + room)
        axes.set_xlim(*accuracy_limits([worst for _, _, worst, _ in points], chances))
        axes.set_xlabel("balanced accuracy of the worst attacker")
        axes.grid()
        axes.spines["left"].set_visible(False)
        few_ticks(axes)
        against = f"the worst attack on {attribute} ({surface_name(surface)})"
        text = f"Test {metric_name(metric)} against {against}. {'; '.join(words)}."
        svg = to_svg(figure, name, text)
    title = f"{metric_name(metric)} against leak of {attribute}"
    better = "lower" if smaller_is_better(metric) else "higher"
    note = (
        f"Test data; the attacker sees: {surface_name(surface)}. Better runs lie {better} and nearer to chance. "
        "Dashed: chance. Bars: 95\u00a0% intervals."
    )
    return Chart(title, text, svg, run_key(runs, line=False), note)


def projection_charts(projection: Projection, attribute: str, name: str) -> tuple[Chart, ...]:
    """Users on the first two principal components, one colour and marker a class.

    Where they are known from before unlearning too, two charts with the same axes: before, and after.
    """
    after, shares = projection.points, projection.explained_variance
    before, shares_before = projection.points_before, projection.explained_variance_before
    if before is None or shares_before is None:
        return (_projection_chart(projection, attribute, after, shares, "", after, name),)
    both = np.concatenate([before, after])
    return (
        _projection_chart(projection, attribute, before, shares_before, "before", both, f"{name}-before"),
        _projection_chart(projection, attribute, after, shares, "after", both, name),
    )


def _projection_chart(
    projection: Projection,
    attribute: str,
    points: FloatArray,
    shares: tuple[float, float],
    when: str,
    extent: FloatArray,
    name: str,
) -> Chart:
    classes, labels = projection.attributes[attribute]
    groups = _groups(classes, labels)
    first, second = (percent(share) for share in shares)
    with drawing(WIDTH, 350.0) as figure:
        axes = axes_of(figure, left=26.0, right=14.0, top=14.0, bottom=30.0)
        dense = len(labels) > 300
        for _, members, style in groups:
            hollow = style is _UNKNOWN
            axes.plot(
                *points[members].T,
                linestyle="",
                marker=style.marker,
                color=style.colour,
                markersize=4.0 if dense else 5.5,
                markeredgewidth=0.8 if hollow else 0.0,
                alpha=0.45 if style is _OTHER else 0.7,
            )
        _same_scale(axes, extent)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_xlabel(f"component 1: {first} of the variance", labelpad=8.0)
        axes.set_ylabel(f"component 2: {second}", labelpad=6.0)
        spread = ", ".join(f"{label} {count(len(members))}" for label, members, _ in groups)
        components = "principal components" + (" of the embeddings before unlearning" if when else "")
        state = f" {when} unlearning" if when else ""
        text = (
            f"{plural(len(labels), 'user')}{state} on the first two {components}, which explain {first} and {second} "
            f"of the variance, coloured by {attribute}: {spread}."
        )
        svg = to_svg(figure, name, text)
    key = tuple((f"{label} ({count(len(members))})", key_glyph(style, line=False)) for label, members, style in groups)
    return Chart(f"{headed(when)} unlearning" if when else attribute, text, svg, key)


def _same_scale(axes: Axes, extent: FloatArray) -> None:
    """Limits that hold all points, with the same length on both axes for the same number."""
    place = axes.get_position()
    width, height = axes.get_figure().get_size_inches() * (place.width, place.height)  # type: ignore[union-attr]
    low, high = extent.min(axis=0), extent.max(axis=0)
    middle, size = (low + high) / 2, 1.08 * (high - low)
    scale = max(size[0] / width, size[1] / height) or 1.0
    axes.set_xlim(middle[0] - scale * width / 2, middle[0] + scale * width / 2)
    axes.set_ylim(middle[1] - scale * height / 2, middle[1] + scale * height / 2)


def _groups(classes: tuple[str, ...], labels: IntArray) -> list[tuple[str, IntArray, Series]]:
    """(label, members, style) in drawing order: what has no colour of its own, then classes from large to small."""
    sizes = np.bincount(labels[labels >= 0], minlength=len(classes))
    order = [int(k) for k in np.argsort(-sizes, kind="stable") if sizes[k] > 0]
    named = order[:N_SERIES]
    groups = [(classes[k], np.flatnonzero(labels == k), series(n)) for n, k in enumerate(named)]
    if rest := order[N_SERIES:]:
        groups.insert(0, (plural(len(rest), "smaller class", "es"), np.flatnonzero(np.isin(labels, rest)), _OTHER))
    if (missing := np.flatnonzero(labels < 0)).size:
        groups.insert(0, ("not known", missing, _UNKNOWN))
    return groups


def _in_words(result: AttackResult) -> str:
    estimate = result.balanced_accuracy
    assert estimate.value is not None
    if estimate.low is None or estimate.high is None:
        return decimal(estimate.value)
    return f"{decimal(estimate.value)} ({decimal(estimate.low)} to {decimal(estimate.high)})"


def draw_interval(axes: Axes, result: AttackResult, y: float, style: Series, *, labelled: bool = True) -> None:
    """A result's balanced accuracy at height `y`: marker and interval, and its figure at the right edge."""
    estimate = result.balanced_accuracy
    assert estimate.value is not None
    if estimate.low is not None and estimate.high is not None:
        axes.plot([estimate.low, estimate.high], [y, y], color=style.colour, linewidth=2.0, solid_capstyle="butt")
        axes.plot([estimate.low, estimate.high], [y, y], linestyle="", marker="|", color=style.colour, markersize=8.0)
    axes.plot([estimate.value], [y], marker=style.marker, color=style.colour, markersize=8.0, markeredgewidth=0.0)
    if labelled:
        figures_beside(axes, y, decimal(estimate.value), bold=result.worst)


def figures_beside(axes: Axes, y: float, text: str, *, bold: bool = False) -> None:
    """Write figures to the right of a row of a chart."""
    axes.annotate(
        text,
        (1.0, y),
        xycoords=("axes fraction", "data"),
        xytext=(8.0, 0.0),
        textcoords="offset points",
        va="center_baseline",
        fontsize=11.0,
        fontweight="bold" if bold else "normal",
        annotation_clip=False,
    )


def chance_line(axes: Axes, chances: Sequence[float]) -> None:
    """A dashed line at each level of chance, with its value on top."""
    for chance in chances:
        axes.axvline(chance, color=colour("ink"), linewidth=1.2, linestyle=(0, (4, 3)))
        axes.annotate(
            f"chance {decimal(chance, 3)}",
            (chance, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0.0, 6.0),
            textcoords="offset points",
            ha="center",
            fontsize=11.0,
            annotation_clip=False,
        )


def accuracy_limits(results: Sequence[AttackResult], chances: Sequence[float]) -> tuple[float, float]:
    """Limits of an axis of balanced accuracies that shows all of them, their intervals, and chance."""
    estimates = [result.balanced_accuracy for result in results]
    ends = [v for e in estimates for v in (e.value, e.low, e.high) if v is not None] + list(chances)
    # a span of at least a fifth keeps a difference of a percent from looking like a gulf
    span = max(max(ends) - min(ends), 0.2)
    middle = (max(ends) + min(ends)) / 2
    return middle - 0.58 * span, middle + 0.58 * span


def few_ticks(axes: Axes) -> None:
    """Round numbers, five at most, on an axis of accuracies."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
