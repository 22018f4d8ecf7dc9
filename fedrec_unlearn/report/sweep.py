"""The page and the figure of a sweep over strengths of unlearning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrec_unlearn.errors import RunError
from fedrec_unlearn.report.charts import Chart
from fedrec_unlearn.report.charts_epsilon import Line, Panel, epsilon_chart
from fedrec_unlearn.report.checks import check_format, field, finite, need
from fedrec_unlearn.report.inference import Estimate
from fedrec_unlearn.report.methods import method_of
from fedrec_unlearn.report.standalone import standalone_svg
from fedrec_unlearn.report.tables import MISSING, Cell, Row
from fedrec_unlearn.report.template import need_libraries, render, write_whole
from fedrec_unlearn.report.wording import (
    attacker_name,
    count,
    decimal,
    headed,
    listed,
    metric_name,
    moment,
    percent,
    printable,
    signed,
    strength,
)


@dataclass(frozen=True)
class Point:
    """One strength: how well it recommends, and the attacker furthest from chance on each attribute."""

    epsilon: float
    """0: without unlearning."""
    run: str
    valid: float | None
    worst: dict[str, tuple[str, float, float]]
    """Attribute -> (attacker, balanced accuracy, chance)."""

    def distance(self, attribute: str) -> float | None:
        """Distance of the worst attacker from chance."""
        found = self.worst.get(attribute)
        return None if found is None else abs(found[1] - found[2])


@dataclass(frozen=True)
class Sweep:
    """The content of sweep.json that the page shows."""

    method: str
    attributes: tuple[str, ...]
    metric: str
    n_selection: int | None
    share: float | None
    tolerance: float | None
    none: Point | None
    tried: tuple[Point, ...]
    """Ascending by ε."""
    chosen: float | None
    overshoot: tuple[float, ...]
    reason: str
    created: str


def write_sweep(content: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write sweep.html, which needs no other file, and sweep.svg, its figure for other documents.

    Args:
        content: of sweep.json.
        folder: made if it is not there.

    Returns:
        The paths of the page and of the figure.

    Raises:
        RunError: `content` is not that of a sweep, or the folder cannot be written.
        DependencyError: Jinja2 or matplotlib is not installed.
    """
    need_libraries()
    sweep = read_sweep(content, folder / "sweep.json")
    chart = sweep_chart(sweep, "sweep")
    if chart is None:
        raise RunError(f"{folder / 'sweep.json'}: no strength was attacked, so there is nothing to draw; run it again")
    paths = [folder / "sweep.html", folder / "sweep.svg"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(paths[0], render("sweep.html.j2", _context(sweep, chart)))
        write_whole(paths[1], standalone_svg(chart))
    except OSError as error:
        raise RunError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from error
    return paths


def read_sweep(content: Mapping[str, Any], where: object) -> Sweep:
    """Check and read the content of sweep.json.

    Raises:
        RunError: a field is missing or of the wrong type; the message names it.
    """
    check_format(content, where)
    field(content, "method", "a text", where)
    field(content, "attributes", "a list", where)
    field(content, "points", "a list", where)
    field(content, "overshoot", "a list", where, required=False)
    field(content, "reason", "a text", where, required=False)
    for key in ("chosen", "tolerance", "selection_share"):
        field(content, key, "a number", where, required=False)
    points = [_point(entry, f"{where}: points[{k}]") for k, entry in enumerate(content["points"])]
    attributes = tuple(printable(str(name)) for name in content["attributes"])
    # written once for all points, or with each
    told = {**(content["points"][0] if points else {}), **{k: v for k, v in content.items() if v is not None}}
    tried = sorted((point for point in points if point.epsilon > 0), key=lambda point: point.epsilon)
    chosen = finite(content.get("chosen"))
    return Sweep(
        method=printable(content["method"]),
        attributes=attributes,
        metric=printable(str(told.get("select_by") or "validation metric")),
        n_selection=told["n_selection"] if isinstance(told.get("n_selection"), int) else None,
        share=finite(content.get("selection_share")),
        tolerance=finite(content.get("tolerance")),
        none=next((point for point in points if point.epsilon == 0), None),
        tried=tuple(tried),
        chosen=chosen,
        overshoot=tuple(float(e) for e in content.get("overshoot") or ()),
        reason=printable(content.get("reason") or ""),
        created=printable(str(content.get("created") or "")),
    )


def _point(entry: object, where: str) -> Point:
    need(isinstance(entry, dict), where, "must be an object")
    assert isinstance(entry, dict)
    field(entry, "epsilon", "a number", where)
    field(entry, "run", "a text", where, required=False)
    field(entry, "valid", "a number", where, required=False)
    field(entry, "attack", "a list", where)
    worst: dict[str, tuple[str, float, float]] = {}
    for number, result in enumerate(entry["attack"]):
        at = f"{where}: attack[{number}]"
        need(isinstance(result, dict), at, "must be an object")
        for key in ("attribute", "attacker"):
            field(result, key, "a text", at)
        for key in ("balanced_accuracy", "chance"):
            field(result, key, "a number", at)
        name = printable(result["attribute"])
        accuracy, chance = float(result["balanced_accuracy"]), float(result["chance"])
        if name not in worst or abs(accuracy - chance) > abs(worst[name][1] - worst[name][2]):
            worst[name] = (printable(result["attacker"]), accuracy, chance)
    return Point(float(entry["epsilon"]), printable(entry.get("run") or ""), finite(entry.get("valid")), worst)


def sweep_chart(sweep: Sweep, name: str) -> Chart | None:
    """A panel an attribute, and one for recommendation; None without any attack."""
    panels = []
    for attribute in sweep.attributes:
        points = tuple((point.epsilon, Estimate(point.distance(attribute))) for point in sweep.tried)
        none = None if sweep.none is None else sweep.none.distance(attribute)
        words = f"Distance of the worst attacker on {attribute} from chance"
        panels.append(Panel(f"{attribute}: distance from chance", (Line("worst", points),), none, True, words=words))
    valid = tuple((point.epsilon, Estimate(point.valid)) for point in sweep.tried)
    none = None if sweep.none is None else sweep.none.valid
    floor = None if none is None or sweep.tolerance is None else (1.0 - sweep.tolerance) * none
    label = f"validation {metric_name(sweep.metric)}"
    panels.append(Panel(label, (Line("worst", valid),), none, False, floor, headed(label)))
    return epsilon_chart(f"Strength of {method_of(sweep.method).name}", panels, name, sweep.chosen)


def sentences(sweep: Sweep) -> list[str]:
    """What the sweep found, the choice first."""
    told = []
    if sweep.chosen is not None:
        told.append(f"Chosen: ε {strength(sweep.chosen)}.")
    else:
        told.append("No strength was chosen.")
    if reason := re.sub(r"^unlearn\.epsilon [0-9.e+-]+: ", "", sweep.reason).rstrip("."):
        told.append(f"{headed(reason)}.")
    if sweep.overshoot:
        what = sweep.attributes[0] if len(sweep.attributes) == 1 else "at least one attribute"
        strengths = listed([strength(e) for e in sweep.overshoot])
        told.append(
            f"Over-shoot at ε {strengths}: fresh attackers read {what} better than without unlearning, whatever the "
            "training adversary says."
        )
    return told


def sweep_rows(sweep: Sweep) -> list[Row]:
    """A row a strength: recommendation kept, and for each attribute the worst attacker, in either direction."""
    rows = []
    base = None if sweep.none is None else sweep.none.valid
    for point in (*([sweep.none] if sweep.none is not None else []), *sweep.tried):
        if point.epsilon == 0:
            state = "without unlearning"
        elif point.epsilon == sweep.chosen:
            state = "chosen"
        else:
            state = "over-shoot" if point.epsilon in sweep.overshoot else "tried"
        kept = None if base is None or not base or point.valid is None else point.valid / base
        cells = [
            Cell(state),
            Cell(strength(point.epsilon), point.epsilon),
            MISSING if point.valid is None else Cell(decimal(point.valid, 4), point.valid),
            MISSING if kept is None else Cell(decimal(kept), kept),
        ]
        for attribute in sweep.attributes:
            found = point.worst.get(attribute)
            if found is None:
                cells += [MISSING, MISSING]
                continue
            attacker, accuracy, chance = found
            cells.append(Cell(decimal(accuracy), accuracy, attacker_name(attacker)))
            cells.append(Cell(signed(accuracy - chance), accuracy - chance))
        rows.append(Row(point.run or f"ε {strength(point.epsilon)}", tuple(cells)))
    return rows


def _context(sweep: Sweep, chart: Chart) -> dict[str, Any]:
    method = method_of(sweep.method)
    columns = ["Run", "Result", "ε", metric_name(sweep.metric), "Kept"]
    for attribute in sweep.attributes:
        columns += [f"{attribute}: worst attacker", "From chance"]
    facts = [
        ("Method", headed(method.name)),
        ("Attributes", listed(list(sweep.attributes)) if sweep.attributes else "none"),
        ("Judged on", "" if sweep.n_selection is None else f"{count(sweep.n_selection)} users set aside"),
        ("Share set aside", "" if sweep.share is None else percent(sweep.share)),
        ("Loss accepted", "" if sweep.tolerance is None else f"{percent(sweep.tolerance)} of {sweep.metric}"),
        ("Made", moment(sweep.created)),
    ]
    return {
        "title": f"How strong should {method.name} be?",
        "kind": "Sweep over strengths of unlearning",
        "several": False,
        "runs": [],
        "sentences": sentences(sweep),
        "facts": [Row(name, (Cell(text),)) for name, text in facts if text],
        "method": f"{headed(method.name)}: {method.words}.",
        "chart": chart,
        "columns": columns,
        "rows": sweep_rows(sweep),
    }
