from __future__ import annotations

import itertools
import re
from importlib.resources import files
from xml.etree import ElementTree

import numpy as np
import pytest

from fedrec_unlearn.report.svg import N_SERIES, ROLES, axes_of, colour, drawing, key_glyph, series, to_svg

STYLE = (files("fedrec_unlearn.report") / "templates" / "style.css").read_text()
LIGHT, DARK = STYLE.split("prefers-color-scheme: dark", 1)

# Machado, Oliveira, Fernandes 2009, severity 1.0, on linear RGB
DEFICIENCIES = {
    "none": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def _linear(style: str, role: str) -> np.ndarray:
    found = re.search(rf"--{role}: #([0-9a-f]{{6}});", style)
    assert found, role
    channels = np.array([int(found[1][k : k + 2], 16) for k in (0, 2, 4)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def _contrast(style: str, one: str, other: str) -> float:
    # WCAG 2.2, relative luminance and contrast ratio
    first, second = (float(_linear(style, role) @ [0.2126, 0.7152, 0.0722]) for role in (one, other))
    return (max(first, second) + 0.05) / (min(first, second) + 0.05)


def _lab(linear: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ linear / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("style", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_contrast_aa_and_graphics_three_to_one(style: str) -> None:
    for role in ("ink", "muted", "link", "series-2"):
        assert _contrast(style, role, "paper") >= 4.5, role
    for number in range(1, N_SERIES + 1):
        assert _contrast(style, f"series-{number}", "paper") >= 3.0, number


@pytest.mark.parametrize("style", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("deficiency", list(DEFICIENCIES))
def test_colours_stay_apart_under_colour_vision_deficiency(style: str, deficiency: str) -> None:
    seen = [
        _lab(np.clip(np.array(DEFICIENCIES[deficiency]) @ _linear(style, f"series-{k}"), 0, 1))
        for k in range(1, N_SERIES + 1)
    ]
    for one, other in itertools.combinations(seen, 2):
        assert np.linalg.norm(one - other) > 12


def test_series_differ_in_more_than_colour() -> None:
    styles = [series(k) for k in range(N_SERIES)]
    assert len({style.marker for style in styles}) == N_SERIES
    assert len({str(style.dash) for style in styles}) == N_SERIES
    many = [series(k) for k in range(N_SERIES * N_SERIES)]
    assert len({(style.colour, style.marker) for style in many}) == len(many)


def _chart(name: str, label: str = "round") -> str:
    with drawing(300, 200) as figure:
        axes = axes_of(figure, left=40, right=10, top=10, bottom=30)
        axes.plot([1, 2, 3], [3, 1, 2], marker="o", color=series(1).colour)
        axes.set_xlabel(label)
        axes.grid()
        return to_svg(figure, name, f"In words: {label}")


def test_colours_are_variables_and_nothing_points_outside() -> None:
    svg = _chart("a")
    assert not re.search(r"#[0-9a-fA-F]{6}\b", re.sub(r'href="#[^"]*"', "", svg))
    assert set(re.findall(r"var\(--([a-z0-9-]+)\)", svg)) <= set(ROLES)
    assert "var(--series-2)" in svg
    assert "http" not in svg
    assert "font-family: inherit" in svg
    assert "DejaVu" not in svg


def test_ids_are_used_and_two_charts_share_none() -> None:
    ids = []
    for name in ("a", "b"):
        root = ElementTree.fromstring(_chart(name))
        own = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
        assert len(set(own)) == len(own)
        assert all(value.startswith(f"{name}-") for value in own)
        used = {root.attrib["aria-labelledby"]}
        for element in root.iter():
            used |= {element.attrib["href"][1:]} if "href" in element.attrib else set()
            used |= set(re.findall(r"url\(#([^)]*)\)", element.attrib.get("clip-path", "")))
        assert used == set(own)
        ids.append(set(own))
    assert not ids[0] & ids[1]


def test_a_label_is_text_whatever_it_holds() -> None:
    label = '<b>&"$x^2$ id="q" #fe00a7 url(#p) font-family: x'
    root = ElementTree.fromstring(_chart("a", label))
    assert label in [element.text for element in root.iter("text")]
    assert root[0].tag == "title"
    assert root[0].text == f"In words: {label}"
    assert root.attrib["role"] == "img"


def test_the_same_figure_gives_the_same_bytes_whatever_the_user_has_set() -> None:
    import matplotlib

    first = _chart("a")
    with matplotlib.rc_context({"font.size": 30.0, "svg.fonttype": "path", "axes.grid": True, "lines.linewidth": 9.0}):
        assert _chart("a") == first
        assert matplotlib.rcParams["font.size"] == 30.0


def test_a_key_shows_marker_and_line_in_the_series_colour() -> None:
    with_line, without = key_glyph(series(1), line=True), key_glyph(series(1), line=False)
    assert with_line.count("<path") == 2
    assert without.count("<path") == 1
    assert "var(--series-2)" in without
    assert colour("series-2") not in with_line
