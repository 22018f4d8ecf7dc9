"""Charts of unlearning: what attackers read before and after, and how the training adversary fared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedrec_unlearn.report.charts import HEIGHT, MARGINS, WIDTH, Chart, draw_line, over_rounds
from fedrec_unlearn.report.charts_attack import accuracy_limits, chance_line, few_ticks, figures_beside
from fedrec_unlearn.report.inference import AttackResult
from fedrec_unlearn.report.svg import Series, axes_of, colour, drawing, key_glyph, series, to_svg
from fedrec_unlearn.report.unlearning import Adversary, Leak
from fedrec_unlearn.report.wording import count, decimal, elide, percent, surface_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BEFORE = Series(colour("series-2"), "s", "-")
"""How the state before is drawn, in charts and keys."""
AFTER = Series(colour("series-1"), "o", "-")
"""How the state after is drawn."""


def before_after_chart(leaks: Sequence[Leak], name: str) -> Chart | None:
    """Balanced accuracy of the worst attacker on each surface, before and after.

    Args:
        leaks: of one attribute.
        name: of the chart in its page.

    Returns:
        None where nothing was attacked in both states.
    """
    leaks = [leak for leak in leaks if _accuracy(leak.after) is not None]
    if not any(_accuracy(leak.before) is not None for leak in leaks):
        return None
    band = 46.0
    words = []
    attribute = leaks[0].attribute
    with drawing(WIDTH, 60.0 + band * len(leaks)) as figure:
        axes = axes_of(figure, left=110.0, right=100.0, top=22.0, bottom=38.0)
        chance_line(axes, sorted({leak.chance for leak in leaks}))
        for row, leak in enumerate(leaks):
            assert leak.after is not None
            error = leak.after.guessing_error
            edges = [row - 0.42, row + 0.42]
            axes.fill_betweenx(
                edges, leak.chance - error, leak.chance + error, color=colour("rule"), lw=0.0, zorder=0.5
            )
            before, after = _accuracy(leak.before), _accuracy(leak.after)
            told = []
            if before is not None and leak.before is not None:
                _mark(axes, leak.before, row - 0.17, BEFORE)
                told.append(f"before {_in_words(leak.before)}")
            _mark(axes, leak.after, row + 0.17, AFTER)
            told.append(f"after {_in_words(leak.after)}")
            assert after is not None
            figures = decimal(after) if before is None else f"{decimal(before)} → {decimal(after)}"
            figures_beside(axes, row, figures)
            words.append(f"{surface_name(leak.surface)} {', '.join(told)}")
        axes.set_ylim(len(leaks) - 0.5, -0.5)
        axes.set_yticks(range(len(leaks)), [elide(surface_name(leak.surface), 18) for leak in leaks])
        axes.tick_params(axis="y", labelcolor=colour("ink"))
        shown = [result for leak in leaks for result in (leak.before, leak.after) if result is not None]
        axes.set_xlim(*accuracy_limits(shown, [leak.chance for leak in leaks]))
        axes.set_xlabel("balanced accuracy of the worst attacker")
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        few_ticks(axes)
        text = (
            f"Balanced accuracy of the worst attacker on {attribute} before and after unlearning; chance "
            f"{decimal(leaks[0].chance, 3)}. {'; '.join(words)}."
        )
        svg = to_svg(figure, name, text)
    title = attribute if leaks[0].unlearned else f"{attribute}, not unlearned"
    key = (("before", key_glyph(BEFORE, line=False)), ("after", key_glyph(AFTER, line=False)))
    note = (
        "Bars: 95\u00a0% intervals. Dashed: chance; the grey band is how far guessing comes by luck with these users."
    )
    return Chart(title, text, svg, key, note)


def adversary_chart(adversaries: Sequence[Adversary], name: str) -> Chart | None:
    """Accuracy of the training adversary of each attribute, as a moving mean."""
    shown = [found for found in adversaries if np.isfinite(found.smooth).any()]
    if not shown:
        return None
    words = []
    with drawing(WIDTH, HEIGHT) as figure:
        axes = axes_of(figure, **MARGINS)
        ends = []
        for number, found in enumerate(shown):
            style = series(number)
            if len(shown) == 1:
                axes.plot(found.round, found.accuracy, color=style.colour, alpha=0.3, linewidth=0.8)
            draw_line(axes, found.round, found.smooth, style, marked=len(shown) > 1)
            values = found.smooth[np.isfinite(found.smooth)]
            drawn = found.accuracy[np.isfinite(found.accuracy)] if len(shown) == 1 else values
            ends += [float(drawn.min()), float(drawn.max())]
            words.append(
                f"{found.attribute} {decimal(float(values[0]))} at first, {decimal(float(values[-1]))} at last"
            )
        ends += [1.0 / found.n_classes for found in shown if found.n_classes]
        for chance in sorted({1.0 / found.n_classes for found in shown if found.n_classes}):
            axes.axhline(chance, color=colour("ink"), linewidth=1.2, linestyle=(0, (4, 3)))
        room = max(0.1 * (max(ends) - min(ends)), 0.05)
        axes.set_ylim(min(ends) - room, max(ends) + room)
        over_rounds(axes)
        text = f"Accuracy of the training adversary per round. {'; '.join(words)}."
        svg = to_svg(figure, name, text)
    windows = sorted({found.window for found in shown})
    note = f"Lines: moving mean over {count(windows[-1])} rounds. " if windows[-1] > 1 else ""
    chances = [f"{found.attribute} {percent(1.0 / found.n_classes)}" for found in shown if found.n_classes]
    largest = [f"{found.attribute} {percent(found.majority)}" for found in shown if found.majority is not None]
    note += f"Dashed: guessing evenly ({', '.join(chances)}). " if chances else ""
    note += f"Naming always the largest class: {', '.join(largest)}." if largest else ""
    key = tuple((found.attribute, key_glyph(series(k), line=True)) for k, found in enumerate(shown))
    return Chart("Accuracy of the training adversary", text, svg, key if len(shown) > 1 else (), note.strip())


def _accuracy(result: AttackResult | None) -> float | None:
    return None if result is None else result.balanced_accuracy.value


def _in_words(result: AttackResult) -> str:
    estimate = result.balanced_accuracy
    assert estimate.value is not None
    if estimate.low is None or estimate.high is None:
        return decimal(estimate.value)
    return f"{decimal(estimate.value)} ({decimal(estimate.low)} to {decimal(estimate.high)})"


def _mark(axes: Axes, result: AttackResult, y: float, style: Series) -> None:
    estimate = result.balanced_accuracy
    assert estimate.value is not None
    if estimate.low is not None and estimate.high is not None:
        axes.plot([estimate.low, estimate.high], [y, y], color=style.colour, linewidth=2.0, solid_capstyle="butt")
    axes.plot([estimate.value], [y], marker=style.marker, color=style.colour, markersize=7.0, markeredgewidth=0.0)
