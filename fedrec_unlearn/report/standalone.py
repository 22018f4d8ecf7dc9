"""A chart as an SVG file of its own: with title, legend and note in it, in fixed colours that every program shows."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from importlib.resources import files

from fedrec_unlearn.report.charts import Chart

MARGIN = 14.0
TITLE = 28.0
ROW = 19.0
SMALL = 15.0
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', 'Liberation Sans', sans-serif"


@cache
def light_colours() -> dict[str, str]:
    """Colour of each role in light mode, from the style sheet of the pages."""
    style = (files(__package__) / "templates" / "style.css").read_text(encoding="utf-8")
    light = style.split("prefers-color-scheme: dark", 1)[0]
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-fA-F]{6})", light))


def standalone_svg(chart: Chart) -> str:
    """The chart as an SVG document without any reference to another.

    Programs that draw SVG know CSS variables rarely and dark mode almost never, so the light colours are written out.
    """
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', chart.svg)
    assert size is not None
    width, height = float(size[1]), float(size[2])
    parts, y = [], MARGIN + TITLE
    parts.append(_text(chart.title, 0.0, MARGIN + 14.0, 14.0, "ink", bold=True))
    parts.append(_placed(chart.svg, 0.0, y, f'width="{width:g}" height="{height:g}"'))
    y += height + 8.0
    x = 0.0
    for label, glyph in chart.key:
        glyph_width = float(re.search(r'width="(\d+)" height', glyph)[1])  # type: ignore[index]
        needed = glyph_width + 6.0 + _length(label, 12.0) + 18.0
        if x and x + needed > width:
            x, y = 0.0, y + ROW
        parts.append(_placed(glyph, x, y, ""))
        parts.append(_text(label, x + glyph_width + 6.0, y + 11.0, 12.0, "ink"))
        x += needed
    y += ROW if chart.key else 0.0
    for line in _wrapped(chart.note, width, 11.0):
        y += SMALL
        parts.append(_text(line, 0.0, y, 11.0, "muted"))
    full_width, full_height = width + 2 * MARGIN, y + MARGIN
    body = _fixed("".join(parts))
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full_width:g} {full_height:g}" '
        f'width="{full_width:g}" height="{full_height:g}" role="img" font-family="{escape(FONT)}">'
        f"<title>{escape(chart.words)}</title>"
        f'<rect width="100%" height="100%" fill="{light_colours()["paper"]}"/>'
        f'<g transform="translate({MARGIN:g} 0)">{body}</g></svg>\n'
    )


def _fixed(markup: str) -> str:
    markup = re.sub(r"var\(--([a-z0-9-]+)\)", lambda found: light_colours()[found[1]], markup)
    return re.sub(r"font-family: inherit;? ?", "", markup)


def _placed(svg: str, x: float, y: float, size: str) -> str:
    # the document tells what it shows; a title of a part would only show up as a tooltip
    svg = re.sub(r"<title [^>]*>.*?</title>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r' (role|aria-labelledby|aria-hidden|class)="[^"]*"', "", svg)
    return svg.replace("<svg ", f'<svg x="{x:g}" y="{y:g}" overflow="visible" {size} ', 1)


def _text(text: str, x: float, y: float, size: float, role: str, *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="var(--{role})"{weight}>{escape(text)}</text>'


def _length(text: str, size: float) -> float:
    # without the font at hand: sans-serif letters are a little over half as wide as they are high
    return 0.56 * size * len(text)


def _wrapped(text: str, width: float, size: float) -> list[str]:
    lines: list[str] = []
    for word in text.split(" "):
        if lines and _length(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        elif word:
            lines.append(word)
    return lines
