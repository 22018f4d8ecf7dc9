"""A study in tables: methods against attackers, strengths against attackers, gradients, targets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ABSENT = "-"
"""Stands for a figure that was not measured."""

GROUP_TITLES = {
    "table": "{attribute}, attackers see {surface}",
    "ablation": "{attribute} over strengths, attackers see {surface}",
}

Content = Mapping[str, Any]


@dataclass(frozen=True)
class StudyTable:
    """Text in rows and columns; all columns but the first `words` hold figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    note: str = ""

    def markdown(self) -> str:
        """As a Markdown table under its title."""

        def line(cells: Iterable[str]) -> str:
            return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

        ruler = ["---" if n < self.words else "---:" for n in range(len(self.columns))]
        lines = [f"### {self.title}", "", line(self.columns), line(ruler), *map(line, self.rows)]
        return "\n".join([*lines, *(["", self.note] if self.note else []), ""])


def study_tables(content: Content) -> list[StudyTable]:
    """The tables of bench.json, the comparison of methods first.

    Args:
        content: of bench.json.
    """
    summary = content["summary"]
    tables = []
    for group in ("table", "ablation"):
        own = [entry for entry in summary if entry["group"] == group]
        for attribute, surface in dict.fromkeys((entry["attribute"], entry["surface"]) for entry in own):
            shown = [e for e in own if (e["attribute"], e["surface"]) == (attribute, surface)]
            if group == "ablation":
                # strengths begin at none
                shown = [
                    e
                    for e in summary
                    if e["arm"] == content["baseline"] and (e["attribute"], e["surface"]) == (attribute, surface)
                ] + shown
            title = GROUP_TITLES[group].format(attribute=attribute.replace("_", " "), surface=surface.replace("_", " "))
            title = title[0].upper() + title[1:]
            tables.append(_attack_table(content, title, attribute, shown))
    if content["inversion"]:
        tables.append(_inversion_table(content["inversion"]))
    if content["targets"]:
        tables.append(_target_table(content["targets"]))
    return tables


def _attack_table(content: Content, title: str, attribute: str, entries: Sequence[Mapping[str, Any]]) -> StudyTable:
    attackers = list(dict.fromkeys(name for entry in entries for name in entry["attackers"]))
    metrics = content["utility"]
    facts = content["attributes"][attribute]
    rows = []
    for entry in entries:
        unlearned = ", ".join(entry["unlearns"]) or ABSENT
        worst = _interval(entry["worst"]["mean"], entry["worst"]["low"], entry["worst"]["high"])
        figures = [_mean(entry["attackers"].get(name)) for name in attackers]
        kept = [f"{_figure(entry['utility'][metric]['ratio'])}" for metric in metrics]
        distance = _figure(entry["worst"]["distance"])
        rows.append((entry["label"], unlearned, *figures, worst, entry["worst"]["attacker"], distance, *kept))
    seeds = len(content["seeds"])
    note = (
        f"Balanced accuracy, mean of {seeds} seed{'s' * (seeds != 1)}; guessing reaches {facts['chance']:.3f} "
        f"({_sizes(facts)}). Worst: furthest from guessing, in either direction; distance: how far. "
        f"Ranking metrics as a share of those of {content['baseline']}."
    )
    columns = ("arm", "unlearns", *attackers, "worst, 95 % interval", "by", "distance", *metrics)
    return StudyTable(title, columns, tuple(rows), 2, note)


def _sizes(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in zip(facts["classes"], facts["counts"], strict=True))


def _inversion_table(results: Sequence[Mapping[str, Any]]) -> StudyTable:
    attacks = list(dict.fromkeys(result["attack"] for result in results))
    found: dict[tuple[str, ...], dict[str, Mapping[str, Any]]] = {}
    for result in results:
        head = f"/{result['head']}" if result["adversary"] == "dsvae" else ""
        who = (f"{result['attribute']}, K = {result['classes']}", f"{result['adversary']}{head}, {result['stage']}")
        found.setdefault((*who, result["defence"]), {})[result["attack"]] = result
    rows = tuple(
        (*who, *(_figure(of[name]["accuracy"]) if name in of else ABSENT for name in attacks))
        for who, of in found.items()
    )
    chances = sorted({result["chance"] for result in results}, reverse=True)
    note = (
        f"Share of {results[0]['n']} clients whose class is read from one gradient; guessing reaches "
        f"{', '.join(f'{chance:.3f}' for chance in chances)}."
    )
    return StudyTable(
        "Attacks on the adversary's gradients", ("attribute", "adversary", "defence", *attacks), rows, 3, note
    )


def _target_table(targets: Sequence[Mapping[str, Any]]) -> StudyTable:
    rows = tuple((t["aim"], t["must"], t["measured"], "yes" if t["met"] else "no") for t in targets)
    return StudyTable("Targets", ("aim", "must", "measured", "met"), rows, 4)


def rows_csv(content: Content) -> str:
    """One line for each arm, seed and attack: the figures everything else is made of."""
    lines = []
    for row in content["rows"]:
        shared = {name: value for name, value in row.items() if name not in ("metrics", "attack", "unlearns")}
        shared |= {"unlearns": "+".join(row["unlearns"])} | row["metrics"]
        lines += [{**shared, **found} for found in row["attack"]]
    return csv_text(lines)


def summary_csv(content: Content) -> str:
    """One line for each arm, attribute and surface."""
    lines = []
    for entry in content["summary"]:
        words = ("arm", "label", "group", "method", "epsilon", "attribute", "surface", "chance")
        line: dict[str, Any] = {name: entry[name] for name in words}
        line["unlearns"] = "+".join(entry["unlearns"])
        line |= {f"worst_{name}": value for name, value in entry["worst"].items()}
        line |= {f"{name}_mean": values["mean"] for name, values in entry["attackers"].items()}
        for metric, values in entry["utility"].items():
            line |= {f"{metric}_{name}": value for name, value in values.items()}
        lines.append(line)
    return csv_text(lines)


def csv_text(lines: Sequence[Mapping[str, Any]]) -> str:
    """Lines of named figures as CSV, with a column for every name."""
    columns = list(dict.fromkeys(name for line in lines for name in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _figure(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3f}"


def _mean(values: Mapping[str, Any] | None) -> str:
    return ABSENT if values is None else _figure(values["mean"])


def _interval(mean: float, low: float | None, high: float | None) -> str:
    return _figure(mean) if low is None or high is None else f"{mean:.3f} [{low:.3f}, {high:.3f}]"
