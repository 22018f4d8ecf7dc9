"""The page and the figure of a sweep hold what sweep.json holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fedrec_unlearn.errors import DependencyError, RunError
from fedrec_unlearn.report import write_sweep
from fedrec_unlearn.report.sweep import read_sweep, sentences

ReadPage = Callable[[str], Any]


def test_the_table_holds_the_worst_attacker_in_either_direction(
    sweep_content: dict[str, Any], tmp_path: Path, read_page: ReadPage
) -> None:
    paths = write_sweep(sweep_content, tmp_path / "out")
    assert [path.name for path in paths] == ["sweep.html", "sweep.svg"]
    page = read_page(paths[0].read_text())
    rows = page.table("Each strength")[1:]
    assert [row[0][0] for row in rows] == ["none", "epsilon-0.03", "epsilon-0.1", "epsilon-1", "epsilon-3"]
    states = ["without unlearning", "tried", "chosen", "over-shoot", "over-shoot"]
    assert [row[1][0] for row in rows] == states
    for row, point in zip(rows, sweep_content["points"], strict=True):
        worst = max(point["attack"], key=lambda r: abs(r["balanced_accuracy"] - 0.5))
        assert "MLP" in row[5][0]
        kept = point["valid"] / 0.3
        accuracy = worst["balanced_accuracy"]
        assert [cell[1] for cell in row[2:]] == [
            [point["epsilon"]],
            [point["valid"]],
            [kept],
            [accuracy],
            [accuracy - 0.5],
        ]


def test_findings_tell_choice_and_overshoot(sweep_content: dict[str, Any]) -> None:
    assert sentences(read_sweep(sweep_content, "sweep.json")) == [
        "Chosen: ε 0.1.",
        "The worst of 3 fresh attackers is 0.030 from guessing.",
        "Over-shoot at ε 1 and 3: fresh attackers read gender better than without unlearning, whatever the training "
        "adversary says.",
    ]
    none = sweep_content | {"chosen": None, "overshoot": [], "reason": "no strength keeps enough; try smaller ones"}
    assert sentences(read_sweep(none, "sweep.json")) == [
        "No strength was chosen.",
        "No strength keeps enough; try smaller ones.",
    ]


def test_facts_that_stand_at_the_points_are_found_too(sweep_content: dict[str, Any]) -> None:
    del sweep_content["select_by"]
    found = read_sweep(sweep_content, "sweep.json")
    assert (found.metric, found.n_selection) == ("ndcg@10/full", 471)


def test_the_figure_is_a_file_of_its_own_and_in_the_page(
    sweep_content: dict[str, Any], tmp_path: Path, read_page: ReadPage
) -> None:
    page, figure = write_sweep(sweep_content, tmp_path)
    root = ElementTree.parse(figure).getroot()
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert "gender: distance from chance" in texts
    assert "validation NDCG@10" in texts
    assert "without unlearning 0.180; ε 0.03: 0.050, 0.1: 0.030, 1: 0.250, 3: 0.360" in page.read_text()
    found = read_page(page.read_text())
    links = [values["href"] for _, values in found.tags if (values.get("href") or "#")[0] != "#"]
    assert links == ["data:,", "sweep.svg"]
    ids = [values["id"] for _, values in found.tags if "id" in values]
    assert len(ids) == len(set(ids))


def test_every_attribute_has_a_panel(sweep_content: dict[str, Any], tmp_path: Path) -> None:
    for point in sweep_content["points"]:
        point["attack"] += [result | {"attribute": "age"} for result in point["attack"]]
    sweep_content["attributes"].append("age")
    text = write_sweep(sweep_content, tmp_path)[0].read_text()
    assert "gender: distance from chance" in text
    assert "age: distance from chance" in text
    assert "read at least one attribute better" in text


def test_the_same_content_gives_the_same_bytes(sweep_content: dict[str, Any], tmp_path: Path) -> None:
    first, second = write_sweep(sweep_content, tmp_path / "a"), write_sweep(sweep_content, tmp_path / "b")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "has format 2"),
        ({"points": None}, "'points' must be a list"),
        ({"method": 3}, "'method' must be a text"),
        ({"points": [{"epsilon": "0.1", "attack": []}]}, r"points\[0\]: 'epsilon' must be a number"),
        ({"points": [{"epsilon": 0.1, "attack": [{"attribute": "a", "attacker": "b"}]}]}, "'balanced_accuracy'"),
        ({"points": []}, "nothing to draw"),
    ],
)
def test_malformed_content_is_named(
    sweep_content: dict[str, Any], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(RunError, match=rf"sweep\.json.*{message}"):
        write_sweep(sweep_content | change, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_names_are_text_and_never_markup(sweep_content: dict[str, Any], tmp_path: Path, read_page: ReadPage) -> None:
    hostile = "<script>alert(1)</script>"
    for point in sweep_content["points"]:
        point["run"] = hostile
        for result in point["attack"]:
            result |= {"attribute": hostile, "attacker": hostile}
    content = sweep_content | {"attributes": [hostile], "method": hostile, "reason": hostile}
    page, figure = write_sweep(content, tmp_path)
    assert sum(tag == "script" for tag, _ in read_page(page.read_text()).tags) == 1
    assert not [e for e in ElementTree.parse(figure).getroot().iter() if e.tag.endswith("script")]


def test_a_missing_library_is_named(
    sweep_content: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedrec_unlearn.report.template.find_spec", lambda name: None)
    with pytest.raises(DependencyError, match=r"jinja2 and matplotlib"):
        write_sweep(sweep_content, tmp_path)


def test_a_folder_that_cannot_be_written_is_named(sweep_content: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        write_sweep(sweep_content, tmp_path / "file" / "deeper")
