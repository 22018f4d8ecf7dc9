from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn.bench import load_study, run_study
from fedrec_unlearn.bench.study import Study
from fedrec_unlearn.errors import ConfigError, DataError, RunError
from fedrec_unlearn.progress import Interrupted, SilentProgress


class Recorder(SilentProgress):
    def __init__(self) -> None:
        self.lines: list[tuple[int, dict[str, float | str]]] = []
        self.messages: list[str] = []

    def advance(self, step: int, fields: Mapping[str, float | str]) -> None:
        self.lines.append((step, dict(fields)))

    def message(self, text: str) -> None:
        self.messages.append(text)


def content_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "bench.json").read_text())
    return content


def test_a_study_leaves_its_files(study: Study, steps: Any, tmp_path: Path) -> None:
    folder = run_study(study, tmp_path / "out", steps=steps)
    assert folder == tmp_path / "out" / "tiny"
    content = content_of(folder)
    assert (content["format"], content["paper"], content["study"], content["quick"]) == (1, "fedau2", "tiny", False)
    assert content["seeds"] == [1, 2]
    assert content["utility"] == ["ndcg@10/full", "ndcg@10/30neg"]
    assert content["attributes"]["gender"] == {
        "classes": ["F", "M"],
        "counts": [40, 40],
        "chance": 0.5,
        "majority": 0.5,
    }
    assert [(row["arm"], row["seed"]) for row in content["rows"]] == [
        (arm.name, seed) for arm in study.arms for seed in study.seeds
    ]
    assert all((folder / row["run"] / "run.json").exists() for row in content["rows"])
    # two arms with an attribute more than the ablation's
    assert len(content["summary"]) == 3 * 2 + 2
    assert [target["aim"] for target in content["targets"]] == ["gender hidden", "age left alone"]
    with (folder / "bench.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == sum(len(row["attack"]) for row in content["rows"])
    assert float(lines[0]["balanced_accuracy"]) == content["rows"][0]["attack"][0]["balanced_accuracy"]
    with (folder / "summary.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(content["summary"])
    assert "| FedAU², ε 0.1 | gender |" in (folder / "table.md").read_text()
    assert "A tiny study" in (folder / "study.html").read_text()


def test_progress_has_a_line_for_each_run(study: Study, steps: Any, tmp_path: Path) -> None:
    progress = Recorder()
    run_study(study, tmp_path, steps=steps, progress=progress)
    assert progress.lines[0] == (0, {})
    assert [step for step, _ in progress.lines] == list(range(11))
    assert progress.lines[1][1]["last"] == "none-1"
    assert {"ndcg@10/full", "gender", "age"} <= progress.lines[1][1].keys()


def test_a_second_call_does_nothing_and_finds_the_same(study: Study, steps: Any, tmp_path: Path) -> None:
    first = content_of(run_study(study, tmp_path, steps=steps))
    steps.calls.clear()
    progress = Recorder()
    second = content_of(run_study(study, tmp_path, steps=steps, progress=progress))
    assert steps.calls == []
    assert progress.messages == ["tiny: all 10 runs are done"]
    assert {**first, "created": ""} == {**second, "created": ""}


def test_after_an_interruption_only_the_rest_is_done(study: Study, steps: Any, tmp_path: Path) -> None:
    steps.fails = {"fedau2-gender-2": Interrupted(tmp_path)}
    progress = Recorder()
    with pytest.raises(KeyboardInterrupt) as stopped:
        run_study(study, tmp_path, steps=steps, progress=progress)
    assert progress.messages == ["3 of 10 runs are done and kept; the same command goes on from here"]
    # the hint of a single run would mislead
    assert not isinstance(stopped.value, Interrupted)
    assert not (tmp_path / "tiny" / "bench.json").exists()
    done = {name for verb, name in steps.calls if verb == "attack"}
    assert done == {"none-1", "none-2", "fedau2-gender-1"}
    steps.fails = {}
    steps.calls.clear()
    run_study(study, tmp_path, steps=steps)
    assert not done & {name for _, name in steps.calls}
    assert (tmp_path / "tiny" / "bench.json").exists()


def test_a_failed_run_is_told_after_the_others_are_done(study: Study, steps: Any, tmp_path: Path) -> None:
    steps.fails = {"none-2": RunError("training diverged")}
    with pytest.raises(RunError) as error:
        run_study(study, tmp_path, steps=steps)
    told = str(error.value)
    assert "none-2: training diverged" in told
    assert "not started, for they need one of these: leace-gender-2" in told
    assert {name for verb, name in steps.calls if verb == "attack"} >= {"grl-gender-epsilon-1-2", "leace-gender-1"}
    steps.fails = {}
    content = content_of(run_study(study, tmp_path, steps=steps))
    assert len(content["rows"]) == 10


def test_the_quick_version_has_a_folder_of_its_own(
    study_file: Callable[..., Path], study: Study, steps: Any, tmp_path: Path
) -> None:
    run_study(study, tmp_path, steps=steps)
    folder = run_study(load_study(study_file(), quick=True), tmp_path, steps=steps)
    assert folder.name == "tiny-quick"
    assert content_of(folder)["quick"] is True
    assert "A quick run" in (folder / "table.md").read_text()
    assert "A quick run" not in (tmp_path / "tiny" / "table.md").read_text()


def test_two_at_the_same_time_are_refused(study: Study, steps: Any, tmp_path: Path) -> None:
    train = steps.train

    def start_another(config: Any) -> None:
        with pytest.raises(RunError, match="in use by another fedrec bench"):
            run_study(study, tmp_path, steps=steps)
        train(config)

    steps.train = start_another
    run_study(study, tmp_path, steps=steps)


def test_jobs_must_be_positive(study: Study, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="jobs: must be at least 1"):
        run_study(study, tmp_path, jobs=0)


def test_missing_data_and_attributes_are_told_before_anything_is_trained(
    study_file: Callable[..., Path], tmp_path: Path
) -> None:
    study = load_study(study_file(("data: {name: synthetic}", f"data: {{name: mine, dir: {tmp_path}}}")))
    with pytest.raises(DataError, match="data set 'mine' was not found"):
        run_study(study, tmp_path / "out")
    study = load_study(study_file(("attributes: [gender, age]", "attributes: [gender, age, shoe_size]")))
    with pytest.raises(DataError, match="no user attribute 'shoe_size'"):
        run_study(study, tmp_path / "out")
    assert list((tmp_path / "out" / "tiny").glob("runs/*")) == []


REAL = (
    ("attackers: [logistic, knn]", "attackers: [logistic], folds: 2, inner_folds: 2"),
    ("ablation: {methods: [grl], unlearns: [gender], epsilons: [0.1, 1e-0]}",
     "inversion:\n  - {attribute: gender, trained: [fedau2-gender], attacks: [gram, exact], n: 20}"),
)  # fmt: skip


def test_processes_find_what_one_process_finds(study_file: Callable[..., Path], tmp_path: Path) -> None:
    """The pipeline itself on the synthetic set: trained, attacked, gradients inverted."""
    study = load_study(study_file(*REAL))
    found = []
    for jobs in (1, 2):
        content = content_of(run_study(study, tmp_path / str(jobs), jobs=jobs))
        for row in content["rows"]:
            row["seconds"] = 0.0
        found.append({**content, "created": ""})
    assert found[0] == found[1]
    inverted = {(r["stage"], r["defence"], r["attack"]): r["accuracy"] for r in found[0]["inversion"]}
    assert inverted["trained, fedau2-gender", "none", "exact"] > 0.9
    assert {row["metrics"]["ndcg@10/full"] for row in found[0]["rows"]} != {0.0}


def test_an_interrupted_study_ends_where_an_uninterrupted_one_does(
    study_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedrec_unlearn.federation import training

    study = load_study(study_file(*REAL))
    whole = content_of(run_study(study, tmp_path / "whole"))
    save, left = training.save_state, [3]

    def save_and_stop(*given: Any) -> None:
        save(*given)
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(training, "save_state", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, tmp_path / "twice")
    statuses = [json.loads(f.read_text())["status"] for f in (tmp_path / "twice").glob("tiny/runs/*/run.json")]
    assert statuses == ["interrupted"]
    twice = content_of(run_study(study, tmp_path / "twice"))
    for content in (whole, twice):
        for row in content["rows"]:
            row["seconds"] = 0.0
    assert {**whole, "created": ""} == {**twice, "created": ""}
