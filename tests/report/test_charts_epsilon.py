"""Figures over strengths: a logarithmic axis, what is over-shoot, and one scale of styles."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from fedrec_unlearn.report.charts_epsilon import Line, Panel, epsilon_chart, overshoots
from fedrec_unlearn.report.inference import Estimate

STRENGTHS = (0.01, 0.1, 1.0)


def _line(label: str, *values: float | None) -> Line:
    return Line(label, tuple((e, Estimate(v)) for e, v in zip(STRENGTHS, values, strict=True)))


def _circles(svg: str, colour: str) -> list[tuple[float, float]]:
    uses = [e for e in ElementTree.fromstring(svg).iter("use") if f"fill: var(--{colour})" in e.attrib.get("style", "")]
    return [(float(e.attrib["x"]), float(e.attrib["y"])) for e in uses]


def test_points_are_where_their_logarithm_is() -> None:
    chart = epsilon_chart("t", [Panel("leak", (_line("a", 0.1, 0.2, 0.3),), None, True)], "c")
    assert chart is not None
    points = np.array(_circles(chart.svg, "series-1"))
    assert len(points) == 3
    steps = np.diff(points, axis=0)
    np.testing.assert_allclose(steps[0], steps[1], rtol=1e-3)  # ten times the strength, a tenth more leak
    assert steps[0][0] > 0 > steps[0][1]


def test_overshoot_is_what_lies_above_none_and_is_ringed() -> None:
    line = _line("a", 0.1, 0.25, 0.3)
    assert overshoots(line, 0.2) == [0.1, 1.0]
    assert overshoots(line, 0.25) == [1.0]
    assert overshoots(line, None) == []
    with_none = epsilon_chart("t", [Panel("leak", (line,), 0.2, True)], "c")
    assert with_none is not None
    root = ElementTree.fromstring(with_none.svg)
    rings = [e for e in root.iter("use") if "fill-opacity: 0;" in e.attrib.get("style", "")]
    assert len(rings) == 2
    assert "over-shoot" in [e.text for e in root.iter("text")]
    # utility above that of none is no over-shoot
    utility = epsilon_chart("t", [Panel("kept", (line,), 0.2, False)], "c")
    assert utility is not None
    assert "over-shoot" not in utility.svg


def test_nothing_to_draw_is_no_chart_and_gaps_are_left_out() -> None:
    assert epsilon_chart("t", [Panel("leak", (_line("a", None, None, None),), 0.2, True)], "c") is None
    chart = epsilon_chart("t", [Panel("leak", (_line("a", 0.1, None, 0.3),), 0.2, True)], "c")
    assert chart is not None
    assert len(_circles(chart.svg, "series-1")) == 2
    assert "0.01: 0.100, 1: 0.300" in chart.words


def test_a_method_looks_the_same_in_every_panel() -> None:
    panels = [
        Panel("leak", (_line("a", 0.1, 0.2, 0.3), _line("b", 0.2, 0.2, 0.2)), None, True),
        Panel("kept", (_line("b", 0.9, 0.9, 0.9),), 1.0, False),
    ]
    chart = epsilon_chart("t", panels, "c", chosen=0.1)
    assert chart is not None
    assert [label for label, _ in chart.key] == ["a", "b"]
    assert len(_circles(chart.svg, "series-2")) == 6
    assert "Chosen: 0.1." in chart.words


@pytest.mark.parametrize("strengths", [(0.01, 0.03, 0.1, 0.3, 1.0, 3.0), tuple(0.1 * k for k in range(1, 21)), (0.1,)])
def test_labels_of_strengths_do_not_overlap(strengths: tuple[float, ...]) -> None:
    line = Line("a", tuple((e, Estimate(0.1)) for e in strengths))
    chart = epsilon_chart("t", [Panel("leak", (line,), None, True)], "c")
    assert chart is not None
    labels = []
    for text in ElementTree.fromstring(chart.svg).iter("text"):
        found = re.search(r"translate\(([\d.]+) ([\d.]+)\)", text.attrib.get("transform", ""))
        if "text-anchor: middle" in text.attrib["style"] and re.fullmatch(r"[\d.]+", text.text or ""):
            place = float(found[1]) if found else float(text.attrib["x"])
            labels.append((place, 0.6 * 11.0 * len(text.text or "")))
    labels.sort()
    assert labels
    for (left, width), (right, other) in itertools.pairwise(labels):
        assert right - left > (width + other) / 2
