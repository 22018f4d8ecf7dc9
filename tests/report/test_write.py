from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrec_unlearn.errors import DependencyError, RunError
from fedrec_unlearn.report import Users, read_run, write_report
from fedrec_unlearn.report.export import COLUMNS

MakeRun = Callable[..., Path]
MakeUsers = Callable[..., Users]
Written = Callable[[list[Path]], tuple[Any, dict[str, Any], list[dict[str, str]]]]


def _number(rows: list[dict[str, str]], column: str = "value", **where: str) -> float:
    found = [row for row in rows if all(row[key] == value for key, value in where.items())]
    assert len(found) == 1, where
    return float(found[0][column])


def test_attack_figures_are_the_same_in_html_json_csv_and_input(
    make_run: MakeRun, tmp_path: Path, written: Written
) -> None:
    folder = make_run()
    given = json.loads((folder / "attack.json").read_text())["results"]
    page, content, rows = written(write_report([read_run(folder)], tmp_path / "out"))
    shown = page.table("Attacks")[1:]
    told = content["runs"][0]["attack"]
    assert len(shown) == len(told) == len(given) == 8
    for result, row, entry in zip(given, shown, told, strict=True):
        assert row[0][0] == entry["attribute"] == result["attribute"]
        names = ("balanced_accuracy", "macro_f1", "auc", "accuracy")
        means = {name: result[name]["mean"] for name in names}
        means["above_chance"] = means["balanced_accuracy"] - result["chance"]
        order = ("balanced_accuracy", "above_chance", "macro_f1", "auc", "accuracy")
        assert [cell[1] for cell in row[2:]] == [[means[name]] for name in order] + [[result["majority"]]]
        assert {name: entry[name]["value"] for name in means} == means
        bounds = result["balanced_accuracy"]
        assert f"[{bounds['low']:.3f}, {bounds['high']:.3f}]" in row[2][0]
        where = {key: result[key] for key in ("attribute", "surface", "attacker")} | {"section": "attack"}
        for name in names:
            assert _number(rows, metric=name, **where) == result[name]["mean"]
            assert _number(rows, "low", metric=name, **where) == result[name]["low"] == entry[name]["low"]
            assert _number(rows, "high", metric=name, **where) == result[name]["high"] == entry[name]["high"]
        assert _number(rows, metric="chance", **where) == result["chance"]
    for attribute in ("gender", "age"):
        best = max((r for r in given if r["attribute"] == attribute), key=lambda r: r["balanced_accuracy"]["mean"])
        marked = [row for row in shown if row[0][0] == attribute and "worst" in row[1][0]]
        assert [row[2][1] for row in marked] == [[best["balanced_accuracy"]["mean"]]]


def test_ranking_figures_are_the_same_in_html_json_csv_and_input(
    make_run: MakeRun, tmp_path: Path, written: Written
) -> None:
    folder = make_run()
    given = json.loads((folder / "metrics.json").read_text())
    page, content, rows = written(write_report([read_run(folder)], tmp_path / "out"))
    shown = page.table("Ranking metrics")[1:]
    assert len(shown) == len(given["test"])
    for name, row in zip(given["test"], shown, strict=True):
        assert name in row[0][0]
        for part, cell in zip(("test", "valid", "popularity"), row[1:], strict=True):
            assert cell[1] == [given[part][name]]
            assert cell[0] == f"{given[part][name]:.4f}"
            assert content["runs"][0]["ranking"][name][part] == given[part][name]
            assert _number(rows, section="ranking", name=part, metric=name) == given[part][name]


def test_rounds_evaluations_traffic_and_time_follow_from_the_events(
    make_run: MakeRun, tmp_path: Path, written: Written
) -> None:
    folder = make_run(rounds=60)
    events = read_run(folder).events
    rounds = [event for event in events if event["event"] == "round"]
    page, content, rows = written(write_report([read_run(folder)], tmp_path / "out"))
    run = content["runs"][0]
    assert run["learning"]["round"] == [event["round"] for event in rounds]
    assert run["learning"]["loss"] == [event["loss"] for event in rounds]
    evaluated = [event for event in events if event["event"] == "evaluation"]
    assert [e["metrics"] for e in run["learning"]["evaluations"]] == [e["metrics"] for e in evaluated]
    assert _number(rows, section="learning", name="17", metric="loss") == rounds[16]["loss"]
    value = evaluated[1]["metrics"]["recall@10/full"]
    assert _number(rows, section="learning", name="30", metric="recall@10/full") == value

    up = float(np.median([event["bytes_up"] / event["clients"] for event in rounds]))
    total = sum(event["bytes_down"] for event in rounds)
    seconds = float(np.median([event["seconds"] for event in rounds]))
    shown = {row[0][0]: row[1][1] for row in page.table("Traffic")[1:] + page.table("Time")[1:]}
    assert shown["Sent by a user in a round (median)"] == [up] == [run["traffic"]["up_per_user_and_round"]]
    assert shown["Received by an average user in all"] == [total / 943] == [run["traffic"]["down_per_user"]]
    assert run["traffic"]["cumulative_down_per_user"][-1] == pytest.approx(total / 943)
    assert shown["A round (median)"] == [seconds] == [run["time"]["round_median"]]
    assert _number(rows, section="traffic", name="", metric="up_per_user_and_round") == up
    assert _number(rows, section="time", name="", metric="round_median") == seconds


def test_the_setting_is_told(make_run: MakeRun, tmp_path: Path, written: Written) -> None:
    page, content, rows = written(write_report([read_run(make_run())], tmp_path / "out"))
    facts = content["runs"][0]["facts"]
    assert (facts["data"], facts["model"], facts["n_users"], facts["device"], facts["seed"]) == (
        "made-up",
        "mf",
        943,
        "cpu",
        1,
    )
    assert _number(rows, section="run", metric="n_items") == 1682
    for text in ("made-up", "300 of 600, stopped early", "2026-01-31 12:00 UTC", "federation.clients_per_round"):
        assert text in page.text


def test_the_projection_holds_points_and_labels_but_no_user_ids(
    make_run: MakeRun, make_users: MakeUsers, tmp_path: Path, written: Written
) -> None:
    users = make_users(n_users=4000)
    paths = write_report([read_run(make_run(), users)], tmp_path / "out")
    page, content, rows = written(paths)
    found = content["runs"][0]["projection"]
    assert (found["n_users"], found["n_shown"], found["width"]) == (4000, 3000, 16)
    assert len(found["points"]) == len(found["attributes"]["age"]["labels"]) == 3000
    share = found["explained_variance"]
    assert _number(rows, section="projection", name="component 1", metric="explained_variance") == share[0]
    assert f"{100 * share[0]:.1f}\u00a0%" in page.text
    assert "Drawn are 3\u202f000 users" in page.text
    assert not any("user-1" in path.read_text() for path in paths)
    choices = [tag for tag in page.tags if tag[0] == "input"]
    assert len(choices) == 2
    assert "checked" in choices[0][1]


def test_a_run_in_progress_without_attack_or_metrics_is_reported(
    make_run: MakeRun, tmp_path: Path, written: Written
) -> None:
    folder = make_run(rounds=20, metrics=False, attack=False, status="running", best_round=None, train_seconds=None)
    page, content, _ = written(write_report([read_run(folder)], tmp_path / "out"))
    assert "still in progress" in page.text
    assert "No ranking metrics yet" in page.text
    assert "Not attacked yet" in page.text
    run = content["runs"][0]
    assert (run["ranking"], run["attack"], run["projection"]) == ({}, [], None)
    assert run["learning"]["best_round"] == 15


def test_a_run_that_has_just_started_is_reported(make_run: MakeRun, tmp_path: Path, written: Written) -> None:
    folder = make_run(rounds=0, metrics=False, attack=False, status="running", data=None, train_seconds=None)
    page, content, rows = written(write_report([read_run(folder)], tmp_path / "out"))
    assert page.text.count("No round has been recorded yet.") == 2
    assert content["runs"][0]["time"]["round_median"] is None
    assert [row for row in rows if row["section"] == "learning"] == []


def test_missing_and_undefined_figures_are_null_and_never_nan(
    make_run: MakeRun, tmp_path: Path, written: Written
) -> None:
    folder = make_run(rounds=20)
    attack = json.loads((folder / "attack.json").read_text())
    for result in attack["results"]:
        result["auc"] = {}
        result["macro_f1"] = None
        result["balanced_accuracy"] |= {"low": None, "high": None}
    attack["results"][0]["balanced_accuracy"]["mean"] = float("nan")
    (folder / "attack.json").write_text(json.dumps(attack))
    events = (folder / "events.jsonl").read_text().splitlines()
    events[4] = json.dumps(json.loads(events[4]) | {"loss": float("nan")})
    (folder / "events.jsonl").write_text("\n".join(events) + "\n")
    paths = write_report([read_run(folder)], tmp_path / "out")
    page, content, _ = written(paths)
    assert not any(re.search(r"\b(nan|NaN|None|inf|Infinity)\b", path.read_text()) for path in paths)
    run = content["runs"][0]
    assert run["learning"]["loss"][4] is None
    assert run["attack"][0]["balanced_accuracy"]["value"] is None
    assert not run["attack"][0]["worst"]
    assert run["attack"][1]["auc"] == {"value": None, "low": None, "high": None}
    assert "not measured" in page.table("Attacks")[2][5][0]


def test_several_runs_stand_side_by_side(make_run: MakeRun, tmp_path: Path, written: Written) -> None:
    folders = [make_run("a", seed=1), make_run("b", seed=2, rounds=200), make_run("c", seed=3, attack=False)]
    given = [json.loads((folder / "metrics.json").read_text()) for folder in folders]
    attacks = [json.loads((folder / "attack.json").read_text())["results"] for folder in folders[:2]]
    page, content, rows = written(write_report([read_run(folder) for folder in folders], tmp_path / "out"))
    assert [run["label"] for run in content["runs"]] == ["a", "b", "c"]
    row = page.table("Ranking metrics")[2]
    expected = [metrics[part]["ndcg@10/full"] for part in ("test", "valid", "popularity") for metrics in given]
    assert [cell[1] for cell in row[1:]] == [[value] for value in expected]
    row = page.table("Balanced accuracy of each attacker")[1]
    values = [results[0]["balanced_accuracy"]["mean"] for results in attacks]
    assert [cell[1] for cell in row[2:]] == [[values[0]], [values[1]], []]
    assert [r[0][0] for r in page.table("Options in which the runs differ")[1:]] == ["seed"]
    assert content["comparison"]
    assert {row["run"] for row in rows} == {"a", "b", "c"}
    assert "NDCG@10 against leak of gender" in page.text
    assert "Not attacked yet: c." in page.text


def test_runs_of_one_name_get_labels_of_their_own(make_run: MakeRun, tmp_path: Path, written: Written) -> None:
    first, second = make_run("a", name="same", rounds=5), make_run("b", name="same", rounds=5)
    records = [read_run(first), read_run(second), read_run(second)]
    _, content, _ = written(write_report(records, tmp_path / "out"))
    assert [run["label"] for run in content["runs"]] == ["same (a)", "same (b)", "same (b, 2)"]


@pytest.mark.parametrize("several", [False, True])
def test_ids_are_unique_and_references_have_a_target(
    make_run: MakeRun, make_users: MakeUsers, tmp_path: Path, several: bool, written: Written
) -> None:
    records = [read_run(make_run("a"), make_users())]
    if several:
        records.append(read_run(make_run("b", seed=2), make_users(seed=9)))
    page, _, _ = written(write_report(records, tmp_path / "out"))
    ids = [values["id"] for _, values in page.tags if "id" in values]
    assert len(ids) == len(set(ids))
    for tag, values in page.tags:
        for key in ("aria-labelledby", "for"):
            assert key not in values or values[key] in ids, tag
        if (target := values.get("href") or "").startswith("#"):
            assert target[1:] in ids
        elif target:
            assert target in ("data:,", "report.json", "report.csv")
        assert "src" not in values
        if tag == "svg" and "aria-hidden" not in values:
            assert values["role"] == "img"
        if tag == "th":
            assert values["scope"] in ("row", "col", "colgroup")
    assert len(page.tables) == sum(tag == "table" for tag, _ in page.tags)


def test_names_are_text_and_never_markup(
    make_run: MakeRun, make_users: MakeUsers, tmp_path: Path, written: Written
) -> None:
    hostile = "<script>alert(1)</script>\"'&{{ 7*7 }}$x$]]>\x00\ud800\u202e"
    folder = make_run(
        name=hostile,
        device=hostile,
        version=hostile,
        status="running",
        config={"extra": {hostile: hostile}, "data": {"name": hostile}},
        data={"name": hostile, "n_users": 943},
    )
    attack = json.loads((folder / "attack.json").read_text())
    for result in attack["results"]:
        result |= {"attribute": hostile + result["attribute"], "surface": hostile, "classes": [hostile, "x", "y"]}
        result |= {"attacker": hostile + result["attacker"], "counts": [1, 2, 3]}
    (folder / "attack.json").write_text(json.dumps(attack))
    metrics = {"selected_by": hostile, "test": {hostile: 0.5}, "valid": {hostile: 0.5}}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    with (folder / "events.jsonl").open("a") as file:
        event = {"event": "evaluation", "round": 999, "part": "valid", "metrics": {hostile: 0.5}, "best": True}
        file.write(json.dumps(event) + "\n")
    users = make_users(names={hostile: (hostile, "M"), "age": ("a", "b")})
    other = make_run("other", attack=attack, name=hostile)
    for number, records in enumerate([[read_run(folder, users)], [read_run(folder, users), read_run(other)]]):
        page, content, _ = written(write_report(records, tmp_path / f"out-{number}"))
        assert sum(tag == "script" for tag, _ in page.tags) == 1
        shown = "<script>alert(1)</script>\"'&{{ 7*7 }}$x$]]>\ufffd\ufffd\ufffd"
        assert shown in page.text
        assert content["runs"][0]["facts"]["device"] == shown
        assert not [values for _, values in page.tags if any(key.startswith("on") for key in values)]


def test_a_name_that_looks_like_a_formula_is_inert_in_the_csv(
    make_run: MakeRun, tmp_path: Path, written: Written
) -> None:
    paths = write_report([read_run(make_run(name="=1+1", rounds=3))], tmp_path / "out")
    _, content, rows = written(paths)
    assert content["runs"][0]["label"] == "=1+1"
    assert {row["run"] for row in rows} == {"'=1+1"}


def test_the_same_runs_give_the_same_bytes(make_run: MakeRun, make_users: MakeUsers, tmp_path: Path) -> None:
    folders = [make_run("a"), make_run("b", seed=2)]
    first, second = (
        write_report([read_run(folders[0], make_users()), read_run(folders[1])], tmp_path / out) for out in ("x", "y")
    )
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_the_output_is_a_folder_or_a_name(make_run: MakeRun, tmp_path: Path) -> None:
    record = read_run(make_run(rounds=3))
    assert write_report([record], tmp_path / "new" / "folder") == [
        tmp_path / "new" / "folder" / name for name in ("report.html", "report.json", "report.csv")
    ]
    paths = write_report([record], tmp_path / "mine.html")
    assert paths == [tmp_path / name for name in ("mine.html", "mine.json", "mine.csv")]
    assert 'href="mine.json"' in paths[0].read_text()
    assert next(csv.reader(paths[2].open())) == list(COLUMNS)


def test_outputs_that_cannot_be_are_refused(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(rounds=3)
    record = read_run(folder)
    with pytest.raises(RunError, match="at least one run"):
        write_report([], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file; give a folder"):
        write_report([record], tmp_path / "file")
    with pytest.raises(RunError, match="cannot be written"):
        write_report([record], tmp_path / "file" / "deeper")
    before = (folder / "run.json").read_bytes()
    with pytest.raises(RunError, match="belongs to the run"):
        write_report([record], folder / "run.html")
    assert (folder / "run.json").read_bytes() == before


def test_a_missing_library_is_named_with_its_remedy(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = read_run(make_run(rounds=3))
    monkeypatch.setattr("fedrec_unlearn.report.template.find_spec", lambda name: None if name == "jinja2" else object())
    with pytest.raises(DependencyError, match=r"needs jinja2, which is not installed: pip install .*\[report\]"):
        write_report([record], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = read_run(make_run(rounds=3))
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        write_report([record], out)
    assert [path.name for path in out.iterdir()] == ["report.html"]
    assert (out / "report.html").read_text() == "old"


def test_two_surfaces_are_told_apart(make_run: MakeRun, tmp_path: Path, written: Written) -> None:
    folder = make_run()
    attack = json.loads((folder / "attack.json").read_text())
    again = [result | {"surface": "update_support"} for result in attack["results"]]
    again[0] = again[0] | {"balanced_accuracy": {"mean": 0.999, "low": 0.99, "high": 1.0}}
    (folder / "attack.json").write_text(json.dumps(attack | {"results": attack["results"] + again}))
    page, content, _ = written(write_report([read_run(folder)], tmp_path / "out"))
    rows = page.table("Attacks")[1:]
    assert [row[1][0] for row in rows] == ["user embedding"] * 8 + ["updated items"] * 8
    assert sum("worst" in row[2][0] for row in rows) == 4
    assert "An attacker who sees the ids of the rows a user uploads (logistic regression" in page.text
    assert content["runs"][0]["attack"][8]["worst"]


def test_importing_the_package_loads_no_plotting_or_template_library() -> None:
    code = (
        "import sys, fedrec_unlearn.report; print(sorted({'matplotlib', 'jinja2', 'yaml', 'torch'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_many_classes_share_colours_only_in_one_named_rest(
    make_run: MakeRun, make_users: MakeUsers, tmp_path: Path, written: Written
) -> None:
    names = tuple(f"occupation {k}" for k in range(21))
    users = make_users(names={"occupation": names})
    labels = users.attributes["occupation"][1]
    page, _, _ = written(write_report([read_run(make_run(rounds=3), users)], tmp_path / "out"))
    sizes = np.bincount(labels[labels >= 0], minlength=21)
    largest = np.argsort(-sizes, kind="stable")[:8]
    for k in range(21):
        assert (f"occupation {k} ({sizes[k]})" in page.text) == (k in largest)
    rest = int(sizes.sum() - sizes[largest].sum())
    assert f"13 smaller classes ({rest})" in page.text
    assert f"not known ({int((labels < 0).sum())})" in page.text
