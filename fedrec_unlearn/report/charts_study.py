"""Charts of a study: what recommendation keeps against what the worst attacker reads, and both over strengths."""

from __future__ import annotations

import re

from fedrec_unlearn.report.charts import WIDTH, Chart
from fedrec_unlearn.report.charts_attack import chance_line, few_ticks
from fedrec_unlearn.report.charts_epsilon import Line, Panel, epsilon_chart
from fedrec_unlearn.report.inference import Estimate
from fedrec_unlearn.report.study import EMBEDDING, Entry, Study
from fedrec_unlearn.report.svg import axes_of, colour, drawing, key_glyph, series, to_svg
from fedrec_unlearn.report.wording import attacker_name, decimal, headed, metric_in_full, surface_name

FAR = 0.15
"""An arm that loses more than this while others do not is drawn at the edge, or it would flatten all others."""


def trade_off_chart(study: Study, attribute: str, metric: str, name: str) -> Chart | None:
    """One point an arm: the worst attacker's balanced accuracy, and the share of a metric that is kept.

    Args:
        study: the study.
        attribute: what is inferred.
        metric: what is kept, with its protocol.
        name: of the chart in its page.

    Returns:
        None where fewer than two arms were measured.
    """
    arms = [
        (entry, entry.worst.value, entry.kept[metric].value)
        for entry in study.compared(attribute)
        if metric in entry.kept
    ]
    points = [(entry, worst, kept) for entry, worst, kept in arms if worst is not None and kept is not None]
    if len(points) < 2:
        return None
    from matplotlib.ticker import MaxNLocator

    numbers = _styles(study)
    best = max(kept for *_, kept in points)
    near = [kept for *_, kept in points if kept > best - FAR]
    floor = min(near) if len(near) > 1 else min(kept for *_, kept in points)
    words, cut = [], []
    with drawing(WIDTH, 300.0) as figure:
        axes = axes_of(figure, left=46.0, right=16.0, top=22.0, bottom=38.0)
        chance = study.attributes[attribute].chance
        chance_line(axes, [chance])
        lows = [_low(entry.kept[metric], kept) for entry, _, kept in points if kept >= floor]
        highs = [_high(entry.kept[metric], kept) for entry, _, kept in points]
        room = max(0.08 * (max(highs) - min(lows)), 0.004)
        bottom, top = min(lows) - room * 1.5, max(highs) + room
        axes.set_ylim(bottom, top)
        for entry, worst, kept in points:
            style = series(numbers[entry.label])
            told = f"{entry.label}: kept {decimal(kept)}, {attacker_name(entry.worst_attacker)} {decimal(worst)}"
            words.append(told)
            if kept < floor:
                cut.append(f"{entry.label} ({decimal(kept)})")
                edge = bottom + 0.02 * (top - bottom)
                axes.plot([worst], [edge], marker=style.marker, color=style.colour, markersize=8.0, markeredgewidth=0.0)
                axes.annotate(
                    f"↓ {decimal(kept, 2)}", (worst, edge), xytext=(7.0, 2.0), textcoords="offset points", fontsize=10.5
                )
                continue
            low, high = _low(entry.worst, worst), _high(entry.worst, worst)
            bar = {"color": style.colour, "linewidth": 1.4, "alpha": 0.75}
            axes.plot([low, high], [kept, kept], **bar)  # type: ignore[arg-type]
            spread = entry.kept[metric]
            axes.plot([worst, worst], [_low(spread, kept), _high(spread, kept)], **bar)  # type: ignore[arg-type]
            axes.plot([worst], [kept], marker=style.marker, color=style.colour, markersize=8.0, markeredgewidth=0.0)
        ends = [chance, *(_low(e.worst, w) for e, w, _ in points), *(_high(e.worst, w) for e, w, _ in points)]
        span = max(max(ends) - min(ends), 0.08)
        axes.set_xlim(min(ends) - 0.06 * span, max(ends) + 0.06 * span)
        axes.axhline(1.0, color=colour("rule"), linewidth=1.6, zorder=0.5)
        axes.set_xlabel("balanced accuracy of the worst attacker")
        axes.grid()
        axes.spines["left"].set_visible(False)
        few_ticks(axes)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        text = (
            f"Share of {metric_in_full(metric)}, kept against the worst attack on {attribute}, who sees the "
            f"{surface_name(EMBEDDING)}; chance {decimal(chance)}. {'; '.join(words)}."
        )
        svg = to_svg(figure, name, text)
    key = tuple((entry.label, key_glyph(series(numbers[entry.label]), line=False)) for entry, *_ in points)
    note = (
        "Better arms lie higher and nearer to chance, on either side of it: left of it the attacker is reliably wrong. "
        "Bars: 95\u00a0% intervals over seeds."
    )
    if cut:
        note += f" Drawn at the lower edge, being far below: {', '.join(cut)}."
    return Chart(f"{headed(attribute)}: share of {metric_in_full(metric)}, kept", text, svg, key, note)


def ablation_chart(study: Study, attribute: str, name: str) -> Chart | None:
    """Worst attack and metrics kept over strengths, one line a method; None without an ablation of the attribute."""
    entries = [e for e in study.compared(attribute, group="ablation") if e.group == "ablation" and e.epsilon]
    if not entries:
        return None
    base = study.base(attribute)
    lines = list(dict.fromkeys(method_label(entry) for entry in entries))

    def of(label: str) -> list[Entry]:
        return [entry for entry in entries if method_label(entry) == label]

    def points(found: list[Entry], value: str | None) -> tuple[tuple[float, Estimate], ...]:
        return tuple((e.epsilon or 0.0, e.distance if value is None else e.kept[value]) for e in found)

    leak = tuple(Line(label, points(of(label), None)) for label in lines)
    none = None if base is None else base.distance.value
    words = f"Distance of the worst attacker on {attribute} from chance"
    panels = [Panel(f"{attribute}: distance of the worst attacker from chance", leak, none, True, words=words)]
    for metric in study.metrics:
        kept = tuple(Line(label, points([e for e in of(label) if metric in e.kept], metric)) for label in lines)
        panels.append(Panel(f"share of {metric_in_full(metric)}, kept", kept, 1.0, False))
    return epsilon_chart(f"Strength: {attribute}", panels, name)


def method_label(entry: Entry) -> str:
    """Label of an arm without its strength: `FedAU², ε 0.1` -> `FedAU²`."""
    return re.sub(r"[,\s]*ε\s*=?\s*[0-9.e+-]+", "", entry.label).strip() or entry.label


def _styles(study: Study) -> dict[str, int]:
    """Number of the style of each arm of the table: the same for all attributes, and for all charts."""
    labels = dict.fromkeys(e.label for e in study.entries if e.group == "table" or e.arm == study.baseline)
    return {label: number for number, label in enumerate(labels)}


def _low(estimate: Estimate, value: float) -> float:
    return value if estimate.low is None else estimate.low


def _high(estimate: Estimate, value: float) -> float:
    return value if estimate.high is None else estimate.high
