from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrec_unlearn.bench import TransportStudy, load_study, plan, run_study, study_tables
from fedrec_unlearn.bench.secemb import costs
from fedrec_unlearn.bench.secemb.study import training_tasks
from fedrec_unlearn.bench.secemb.summary import summarise
from fedrec_unlearn.errors import DataError, RunError
from fedrec_unlearn.federation import training
from fedrec_unlearn.progress import SilentProgress


class Recorder(SilentProgress):
    def __init__(self) -> None:
        self.messages: list[str] = []
        self.steps: list[tuple[int, dict[str, Any]]] = []

    def message(self, text: str) -> None:
        self.messages.append(text)

    def advance(self, step: int, fields: Any) -> None:
        self.steps.append((step, dict(fields)))


def content_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "bench.json").read_text())
    for row in content["rows"]:
        row["seconds"] = 0.0
    for entry in content["summary"]:
        entry["seconds"] = 0.0
    return {**content, "created": ""}


@pytest.fixture
def measured(made_up: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Measurements asked for; figures are made up."""
    asked: list[str] = []

    def apart(name: str, settings: Any) -> dict[str, Any]:
        asked.append(name)
        found: dict[str, Any] = made_up(name, settings)
        return found

    monkeypatch.setattr(costs, "apart", apart)
    return asked


def test_a_study_is_measured_trained_and_written(study: TransportStudy, tmp_path: Path) -> None:
    """The protocol and the pipeline themselves, on 60 items and on the synthetic set."""
    study = replace(study, costs=replace(study.costs, catalogues=study.costs.catalogues[:1]))
    folder = run_study(study, tmp_path / "out")
    content = content_of(folder)
    assert (content["format"], content["kind"], content["paper"], content["seeds"]) == (
        1,
        "transports",
        "secemb",
        [1, 2],
    )
    assert [(entry["catalogue"], entry["encoding"]) for entry in content["costs"]] == [
        ("small", "binned"), ("small", "paper"),
    ]  # fmt: skip
    assert [found["kind"] for found in content["rounds"]] == ["local round"]
    rows = {(row["comparison"], row["arm"], row["seed"]): row for row in content["rows"]}
    assert len(rows) == 2 * (6 + 4)
    for seed in (1, 2):
        exact, hidden = rows["ranking", "secagg", seed], rows["ranking", "secemb", seed]
        # SecEmb loses nothing: what both rings add up is the same, to the last bit
        assert (exact["value"], exact["valid"], exact["test"]) == (hidden["value"], hidden["valid"], hidden["test"])
        assert rows["rating", "secagg", seed]["value"] == rows["rating", "secemb", seed]["value"]
        assert rows["ranking", "plain", seed]["bytes_up"] > 3 * rows["ranking", "int8", seed]["bytes_up"]
        assert rows["ranking", "secemb-12", seed]["bytes_up"] < rows["ranking", "secemb-20", seed]["bytes_up"]
        assert rows["ranking", "secemb-12", seed]["bytes_between"] > 0
        assert rows["ranking", "plain", seed]["bytes_between"] == 0
    assert rows["ranking", "secemb-12", 1]["cut"] > rows["ranking", "secemb-20", 1]["cut"] > 0
    assert rows["ranking", "secemb", 1]["cut"] == 0
    told = (folder / "table.md").read_text()
    assert "To the last digit as secagg, in every seed: SecEmb, no limit." in told
    for title in ("What a client sends", "What transports cost and lose: ranking items", "How to choose m'", "Targets"):
        assert f"### {title}" in told
    with (folder / "bench.csv").open() as file:
        assert [float(line["value"]) for line in csv.DictReader(file)] == [row["value"] for row in content["rows"]]
    with (folder / "summary.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(content["summary"]) == 6 + 4
    with (folder / "costs.csv").open() as file:
        assert [line["batch"] for line in csv.DictReader(file)] == ["2", "3", "2"]

    before = (folder / "bench.json").stat().st_mtime_ns
    progress = Recorder()
    run_study(study, tmp_path / "out", progress=progress)
    assert progress.messages == ["tiny: all 6 measurements and 20 runs are done"]
    assert content_of(folder) == content
    assert (folder / "bench.json").stat().st_mtime_ns > before
    assert {row[-1] for row in plan(study, tmp_path / "out").rows} == {"1/1", "2/2"}


def test_an_interrupted_study_ends_where_an_uninterrupted_one_does(
    study_file: Callable[..., Path], tmp_path: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = load_study(study_file(), quick=True)
    whole = content_of(run_study(study, tmp_path / "whole"))
    save, left = training.save_state, [7]

    def save_and_stop(*given: Any) -> None:
        save(*given)
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(training, "save_state", save_and_stop)
    progress = Recorder()
    with pytest.raises(KeyboardInterrupt):
        run_study(study, tmp_path / "twice", progress=progress)
    assert "the same command goes on from here" in progress.messages[-1]
    assert not (tmp_path / "twice" / "tiny-quick" / "bench.json").exists()
    asked = len(measured)
    twice = content_of(run_study(study, tmp_path / "twice", progress=progress))
    assert len(measured) == asked
    assert any("are done already" in text for text in progress.messages)
    assert whole == twice


def test_processes_find_what_one_process_finds(
    study_file: Callable[..., Path], tmp_path: Path, measured: list[str]
) -> None:
    study = load_study(study_file(), quick=True)
    one, two = (content_of(run_study(study, tmp_path / str(jobs), jobs=jobs)) for jobs in (1, 2))
    assert one == two


def test_a_failed_run_is_told_after_the_others_are_done(
    study_file: Callable[..., Path], tmp_path: Path, measured: list[str]
) -> None:
    from fedrec_unlearn.bench.measure import PipelineSteps

    class Steps(PipelineSteps):
        def train(self, config: Any) -> None:
            if config.federation.transport == "plain":
                raise RunError("training diverged")
            super().train(config)

    study = load_study(study_file(), quick=True)
    with pytest.raises(RunError, match="ranking-plain-1: training diverged"):
        run_study(study, tmp_path, steps=Steps())
    assert {run.name for run in (tmp_path / "tiny-quick" / "results").glob("ranking*.json")} >= {
        "ranking-secemb-1.json", "ranking-secemb-12-1.json",
    }  # fmt: skip


def test_missing_data_is_told_before_anything_is_measured(
    study_file: Callable[..., Path], tmp_path: Path, measured: list[str]
) -> None:
    study = load_study(study_file(("data: {name: synthetic}", f"data: {{name: mine, dir: {tmp_path}}}")))
    with pytest.raises(DataError, match="data set 'mine' was not found"):
        run_study(study, tmp_path / "out")
    assert measured == []


def row_of(comparison: str, arm: str, seed: int, value: float, up: float) -> dict[str, Any]:
    names = ("bytes_down", "bytes_between", "deferred", "saturated", "cut", "best_round", "seconds")
    given = {"comparison": comparison, "arm": arm, "seed": seed, "value": value, "bytes_up": up}
    return {**given, **dict.fromkeys(names, 1.0), "touched_p90": 9.0, "touched_max": 20.0}


def test_differences_are_taken_seed_by_seed(study: TransportStudy) -> None:
    ranking = study.comparisons[0]
    study = replace(study, seeds=(1, 2, 3), comparisons=(ranking,))
    values = {"plain": [0.1, 0.2, 0.4], "secagg": [0.2, 0.3, 0.5], "secemb": [0.2, 0.3, 0.5], "int8": [0.1, 0.3, 0.4]}
    others = [0.0, 0.0, 1.0]
    rows = [
        row_of("ranking", arm.name, seed, values.get(arm.name, others)[seed - 1], 100 if arm.name == "plain" else 25)
        for seed in (3, 1, 2)
        for arm in ranking.arms
    ]
    found = {entry["arm"]: entry for entry in summarise(study, rows)}
    assert found["secagg"]["difference"]["mean"] == pytest.approx(0.1)
    assert found["secagg"]["difference"]["low"] == pytest.approx(0.1)
    assert found["int8"]["mean"] == pytest.approx(np.mean(values["int8"]))
    assert found["int8"]["std"] == pytest.approx(np.std(values["int8"], ddof=1))
    assert found["int8"]["per_seed"] == values["int8"]
    assert (found["int8"]["ratio_plain"], found["plain"]["ratio_secagg"]) == (4.0, 0.25)
    assert [found[name]["same_as_secagg"] for name in ("secemb", "secemb-12", "int8")] == [True, False, False]
    with pytest.raises(DataError, match="ranking, int8: there are 2 results"):
        summarise(study, [row for row in rows if (row["arm"], row["seed"]) != ("int8", 2)])


def test_a_run_of_another_configuration_is_not_taken_for_this_one(study: TransportStudy, tmp_path: Path) -> None:
    from fedrec_unlearn.bench.secemb.measure import finished_training

    task = training_tasks(study, tmp_path)[0]
    task.folder.mkdir(parents=True)
    task.result.parent.mkdir()
    (task.folder / "run.json").write_text(json.dumps({"status": "finished"}))
    row = {"test": {"ndcg@10/full": 0.25}, "label": "as it was called before"}
    task.result.write_text(json.dumps({"format": 1, "settings": task.settings, "row": row}))
    found = finished_training(task)
    assert found is not None
    assert (found["value"], found["label"]) == (0.25, "plain (float32)")
    arm = replace(task.arm, config=replace(task.arm.config, threads=2))
    comparison = replace(task.comparison, arms=(arm,))
    other = training_tasks(replace(study, comparisons=(comparison,)), tmp_path)[0]
    assert other.result == task.result
    assert finished_training(other) is None


def test_tables_of_a_study_are_found_by_its_kind(
    study_file: Callable[..., Path], tmp_path: Path, measured: list[str]
) -> None:
    content = content_of(run_study(load_study(study_file(), quick=True), tmp_path))
    tables = {table.title: table for table in study_tables(content)}
    lost = tables["What transports cost and lose: ranking items"]
    assert [row[0] for row in lost.rows] == ["plain (float32)", "SecEmb, m' = 12", "SecEmb, no limit"]
    assert [row[0] for row in tables["How to choose m': ranking items"].rows] == ["12", "no limit"]
    row = dict(zip(lost.columns, lost.rows[0], strict=True))
    assert row["ndcg@10/full, sd"] == f"{content['summary'][0]['mean']:.4f}"
    assert (row["less plain, 95 %"], row["secagg / up"]) == ("-", "-")
