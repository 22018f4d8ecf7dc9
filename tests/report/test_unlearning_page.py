"""The section on unlearning in the page, the JSON and the CSV."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from fedrec_unlearn.report import Users, read_run, write_report
from fedrec_unlearn.report.charts_attack import projection_charts
from fedrec_unlearn.report.charts_unlearning import adversary_chart, before_after_chart
from fedrec_unlearn.report.figures import figures_of
from fedrec_unlearn.report.projection import project

MakeRun = Callable[..., Path]
MakeUsers = Callable[..., Users]
Attacked = Callable[..., dict[str, Any]]
Written = Callable[[list[Path]], tuple[Any, dict[str, Any], list[dict[str, str]]]]


@pytest.fixture
def folder(make_unlearned: MakeRun, attacked: Attacked) -> Path:
    return make_unlearned(
        results=[
            attacked("gender", 0.51),
            attacked("gender", 0.47, attacker="knn"),
            attacked("gender", 0.71, surface="update_support"),
            attacked("age", 0.585),
        ],
        before=[attacked("gender", 0.684), attacked("age", 0.59)],
    )


def test_figures_before_and_after_are_the_same_in_html_json_csv_and_input(
    folder: Path, tmp_path: Path, written: Written
) -> None:
    page, content, rows = written(write_report([read_run(folder)], tmp_path / "out"))
    told = content["runs"][0]["unlearning"]
    shown = page.table("Unlearned attributes")[1:]
    assert [[cell[0] for cell in row[:4]] for row in shown] == [
        ["gender", "user embedding", "no leak shown", "nearest neighbours"],
        ["gender", "updated items", "leaks", "MLP"],
    ]
    # the worst is the one below chance: 0.47 is further away than 0.51
    assert [cell[1] for cell in shown[0][4:]] == [[0.47], [0.684], [0.5], [0.47 - 0.5]]
    assert "[0.465, 0.475]" in shown[0][4][0]
    assert [cell[1] for cell in shown[1][4:]] == [[0.71], [], [0.5], [pytest.approx(0.21)]]
    first = told["surfaces"][0]
    assert first["after"]["balanced_accuracy"] == {"value": 0.47, "low": 0.47 - 0.005, "high": 0.47 + 0.005}
    assert first["after"]["distance"]["value"] == pytest.approx(0.03)
    assert first["before"]["attacker"] == "mlp"
    assert (first["beyond_luck"], first["overshoot"], first["result"]) == (False, False, "no leak shown")
    (other,) = page.table("Attributes that were not to be unlearned")[1:]
    change = told["surfaces"][2]["change"]
    assert other[0][0] == "age"
    assert other[-1][1] == [change] == [pytest.approx(-0.005)]

    def number(**where: str) -> float:
        (found,) = [row for row in rows if all(row[key] == value for key, value in where.items())]
        return float(found["value"])

    where = {"section": "unlearning", "attribute": "gender", "surface": "user_embedding"}
    assert number(**where, name="after", metric="worst_balanced_accuracy") == 0.47
    assert number(**where, name="before", metric="worst_distance") == first["before"]["distance"]["value"]
    assert number(**where, name="change", metric="worst_distance") == first["change"]
    assert number(section="unlearning", metric="bytes_up", name="") == told["bytes_up"] == 943_000
    assert number(section="unlearning", metric="ndcg@10/full", name="ratio") == pytest.approx(0.29 / 0.30)
    (kept,) = page.table("Recommendation on test data")[1:]
    assert [cell[1] for cell in kept[1:]] == [[0.30], [0.29], [0.29 / 0.30]]


def test_the_section_tells_method_cost_and_statements(folder: Path, tmp_path: Path, written: Written) -> None:
    page, content, _ = written(write_report([read_run(folder)], tmp_path / "out"))
    for text in ("Moment transport", "0.25\u00a0s", "943\u00a0kB", "1.00\u00a0kB a user", "as shares to two servers"):
        assert text in page.text
    told = content["runs"][0]["unlearning"]["statements"]
    assert {"protected", "exposed", "unmeasured", "setting", "other"} == {entry["kind"] for entry in told}
    for entry in told:
        assert entry["text"] in page.text
    assert content["runs"][0]["facts"]["unlearned"] == "gender (moment transport)"


def test_without_unlearning_there_is_no_section(make_run: MakeRun, tmp_path: Path, written: Written) -> None:
    page, content, rows = written(write_report([read_run(make_run(rounds=3))], tmp_path / "out"))
    assert content["runs"][0]["unlearning"] is None
    assert not [row for row in rows if row["section"] == "unlearning"]
    assert not [values for tag, values in page.tags if values.get("href") == "#unlearning"]


def test_an_unlearned_run_that_was_not_attacked_is_reported(
    make_unlearned: MakeRun, tmp_path: Path, written: Written
) -> None:
    page, content, _ = written(write_report([read_run(make_unlearned(ndcg=(None, 0.29)))], tmp_path / "out"))
    assert "Not attacked yet: run fedrec attack on the run folder, with --before" in page.text
    assert content["runs"][0]["unlearning"]["surfaces"] == []
    assert content["runs"][0]["unlearning"]["ranking"] == {}


def test_the_adversary_is_drawn_with_its_caution(make_unlearned: MakeRun, tmp_path: Path, written: Written) -> None:
    folder = make_unlearned(
        unlearn={"method": "fedau2", "epsilon": 0.1, "source": None},
        adversary={"gender": [0.55, 0.65], "age": [0.4]},
        ndcg=(None, 0.29),
    )
    page, content, rows = written(write_report([read_run(folder)], tmp_path / "out"))
    assert "A training adversary that is beaten proves nothing" in page.text
    adversaries = content["runs"][0]["unlearning"]["adversary"]
    assert [entry["attribute"] for entry in adversaries] == ["gender", "age"]
    assert adversaries[0]["accuracy"][:3] == [0.55, 0.65, 0.55]
    found = [row for row in rows if row["attacker"] == "training adversary" and row["attribute"] == "gender"]
    assert [float(row["value"]) for row in found][:2] == [0.55, 0.65]
    (run,) = figures_of([read_run(folder)])
    assert run.unlearning is not None
    chart = adversary_chart(run.unlearning.adversary, "a")
    assert chart is not None
    assert [label for label, _ in chart.key] == ["gender", "age"]


def test_unlearned_runs_stand_beside_the_run_before(
    make_run: MakeRun, folder: Path, attacked: Attacked, tmp_path: Path, written: Written
) -> None:
    base = make_run("base", attack={"format": 1, "results": [attacked("gender", 0.684)]})
    page, content, _ = written(write_report([read_run(base), read_run(folder)], tmp_path / "out"))
    assert content["runs"][0]["unlearning"] is None
    assert content["runs"][1]["unlearning"]["attack_before"] == "the run base"
    assert any(sentence.startswith("after: After moment transport") for sentence in content["comparison"])
    ids = [values["id"] for _, values in page.tags if "id" in values]
    assert len(ids) == len(set(ids))


def test_before_and_after_share_axes_and_differ_in_points(make_users: MakeUsers, folder: Path, tmp_path: Path) -> None:
    before = make_users(n_users=60)
    after = Users(before.user_ids, before.representation * np.float32(0.5), before.attributes)
    first, second = projection_charts(project(after, before), "gender", "p")
    assert (first.title, second.title) == ("Before unlearning", "After unlearning")
    assert "p-before-title" in first.svg
    assert "p-title" in second.svg

    def extent(svg: str) -> np.ndarray:
        uses = [e for e in ElementTree.fromstring(svg).iter("use") if "x" in e.attrib]
        return np.ptp([[float(e.attrib["x"]), float(e.attrib["y"])] for e in uses], axis=0)

    # half as far apart on the page as they are in the data: same scale, same axes
    np.testing.assert_allclose(extent(second.svg), extent(first.svg) / 2, rtol=1e-3)
    page = write_report([read_run(folder, after, before)], tmp_path / "out")
    told = json.loads(page[1].read_text())["runs"][0]["projection"]
    assert len(told["points_before"]) == len(told["points"]) == 60
    text = page[0].read_text()
    assert text.index("view-0-0") < text.index("view-0-1")
    assert "Before and after lie on the same axes" in text


def test_the_unlearned_attribute_is_shown_first(make_users: MakeUsers, folder: Path, tmp_path: Path) -> None:
    users = make_users(n_users=30, names={"age": ("a", "b"), "gender": ("F", "M")})
    text = write_report([read_run(folder, users, users)], tmp_path / "out")[0].read_text()
    assert '<label for="view-0-0">gender</label>' in text


def test_the_chart_of_before_and_after_holds_each_surface(folder: Path) -> None:
    (run,) = figures_of([read_run(folder)])
    assert run.unlearning is not None
    chart = before_after_chart(run.unlearning.of("gender"), "c")
    assert chart is not None
    texts = [e.text for e in ElementTree.fromstring(chart.svg).iter("text")]
    assert {"user embedding", "updated items", "0.684 → 0.470", "0.710"} <= set(texts)
    assert "updated items after 0.710 (0.705 to 0.715)" in chart.words
    (leak,) = [leak for leak in run.unlearning.of("gender") if leak.before is None]
    assert before_after_chart([leak], "c") is None
