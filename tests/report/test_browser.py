"""The page in a real browser: nothing fails, nothing is fetched, nothing overflows, and the controls work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn.report import Users, read_run, write_report, write_study, write_sweep

MakeRun = Callable[..., Path]
MakeUsers = Callable[..., Users]

VIEWS = {
    "desktop": {"width": 1280, "height": 900},
    "phone": {"width": 360, "height": 800},
    "dark": {"width": 1280, "height": 900, "dark": True},
}

# what sticks out of the page: elements past the right edge that are not inside a container that scrolls
OVERFLOW = """(() => {
  const edge = document.documentElement.clientWidth;
  const out = [...document.querySelectorAll("body *")].filter((e) =>
    !e.closest(".scroll, svg, .unseen, .skip") && e.getBoundingClientRect().right > edge + 0.5);
  return {
    page: document.documentElement.scrollWidth - edge,
    edge,
    elements: out.map((e) => e.tagName + "." + e.className),
  };
})()"""


@pytest.fixture
def page(make_run: MakeRun, make_users: MakeUsers, tmp_path: Path) -> Path:
    return write_report([read_run(make_run(), make_users())], tmp_path / "one")[0]


@pytest.fixture
def comparison(make_run: MakeRun, make_users: MakeUsers, tmp_path: Path) -> Path:
    long = "a-very-long-name-of-a-run-without-any-space-in-it-" * 2
    records = [read_run(make_run(f"run-{k}", seed=k, name=f"{long}{k}"), make_users(seed=k)) for k in range(4)]
    return write_report(records, tmp_path / "several")[0]


@pytest.fixture
def unlearned(
    make_run: MakeRun,
    make_unlearned: MakeRun,
    make_users: MakeUsers,
    attacked: Callable[..., dict[str, Any]],
    tmp_path: Path,
) -> Path:
    surfaces = ("user_embedding", "update_support", "trajectory")
    folder = make_unlearned(
        results=[attacked("gender", 0.5 + 0.1 * k, surface=name) for k, name in enumerate(surfaces)]
        + [attacked("age", 0.58)],
        before=[attacked("gender", 0.684)],
        unlearn={"method": "fedau2", "epsilon": 0.1},
        adversary={"gender": [0.5, 0.6], "age": [0.4, 0.3]},
    )
    users = make_users()
    return write_report([read_run(make_run("base")), read_run(folder, users, make_users(seed=4))], tmp_path / "two")[0]


@pytest.fixture
def sweep(sweep_content: dict[str, Any], tmp_path: Path) -> Path:
    return write_sweep(sweep_content, tmp_path / "sweep")[0]


@pytest.fixture
def study(study_content: dict[str, Any], tmp_path: Path) -> Path:
    return write_study(study_content, tmp_path / "study")[0]


@pytest.mark.parametrize("view", list(VIEWS))
@pytest.mark.parametrize("kind", ["page", "comparison", "unlearned", "sweep", "study"])
def test_the_page_opens_without_errors_requests_or_overflow(
    request: pytest.FixtureRequest, browser: Any, kind: str, view: str
) -> None:
    path: Path = request.getfixturevalue(kind)
    browser.open(path, **VIEWS[view])
    browser.evaluate("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    found = browser.evaluate(OVERFLOW)
    assert found == {"page": 0, "edge": VIEWS[view]["width"], "elements": []}
    assert browser.problems() == []
    assert browser.requests() == [path.resolve().as_uri()]


def test_the_browser_fixture_sees_errors_and_overflow(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text("<p style='width: 2000px'>wide</p><script>console.error('told'); nowhere();</script>")
    browser.open(path, width=360, height=800)
    problems = browser.problems()
    assert any("told" in problem for problem in problems)
    assert any("Uncaught" in problem for problem in problems)
    assert browser.evaluate(OVERFLOW)["elements"] == ["P."]


def test_dark_mode_turns_paper_and_charts(page: Path, browser: Any) -> None:
    look = """[getComputedStyle(document.body).backgroundColor,
        getComputedStyle(document.querySelector('.plot text')).fill]"""
    browser.open(page, width=1280, height=900)
    light = browser.evaluate(look)
    browser.open(page, width=1280, height=900, dark=True)
    dark = browser.evaluate(look)
    assert light[0] == "rgb(255, 255, 255)"
    assert dark[0] == "rgb(18, 23, 29)"
    assert light[1] != dark[1]


@pytest.mark.parametrize("kind", ["page", "unlearned", "sweep", "study"])
def test_text_in_charts_is_readable_on_a_phone(request: pytest.FixtureRequest, browser: Any, kind: str) -> None:
    browser.open(request.getfixturevalue(kind), width=360, height=800)
    sizes = browser.evaluate(
        """[...document.querySelectorAll('.plot')].filter((s) => s.clientWidth).flatMap((s) => {
          const scale = s.getBoundingClientRect().width / s.viewBox.baseVal.width;
          return [...s.querySelectorAll('text')].map((t) => parseFloat(getComputedStyle(t).fontSize) * scale);
        })"""
    )
    assert len(sizes) > 10
    assert min(sizes) >= 9.0


# texts of a chart that lie on each other, or that stick out of their picture
COLLISIONS = """(() => {
  const out = [];
  for (const plot of document.querySelectorAll(".plot")) {
    if (!plot.clientWidth) continue;
    const frame = plot.getBoundingClientRect();
    const texts = [...plot.querySelectorAll("text")].map((t) => [t.textContent, t.getBoundingClientRect()]);
    texts.forEach(([text, box], k) => {
      if (box.left < frame.left - 2 || box.right > frame.right + 2) out.push(`cut: ${text}`);
      for (const [other, o] of texts.slice(k + 1))
        if (box.left < o.right - 1 && o.left < box.right - 1 && box.top < o.bottom - 3 && o.top < box.bottom - 3)
          out.push(`${text} on ${other}`);
    });
  }
  return out;
})()"""


@pytest.mark.parametrize("kind", ["page", "unlearned", "sweep", "study"])
def test_no_text_in_a_chart_lies_on_another_or_is_cut(request: pytest.FixtureRequest, browser: Any, kind: str) -> None:
    browser.open(request.getfixturevalue(kind), width=1280, height=900)
    assert browser.evaluate(COLLISIONS) == []


def test_both_states_are_seen_side_by_side_and_chosen_together(unlearned: Path, browser: Any) -> None:
    browser.open(unlearned, width=1280, height=900)
    boxes = """[...document.querySelectorAll('.panel-0 figure')].map((f) => {
        const box = f.getBoundingClientRect(); return [box.left, box.top, box.width]; })"""
    (left, top, width), (other, beside, as_wide) = browser.evaluate(boxes)
    assert other > left + width
    assert (beside, as_wide) == (top, width)
    browser.evaluate("document.querySelector('#view-0-1').click()")
    assert browser.evaluate(SHOWN) == ["none", "block"]


SHOWN = "[...document.querySelectorAll('.panel')].map((e) => getComputedStyle(e).display)"


@pytest.mark.parametrize("scripts", [True, False])
def test_the_attribute_is_chosen_by_keyboard_with_and_without_scripts(page: Path, browser: Any, scripts: bool) -> None:
    browser.open(page, width=1280, height=900, scripts=scripts)
    assert browser.evaluate(SHOWN) == ["block", "none"]
    browser.evaluate("document.querySelector('.views input').focus()")
    browser.press("ArrowRight")
    assert browser.evaluate("document.activeElement.id") == "view-0-1"
    assert browser.evaluate(SHOWN) == ["none", "block"]
    assert browser.problems() == []


def test_each_run_has_a_choice_of_its_own(comparison: Path, browser: Any) -> None:
    browser.open(comparison, width=1280, height=900)
    browser.evaluate("document.querySelector('#view-1-1').click()")
    assert browser.evaluate(SHOWN) == ["block", "none", "none", "block", "block", "none", "block", "none"]


def test_a_column_is_sorted_by_its_button_and_back(page: Path, browser: Any) -> None:
    browser.open(page, width=1280, height=900)
    column = """[...document.querySelectorAll('#attacks-0-caption ~ tbody tr')].map(
        (row) => Number(row.cells[2].querySelector('data').value))"""
    head = "document.querySelector('#attacks-0-caption ~ thead th[data-column=\"2\"]')"
    before = browser.evaluate(column)
    browser.evaluate(f"{head}.querySelector('button').focus()")
    browser.press("Enter")
    assert browser.evaluate(f"{head}.getAttribute('aria-sort')") == "descending"
    assert browser.evaluate(column) == sorted(before, reverse=True)
    browser.press("Enter")
    assert browser.evaluate(f"{head}.getAttribute('aria-sort')") == "ascending"
    assert browser.evaluate(column) == sorted(before)


def test_every_column_of_a_grouped_table_sorts_by_itself(comparison: Path, browser: Any) -> None:
    browser.open(comparison, width=1280, height=900)
    assert browser.evaluate(
        """[...document.querySelectorAll('#ranking-caption ~ thead th[data-column]')].slice(1).every((head) => {
          head.querySelector('button').click();
          const rows = [...head.closest('table').tBodies[0].rows];
          const values = rows.map((row) => Number(row.cells[head.dataset.column].querySelector('data').value));
          return values.length > 1 && values.every((value, k) => k === 0 || values[k - 1] >= value);
        })"""
    )


def test_print_shows_every_panel_and_light_colours(page: Path, browser: Any) -> None:
    browser.open(page, width=1280, height=900, dark=True)
    scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.call("Emulation.setEmulatedMedia", media="print", features=scheme)
    assert browser.evaluate(SHOWN) == ["block", "block"]
    assert browser.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--ink').trim()") == "#1b232c"
