"""The page and the charts of a study hold what bench.json holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from fedrec_unlearn.errors import RunError
from fedrec_unlearn.report import write_study
from fedrec_unlearn.report.charts_study import ablation_chart, method_label, trade_off_chart
from fedrec_unlearn.report.study import read_study
from fedrec_unlearn.report.study_page import findings

ReadPage = Callable[[str], Any]

EMBEDDING = "user_embedding"


def _entries(content: dict[str, Any], attribute: str, surface: str = EMBEDDING) -> dict[str, dict[str, Any]]:
    return {e["arm"]: e for e in content["summary"] if (e["attribute"], e["surface"]) == (attribute, surface)}


@pytest.fixture
def page(study_content: dict[str, Any], tmp_path: Path, read_page: ReadPage) -> Any:
    return read_page(write_study(study_content, tmp_path / "out")[0].read_text())


def test_the_table_of_arms_holds_every_attacker_and_both_directions(page: Any, study_content: dict[str, Any]) -> None:
    rows = page.table("Attackers of gender")[1:]
    given = _entries(study_content, "gender")
    arms = ["none", "fedau2-gender", "moments-gender", "u2u-gender", "local_dp-gender", "moments-both"]
    assert len(rows) == len(arms)
    for row, arm in zip(rows, arms, strict=True):
        entry = given[arm]
        means = [found["mean"] for found in entry["attackers"].values()]
        assert [cell[1] for cell in row[1:4]] == [[mean] for mean in means]
        assert [cell[1] for cell in row[4:6]] == [[max(means) - 0.5], [min(means) - 0.5]]
        ratios = [entry["utility"][metric]["ratio"] for metric in ("ndcg@10/full", "ndcg@10/99neg")]
        assert [cell[1] for cell in row[6:]] == [[ratios[0]], [ratios[1]], [6.0]]
        # the interval stands on the side of the worst attacker
        side = 4 if entry["worst"]["mean"] > 0.5 else 5
        assert ["[" in row[4][0], "[" in row[5][0]] == [side == 4, side == 5]
    assert rows[3][0][0].endswith("*")
    assert rows[5][0][0] == "moment transport (gender and age)"
    assert [row[0][0] for row in page.table("Attackers of age")[1:]] == [
        "no unlearning",
        "moment transport (gender and age)",
    ]


def test_surfaces_stand_side_by_side(page: Any, study_content: dict[str, Any]) -> None:
    rows = page.table("Worst attacker on each surface, gender")[1:]
    for surface, column in ((EMBEDDING, 1), ("trajectory", 2)):
        given = _entries(study_content, "gender", surface)
        assert rows[1][column][1] == [given["fedau2-gender"]["worst"]["mean"]]


def test_what_was_not_to_be_unlearned_is_held_against_the_baseline(page: Any) -> None:
    rows = {(row[0][0], row[2][0]): row for row in page.table("Balanced accuracy of the worst attacker")[1:]}
    assert rows[("FedAU²,\u00a0ε\u00a00.1".replace(",\u00a0", ", "), "age")][5][1] == [pytest.approx(0.005)]
    assert rows[("moment transport", "age")][5][1] == [pytest.approx(-0.04)]
    assert ("moment transport (gender and age)", "age") not in rows


def test_gradient_attacks_are_a_table_of_defences(page: Any, study_content: dict[str, Any]) -> None:
    rows = page.table("Accuracy of each attack: gender, 2 classes")
    assert [cell[0] for cell in rows[0]] == ["Adversary", "Parameters", "Defence", "DLG", "exact"]
    assert [[cell[0] for cell in row] for row in rows[1:]] == [
        ["DSVAE, weight drawn", "initial", "none", "0.52", "0.99"],
        ["DSVAE, weight drawn", "initial", "secure aggregation", "0.49", "0.51"],
    ]
    assert [cell[1] for cell in rows[1][3:]] == [[0.52], [0.99]]


def test_aims_are_met_or_not(page: Any) -> None:
    rows = page.table("What the study set out to reach")[1:]
    assert [[cell[0] for cell in row[:2]] for row in rows] == [
        ["FedAU² hides gender", "met"],
        ["snapshots tell no more", "not met"],
    ]


def test_findings_follow_from_the_figures(study_content: dict[str, Any]) -> None:
    told = [s.replace("\u00a0", " ") for s in findings(read_study(study_content, "bench.json"))]
    assert told[0] == (
        "Without unlearning the worst attacker names gender right in 68 % of cases (50 % by chance). Of the arms that "
        "keep 90 % or more of recommendation, moment transport comes nearest to chance: 47 %, at 0.975 times the "
        "NDCG@10, all items and 0.985 times the NDCG@10, 99 negatives."
    )
    assert "gender under gradient reversal (80 % at ε 1)" in told[2]
    assert told[-1] == "1 of 2 aims are met."
    assert "A quick run" in findings(read_study(study_content | {"quick": True}, "bench.json"))[0]


def test_charts_are_files_of_their_own(study_content: dict[str, Any], tmp_path: Path, page: Any) -> None:
    paths = write_study(study_content, tmp_path / "again")
    assert [path.name for path in paths] == [
        "study.html",
        "trade-off-gender-ndcg-10-full.svg",
        "trade-off-gender-ndcg-10-99neg.svg",
        "trade-off-age-ndcg-10-full.svg",
        "trade-off-age-ndcg-10-99neg.svg",
        "strength-gender.svg",
    ]
    for path in paths[1:]:
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    links = {values.get("href") for tag, values in page.tags if tag == "a"}
    assert {path.name for path in paths[1:]} <= links


def _lines(svg: str, colour: str) -> list[np.ndarray]:
    found = []
    for path in ElementTree.fromstring(svg).iter("path"):
        style = path.attrib.get("style", "")
        if f"stroke: var(--{colour})" in style and path.attrib["d"].count("L") == 1:
            numbers = path.attrib["d"].replace("M", " ").replace("L", " ").split()
            found.append(np.array(numbers, dtype=float).reshape(2, 2))
    return found


def test_the_trade_off_has_intervals_on_both_axes(study_content: dict[str, Any]) -> None:
    study = read_study(study_content, "bench.json")
    chart = trade_off_chart(study, "gender", "ndcg@10/99neg", "t")
    assert chart is not None
    # FedAU² is the second series: one bar across, one upright, that cross in the point
    across, upright = _lines(chart.svg, "series-2")[:2]
    assert across[0][1] == across[1][1]
    assert upright[0][0] == upright[1][0]
    assert min(across[:, 0]) < upright[0][0] < max(across[:, 0])
    assert [label.replace("\u00a0", " ") for label, _ in chart.key][:2] == ["no unlearning", "FedAU², ε 0.1"]
    assert "Drawn at the lower edge, being far below: local DP (0.400)." in chart.note
    assert "moment transport: kept 0.985, MLP 0.470" in chart.words


def test_an_arm_looks_the_same_for_every_attribute(study_content: dict[str, Any]) -> None:
    study = read_study(study_content, "bench.json")
    keys = []
    for attribute in ("gender", "age"):
        chart = trade_off_chart(study, attribute, "ndcg@10/full", "t")
        assert chart is not None
        keys.append(dict(chart.key))
    label = "moment transport (gender and age)"
    assert keys[0][label] == keys[1][label]
    assert keys[0][label] != keys[0]["moment transport"]


def test_the_ablation_shows_overshoot_over_strengths(study_content: dict[str, Any]) -> None:
    study = read_study(study_content, "bench.json")
    chart = ablation_chart(study, "gender", "e")
    assert chart is not None
    assert "without unlearning 0.180; ε 0.1: 0.060, 1: 0.300" in chart.words
    assert "over-shoot" in chart.svg
    assert ablation_chart(study, "age", "e") is None


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("FedAU², ε 0.1", "FedAU²"),
        ("gradient reversal + SUT, ε 1e-05", "gradient reversal + SUT"),
        ("FedAU² ε=3", "FedAU²"),
        ("moment transport", "moment transport"),
    ],
)
def test_a_strength_is_no_part_of_a_methods_name(study_content: dict[str, Any], label: str, expected: str) -> None:
    study_content["summary"][0]["label"] = label
    assert method_label(read_study(study_content, "bench.json").entries[0]) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 3}, "has format 3"),
        ({"summary": {}}, "'summary' must be a list"),
        ({"attributes": {"gender": {"classes": [], "counts": []}}}, "attributes: gender: 'chance' must be a number"),
        ({"attributes": {}}, r"summary\[0\]: attribute 'gender' is not among 'attributes'"),
        ({"targets": [{"aim": "a", "must": "b", "measured": "c"}]}, r"targets\[0\]: 'met' must be true or false"),
        ({"inversion": [{"adversary": "mlp"}]}, r"inversion\[0\]: 'defence' must be a text"),
    ],
)
def test_malformed_content_is_named(
    study_content: dict[str, Any], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(RunError, match=rf"bench\.json.*{message}"):
        write_study(study_content | change, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_study_of_one_arm_has_a_page(study_content: dict[str, Any], tmp_path: Path, read_page: ReadPage) -> None:
    arms = [entry for entry in study_content["summary"] if entry["arm"] == "none"]
    content = study_content | {"summary": arms, "inversion": [], "targets": [], "rows": []}
    paths = write_study(content, tmp_path)
    assert [path.name for path in paths] == ["study.html"]
    assert "no unlearning" in read_page(paths[0].read_text()).text


def test_names_are_text_and_never_markup(study_content: dict[str, Any], tmp_path: Path, read_page: ReadPage) -> None:
    hostile = "<script>alert(1)</script>\"'"
    for entry in study_content["summary"]:
        entry["label"] = hostile + entry["label"]
    study_content |= {"title": hostile, "study": hostile}
    study_content["inversion"][0]["stage"] = hostile
    study_content["targets"][0]["aim"] = hostile
    paths = write_study(study_content, tmp_path)
    assert sum(tag == "script" for tag, _ in read_page(paths[0].read_text()).tags) == 1
    for path in paths[1:]:
        assert not [e for e in ElementTree.parse(path).getroot().iter() if e.tag.endswith("script")]


def test_ids_are_unique_and_references_have_a_target(page: Any) -> None:
    ids = [values["id"] for _, values in page.tags if "id" in values]
    assert len(ids) == len(set(ids))
    for _, values in page.tags:
        if "aria-labelledby" in values:
            assert values["aria-labelledby"] in ids
        if (target := values.get("href") or "").startswith("#"):
            assert target[1:] in ids
