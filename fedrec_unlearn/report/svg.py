"""From a matplotlib figure to an inline SVG that follows the page: its colours, its font, its width.

matplotlib knows no CSS variables, so charts are drawn in sentinel colours, one for each role, and `to_svg`
puts the variables in their place. One SVG then serves light and dark mode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

N_SERIES = 8
"""Colours, markers and dashes before combinations repeat in another order."""

ROLES = ("ink", "muted", "rule", "paper", *(f"series-{k}" for k in range(1, N_SERIES + 1)))
"""What a colour is for; the style sheet defines `--ink`, `--muted`, ... for light and dark mode."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
DASHES: tuple[str | tuple[int, tuple[float, ...]], ...] = (
    "-",
    (0, (5, 2)),
    (0, (1.5, 1.5)),
    (0, (6, 2, 1.5, 2)),
    (0, (3, 1)),
    (0, (8, 2, 1.5, 2, 1.5, 2)),
    (0, (9, 3)),
    (0, (4, 2, 1, 2)),
)

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"


@dataclass(frozen=True)
class Series:
    """How one run or class is drawn: never told apart by colour alone."""

    colour: str
    marker: str
    dash: str | tuple[int, tuple[float, ...]]


def colour(role: str) -> str:
    """Sentinel colour of a role in `ROLES`."""
    return f"#fe{ROLES.index(role):02x}a7"


def series(number: int) -> Series:
    """Style of the `number`-th series; the first 64 differ in colour or in marker and dash."""
    lap = number // N_SERIES
    shape = (number + lap) % N_SERIES
    return Series(colour(f"series-{number % N_SERIES + 1}"), MARKERS[shape], DASHES[shape])


@contextmanager
def drawing(width: float, height: float) -> Iterator[Figure]:
    """An empty figure of `width` x `height` SVG units, apart from the user's matplotlib settings."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "svg.fonttype": "none",
                "svg.hashsalt": "fedrec_unlearn",
                # names come from files: a dollar sign in one is no formula
                "text.parse_math": False,
                "axes.formatter.use_mathtext": False,
                "axes.unicode_minus": True,
                "font.size": 12.0,
                "text.color": colour("ink"),
                "axes.edgecolor": colour("muted"),
                "axes.labelcolor": colour("muted"),
                "axes.linewidth": 0.8,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.axisbelow": True,
                "xtick.color": colour("muted"),
                "ytick.color": colour("muted"),
                "xtick.labelsize": 11.0,
                "ytick.labelsize": 11.0,
                "xtick.major.size": 3.0,
                "ytick.major.size": 0.0,
                "grid.color": colour("rule"),
                "grid.linewidth": 0.8,
                "lines.linewidth": 1.8,
                "lines.solid_capstyle": "round",
            }
        )
        yield Figure(figsize=(width / 72.0, height / 72.0))


def axes_of(figure: Figure, *, left: float, right: float, top: float, bottom: float) -> Axes:
    """The only axes of a figure, with margins in SVG units and no background of their own."""
    width, height = figure.get_size_inches() * 72.0
    axes = figure.add_axes((left / width, bottom / height, 1 - (left + right) / width, 1 - (top + bottom) / height))
    figure.patch.set_visible(False)
    axes.patch.set_visible(False)
    return axes


def to_svg(figure: Figure, name: str, words: str) -> str:
    """Render a figure made under `drawing`.

    Args:
        figure: drawn in sentinel colours.
        name: unique in the page; every id in the SVG starts with it.
        words: what the chart shows, for readers who do not see it.

    Returns:
        An `<svg>` element with a viewBox and no fixed size, the same bytes for the same figure.
    """
    buffer = StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{_SVG}metadata", f"{_SVG}style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
    _name_ids(root, name)
    for element in root.iter():
        for key, value in element.attrib.items():
            element.set(key, _themed(value))
    size = root.get("viewBox") or ""
    root.attrib.clear()
    root.attrib.update({"viewBox": size, "role": "img", "aria-labelledby": f"{name}-title", "class": "plot"})
    title = ElementTree.Element("title", {"id": f"{name}-title"})
    title.text = words
    root.insert(0, title)
    return ElementTree.tostring(root, encoding="unicode")


def marker_path(marker: str, size: float) -> str:
    """SVG path data of a matplotlib marker, centred at 0, `size` units wide."""
    from matplotlib.markers import MarkerStyle
    from matplotlib.path import Path

    style = MarkerStyle(marker)
    path = style.get_path().transformed(style.get_transform())
    extent = path.get_extents()
    scale = size / max(extent.width, extent.height)
    letters = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "Z"}
    parts = []
    for points, code in path.iter_segments():
        # matplotlib's y axis points up, SVG's down
        at = [f"{value * scale * (-1 if k % 2 else 1):.2f}" for k, value in enumerate(points)]
        parts.append("Z" if code == Path.CLOSEPOLY else letters[code] + " ".join(at))
    return "".join(parts)


def key_glyph(style: Series, *, line: bool) -> str:
    """The sample of a series in a legend: its marker, on a piece of its line if it has one."""
    width = 30 if line else 14
    tint = _themed(style.colour)
    dash = "none" if isinstance(style.dash, str) else " ".join(f"{1.8 * length:g}" for length in style.dash[1])
    look = f"fill: none; stroke: {tint}; stroke-width: 1.8; stroke-dasharray: {dash}"
    stroke = f'<path d="M1 7H{width - 1}" style="{look}"/>' if line else ""
    # a cross has no area: its strokes are what is seen
    paint = f"fill: {tint}" if style.marker != "x" else f"fill: none; stroke: {tint}; stroke-width: 1.4"
    shape = marker_path(style.marker, 8.0)
    return (
        f'<svg class="key" viewBox="0 0 {width} 14" width="{width}" height="14" aria-hidden="true">'
        f'{stroke}<path d="{shape}" transform="translate({width / 2:g} 7)" style="{paint}"/></svg>'
    )


def _name_ids(root: ElementTree.Element, name: str) -> None:
    """Drop ids that nothing points to; prefix the others, so that SVGs in one page do not share any."""
    used = set()
    for element in root.iter():
        for value in element.attrib.values():
            used.update(re.findall(r"url\(#([^)]+)\)", value))
        if _HREF in element.attrib:
            used.add(element.attrib[_HREF].removeprefix("#"))
    for element in root.iter():
        if (own := element.attrib.pop("id", None)) in used:
            element.set("id", f"{name}-{own}")
        if target := element.attrib.pop(_HREF, None):
            element.set("href", f"#{name}-{target.removeprefix('#')}")
        if clip := element.get("clip-path"):
            element.set("clip-path", clip.replace("url(#", f"url(#{name}-"))


def _themed(value: str) -> str:
    value = re.sub(r"#fe([0-9a-f]{2})a7", lambda found: f"var(--{ROLES[int(found[1], 16)]})", value)
    return re.sub(r"font-family: [^;]*(;|$)", r"font-family: inherit\1", value)
