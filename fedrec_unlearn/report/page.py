"""The page of a report: its charts, tables and sentences, and the template they go into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedrec_unlearn.report import tables
from fedrec_unlearn.report.charts import Chart, loss_chart, time_chart, traffic_chart, validation_chart
from fedrec_unlearn.report.charts_attack import accuracy_chart, projection_charts, trade_off_chart
from fedrec_unlearn.report.charts_unlearning import adversary_chart, before_after_chart
from fedrec_unlearn.report.figures import RunFigures
from fedrec_unlearn.report.projection import MAX_POINTS
from fedrec_unlearn.report.protection import statements
from fedrec_unlearn.report.summary import compare, shared_metric, summarise, targets
from fedrec_unlearn.report.tables_unlearning import (
    KEPT_COLUMNS,
    OTHER_COLUMNS,
    UNLEARNED_COLUMNS,
    kept_rows,
    other_rows,
    unlearned_rows,
    unlearning_facts,
)
from fedrec_unlearn.report.template import render
from fedrec_unlearn.report.wording import count, headed, listed, percent

CAUTION = (
    "“No leak shown” speaks of the attackers that were tried, on these users; another attacker may find more. What was "
    "not measured may leak."
)
"""What no statement on protection should be read without."""


@dataclass(frozen=True)
class Panel:
    """The projection coloured by one attribute."""

    attribute: str
    charts: tuple[Chart, ...]
    """One, or two: before and after unlearning."""


@dataclass(frozen=True)
class ProjectionView:
    """The projection of one run, a panel an attribute."""

    label: str
    words: str
    panels: tuple[Panel, ...]


def to_html(runs: Sequence[RunFigures], siblings: Sequence[str]) -> str:
    """The page as one HTML document without any reference to another, but links to its sibling files.

    Args:
        runs: at least one.
        siblings: names of the JSON and CSV file beside the page.
    """
    return render("report.html.j2", _context(runs, siblings))


def _context(runs: Sequence[RunFigures], siblings: Sequence[str]) -> dict[str, Any]:
    several = len(runs) > 1
    attacked = [run for run in runs if run.attack]
    title = " and ".join(run.label for run in runs) if len(runs) <= 2 else f"{len(runs)} runs side by side"
    return {
        "title": title,
        "kind": "Comparison of runs" if several else "Report of a run",
        "runs": runs,
        "several": several,
        "siblings": siblings,
        "comparison": compare(runs) if several else [],
        "summaries": [(run.label, summarise(run)) for run in runs],
        "facts": tables.fact_rows(runs),
        "options": tables.option_rows(runs) if several else [],
        "configurations": [(run.label, sorted(run.options.items())) for run in runs],
        "unlearnings": [
            _unlearning(run, f"unlearning-{k}") for k, run in enumerate(runs) if run.unlearning is not None
        ],
        "unlearned_columns": UNLEARNED_COLUMNS,
        "other_columns": OTHER_COLUMNS,
        "kept_columns": KEPT_COLUMNS,
        "curves": _present(loss_chart(runs, "loss"), *_validation(runs)),
        "trade_offs": _trade_offs(runs) if several else [],
        "trade_off_metric": shared_metric(runs),
        "ranking": tables.ranking_rows(runs),
        "metric_notes": tables.metric_notes(runs),
        "attack_charts": _attack_charts(runs),
        "attacks": [_attack(run) for run in attacked],
        "attack_columns": tables.attack_columns(runs, [run.label for run in runs]),
        "attacks_by_run": tables.balanced_accuracy_rows(runs) if several else [],
        "without_attack": [run.label for run in runs if not run.attack],
        "without_metrics": [run.label for run in runs if not run.ranking],
        "projections": [_projection(run, f"pca-{k}") for k, run in enumerate(runs) if run.projection is not None],
        "cost_charts": _present(traffic_chart(runs, "traffic"), time_chart(runs, "time")),
        "traffic": tables.traffic_rows(runs),
        "times": tables.time_rows(runs),
        "version": next((run.facts["version"] for run in runs if run.facts["version"]), None),
    }


def _present(*charts: Chart | None) -> list[Chart]:
    return [chart for chart in charts if chart is not None]


def _validation(runs: Sequence[RunFigures]) -> list[Chart]:
    metrics = list(dict.fromkeys(run.selected_by for run in runs if run.selected_by is not None))
    return _present(*(validation_chart(runs, metric, f"valid-{k}") for k, metric in enumerate(metrics)))


def _attack_charts(runs: Sequence[RunFigures]) -> list[Chart]:
    found = enumerate(targets(runs))
    return _present(*(accuracy_chart(runs, attribute, surface, f"attack-{k}") for k, (attribute, surface) in found))


def _trade_offs(runs: Sequence[RunFigures]) -> list[Chart]:
    metric = shared_metric(runs)
    if metric is None:
        return []
    found = enumerate(targets(runs))
    return _present(*(trade_off_chart(runs, *target, metric, f"trade-{k}") for k, target in found))


def _attack(run: RunFigures) -> dict[str, Any]:
    surfaces = tables.surfaces_of([run])
    return {
        "label": run.label,
        "seen": f"; the attacker sees: {surfaces[0]}" if len(surfaces) == 1 else "",
        "columns": tables.attack_columns([run], tables.ATTACK_FIGURES),
        "targets": tables.target_rows(run),
        "rows": tables.attack_rows(run),
        "settings": _settings(run),
    }


def _settings(run: RunFigures) -> str:
    settings = run.attack_settings
    told = []
    for key, words in (("folds", "outer folds over users"), ("inner_folds", "inner folds to tune each attacker")):
        if isinstance(settings.get(key), int):
            told.append(f"{settings[key]} {words}")
    if isinstance(settings.get("seeds"), list) and settings["seeds"]:
        told.append(f"seeds {', '.join(str(seed) for seed in settings['seeds'])}")
    return f"Cross-validated: {listed(told)}." if told else ""


def _projection(run: RunFigures, name: str) -> ProjectionView:
    found = run.projection
    assert found is not None
    paired = found.points_before is not None
    shares = found.explained_variance_before or found.explained_variance
    first, second = shares
    words = (
        f"{count(found.n_users)} user embeddings of length {found.width} on their first two principal components"
        f"{' before unlearning' if paired else ''}, which explain {percent(first)} and {percent(second)} of the "
        f"variance{' there' if paired else ''}. "
    )
    if paired:
        words += "Before and after lie on the same axes, to the same scale. "
    if len(found.points) < found.n_users:
        words += (
            f"Drawn are {count(len(found.points))} users, a fixed random sample (at most {count(MAX_POINTS)}); "
            "the components come from all. "
        )
    words += (
        "Groups that lie apart here are easy to tell apart; groups that do not may still be, in the other dimensions."
    )
    unlearned = run.unlearning.attributes if run.unlearning is not None else ()
    panels = tuple(
        Panel(attribute, projection_charts(found, attribute, f"{name}-{k}"))
        for k, attribute in enumerate(sorted(found.attributes, key=lambda name: name not in unlearned))
    )
    return ProjectionView(run.label, words, panels)


def _unlearning(run: RunFigures, name: str) -> dict[str, Any]:
    found = run.unlearning
    assert found is not None
    attributes = dict.fromkeys(leak.attribute for leak in found.leaks)
    charts = (before_after_chart(found.of(a), f"{name}-{k}") for k, a in enumerate(attributes))
    return {
        "label": run.label,
        "words": f"{headed(found.words.name)}: {found.words.words}.",
        "facts": unlearning_facts(run),
        "statements": statements(found, run.options, run.attack_settings),
        "caution": CAUTION,
        "charts": _present(*charts),
        "unlearned": unlearned_rows(found),
        "others": other_rows(found),
        "leaks_before": f"“Before” is {found.leaks_before}."
        if found.leaks_before is not None
        else "The state before was not attacked: run fedrec attack with --before, or report the run beside one "
        "without unlearning.",
        "kept": kept_rows(found),
        "kept_before": f"“Before” is {found.kept_before}.",
        "adversary": adversary_chart(found.adversary, f"{name}-adversary"),
    }
