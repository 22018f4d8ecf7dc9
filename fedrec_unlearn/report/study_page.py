"""The page of a study, and its charts as files of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrec_unlearn.errors import RunError
from fedrec_unlearn.report import study_tables as tables
from fedrec_unlearn.report.charts import Chart
from fedrec_unlearn.report.charts_study import ablation_chart, method_label, trade_off_chart
from fedrec_unlearn.report.standalone import standalone_svg
from fedrec_unlearn.report.study import EMBEDDING, Entry, Study, read_study
from fedrec_unlearn.report.tables import Cell, Row
from fedrec_unlearn.report.template import need_libraries, render, write_whole
from fedrec_unlearn.report.wording import (
    count,
    decimal,
    headed,
    listed,
    metric_in_full,
    metric_meaning,
    metric_name,
    moment,
    percent,
    plural,
    protocol_meaning,
    strength,
    surface_name,
)

USEFUL = 0.9
"""An arm that keeps less than this of a metric is not named as the best, however little it tells."""


def write_study(content: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write study.html, which needs no other file, and its charts as SVG files for other documents.

    Args:
        content: of bench.json.
        folder: made if it is not there.

    Returns:
        The paths of the page and of the charts.

    Raises:
        RunError: `content` is not that of a study, or the folder cannot be written.
        DependencyError: Jinja2 or matplotlib is not installed.
    """
    need_libraries()
    study = read_study(content, folder / "bench.json")
    trade_offs = {
        f"trade-off-{_slug(attribute)}-{_slug(metric)}": chart
        for attribute in study.attributes
        for metric in study.metrics
        if (chart := trade_off_chart(study, attribute, metric, f"t-{_slug(attribute)}-{_slug(metric)}")) is not None
    }
    ablations = {
        f"strength-{_slug(attribute)}": chart
        for attribute in study.attributes
        if (chart := ablation_chart(study, attribute, f"e-{_slug(attribute)}")) is not None
    }
    page = folder / "study.html"
    written = [page]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(page, render("study.html.j2", _context(study, trade_offs, ablations)))
        for name, chart in {**trade_offs, **ablations}.items():
            written.append(folder / f"{name}.svg")
            write_whole(written[-1], standalone_svg(chart))
    except OSError as error:
        raise RunError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from error
    return written


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower() or "x"


def findings(study: Study) -> list[str]:
    """What the study found, in sentences."""
    told = []
    if study.quick:
        told.append("A quick run: fewer seeds, arms and rounds than the study has. Its figures are not the study's.")
    for attribute in study.attributes:
        base = study.base(attribute)
        rivals = [e for e in study.compared(attribute) if e.arm != study.baseline and e.distance.value is not None]
        if base is None or base.worst.value is None or not rivals:
            continue
        useful = [e for e in rivals if all((k := e.kept.get(m)) and (k.value or 0.0) >= USEFUL for m in study.metrics)]
        best = min(useful or rivals, key=lambda e: e.distance.value or 0.0)
        among = f"Of the arms that keep {percent(USEFUL)} or more of recommendation, " if useful else ""
        told.append(
            f"Without unlearning the worst attacker names {attribute} right in {percent(base.worst.value)} of cases "
            f"({percent(base.chance)} by chance). {among}{best.label} comes nearest to chance: "
            f"{percent(best.worst.value or 0.0)}{_keeping(study, best)}."
        )
    if over := _overshoots(study):
        told.append(f"Over-shoot, more readable than without unlearning: {'; '.join(over)}.")
    if study.targets:
        met = sum(bool(target["met"]) for target in study.targets)
        told.append(f"{count(met)} of {plural(len(study.targets), 'aim')} are met.")
    return told


def _keeping(study: Study, entry: Entry) -> str:
    kept = [
        f"{decimal(found.value)} times the {metric_in_full(metric)}"
        for metric in study.metrics
        if (found := entry.kept.get(metric)) is not None and found.value is not None
    ]
    return f", at {' and '.join(kept)}" if kept else ""


def _overshoots(study: Study) -> list[str]:
    """What is read better than without unlearning: by method and surface, with the strengths."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for entry in study.entries:
        base = study.base(entry.attribute, entry.surface)
        if base is None or entry.attribute not in entry.unlearns or not tables.is_overshoot(entry, base):
            continue
        value = percent(entry.worst.value or 0.0)
        told = f"{value} at ε {strength(entry.epsilon)}" if entry.epsilon else value
        found.setdefault((method_label(entry), entry.attribute, entry.surface), []).append(told)
    return [
        f"{attribute} under {label}{'' if surface == EMBEDDING else f', {surface_name(surface)}'} ({', '.join(values)})"
        for (label, attribute, surface), values in found.items()
    ]


def _context(study: Study, trade_offs: Mapping[str, Chart], ablations: Mapping[str, Chart]) -> dict[str, Any]:
    attributes = []
    for attribute in study.attributes:
        arms = study.compared(attribute)
        surface_columns, surface_rows = tables.surface_rows(study, attribute)
        attributes.append(
            {
                "name": attribute,
                "slug": _slug(attribute),
                "arm_columns": tables.arm_columns(study, arms),
                "arms": tables.arm_rows(study, arms),
                "surface_columns": surface_columns,
                "surfaces": surface_rows if len(surface_columns) > 2 else [],
                "chance": percent(study.attributes[attribute].chance),
            }
        )
    numbers = sorted({int(result["n"]) for result in study.inversion if result.get("n")})
    notes: dict[str, str] = {}
    for metric in study.utility:
        if meaning := metric_meaning(metric):
            notes[metric_name(metric).partition("@")[0]] = f"{meaning}."
        if protocol := protocol_meaning(metric):
            name, _, meaning = protocol.partition(": ")
            notes[name] = meaning
    facts = [
        ("Study", study.name),
        ("Paper", study.paper),
        ("Seeds", ", ".join(str(seed) for seed in study.seeds)),
        ("Arms", count(len({entry.arm for entry in study.entries}))),
        ("Compared with", study.baseline),
        ("Made", moment(study.created)),
    ]
    return {
        "title": study.title,
        "kind": "Study" + (", quick run" if study.quick else ""),
        "several": False,
        "runs": [],
        "sentences": findings(study),
        "targets": tables.target_rows(study),
        "trade_offs": list(trade_offs.values()),
        "ablations": list(ablations.values()),
        "attributes": attributes,
        "pooled": bool(study.pooled),
        "specificity_columns": tables.SPECIFICITY_COLUMNS,
        "specificity": tables.specificity_rows(study),
        "inversion": tables.inversion_tables(study),
        "inversion_n": f"{listed([count(n) for n in numbers])} clients a seed" if numbers else "",
        "inferred": tables.inferred_rows(study),
        "facts": [Row(name, (Cell(text),)) for name, text in facts if text],
        "metric_notes": [(name, headed(meaning)) for name, meaning in notes.items()],
        "files": [f"{name}.svg" for name in (*trade_offs, *ablations)],
    }
