from __future__ import annotations

import re
from xml.etree import ElementTree

from fedrec_unlearn.report.charts import Chart
from fedrec_unlearn.report.charts_epsilon import Line, Panel, epsilon_chart
from fedrec_unlearn.report.inference import Estimate
from fedrec_unlearn.report.standalone import light_colours, standalone_svg
from fedrec_unlearn.report.svg import ROLES

SVG = "{http://www.w3.org/2000/svg}"


def _chart(label: str = "a") -> Chart:
    lines = tuple(Line(f"{label} {k}", ((0.1, Estimate(0.2)), (1.0, Estimate(0.3 + k)))) for k in range(12))
    chart = epsilon_chart(f"title of {label}", [Panel("leak", lines, 0.25, True)], "c")
    assert chart is not None
    return chart


def test_every_role_has_a_light_colour() -> None:
    assert set(ROLES) <= set(light_colours())


def test_the_file_needs_no_style_sheet_and_no_other_file() -> None:
    text = standalone_svg(_chart())
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert not re.search(r"var\(|class=|inherit|href=\"(?!#)|url\((?!#)", text)
    used = set(re.findall(r'href="#([^"]+)"', text)) | set(re.findall(r"url\(#([^)]+)\)", text))
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert used <= set(ids)
    assert len(ids) == len(set(ids))
    assert light_colours()["series-2"] in text


def test_title_legend_and_note_lie_inside_the_picture() -> None:
    chart = _chart()
    root = ElementTree.fromstring(standalone_svg(chart))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    (group,) = [element for element in root if element.tag == f"{SVG}g"]
    texts = [e for e in group if e.tag == f"{SVG}text"]
    told = [e.text for e in texts]
    assert told[0] == chart.title
    assert [label for label, _ in chart.key] == told[1 : 1 + len(chart.key)]
    assert " ".join(str(line) for line in told[1 + len(chart.key) :]) == chart.note
    for element in texts:
        assert 0 < float(element.attrib["y"]) < height
        assert 0 <= float(element.attrib["x"]) < width
    assert root[0].text == chart.words


def test_names_are_text_and_never_markup() -> None:
    label = "<b>&\"'$x"
    root = ElementTree.fromstring(standalone_svg(_chart(label)))
    assert f"{label} 3" in [element.text for element in root.iter(f"{SVG}text")]
    assert not list(root.iter(f"{SVG}b"))
