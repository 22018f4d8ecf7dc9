from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn.bench.measure import complete, finished_result, utility
from fedrec_unlearn.bench.study import Study, Task, tasks_of
from fedrec_unlearn.config_file import config_from_dict, dump_config, load_config
from fedrec_unlearn.errors import RunError
from fedrec_unlearn.pipeline import train


def leave_run(task: Task, status: str, **changes: Any) -> None:
    """What a study leaves that was stopped in this task."""
    config = replace(task.config, **changes)
    (other,) = tasks_of(
        Study("s", "p", "t", (task.seed,), config, "", (), (replace(task.arm, config=config),)),
        task.folder.parent.parent,
    )
    task.result.parent.mkdir(parents=True, exist_ok=True)
    task.result.with_suffix(".origin.json").write_text(json.dumps(other.origin), encoding="utf-8")
    task.folder.mkdir(parents=True)
    (task.folder / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    (task.folder / "run.json").write_text(json.dumps({"format": 1, "status": status}), encoding="utf-8")
    if status == "finished":
        (task.folder / "metrics.json").write_text("{}", encoding="utf-8")


@pytest.fixture
def tasks(study: Study, tmp_path: Path) -> dict[str, Task]:
    return {task.name: task for task in tasks_of(study, tmp_path / "out")}


def test_a_new_run_is_trained_judged_attacked_and_written_down(tasks: dict[str, Task], steps: Any) -> None:
    task = tasks["fedau2-gender-1"]
    result = complete(task, steps)
    assert steps.verbs(task.name) == ["train", "utility", "attack"]
    row = result.row
    assert (row["arm"], row["seed"], row["unlearns"], row["method"]) == ("fedau2-gender", 1, ["gender"], "fedau2")
    assert (row["epsilon"], row["seconds"], row["run"]) == (0.1, 2.5, "runs/fedau2-gender-1")
    assert [(found["attribute"], found["attacker"]) for found in row["attack"]] == [
        ("gender", "logistic"), ("gender", "knn"), ("age", "logistic"), ("age", "knn"),
    ]  # fmt: skip
    assert result.attributes["age"]["classes"] == ["18-34", "35-54", "55+"]
    assert finished_result(task) is not None


def test_what_is_finished_is_not_done_again(tasks: dict[str, Task], steps: Any) -> None:
    first = complete(tasks["none-1"], steps)
    steps.calls.clear()
    again = complete(tasks["none-1"], steps)
    assert steps.calls == []
    assert (again.row, again.attributes) == (first.row, first.attributes)


def test_a_finished_run_without_results_is_attacked_but_not_trained(tasks: dict[str, Task], steps: Any) -> None:
    leave_run(tasks["none-1"], "finished")
    complete(tasks["none-1"], steps)
    assert steps.verbs("none-1") == ["utility", "attack"]


@pytest.mark.parametrize("status", ["interrupted", "running"])
def test_an_interrupted_or_killed_run_is_resumed(tasks: dict[str, Task], steps: Any, status: str) -> None:
    leave_run(tasks["none-1"], status)
    complete(tasks["none-1"], steps)
    assert steps.verbs("none-1") == ["resume", "utility", "attack"]


def test_a_run_that_cannot_be_resumed_is_started_again(tasks: dict[str, Task], steps: Any) -> None:
    leave_run(tasks["none-1"], "interrupted")

    def damaged(run: Path) -> None:
        raise RunError("latest.safetensors is damaged")

    steps.resume = damaged
    complete(tasks["none-1"], steps)
    assert steps.verbs("none-1") == ["train", "utility", "attack"]


def test_half_made_and_failed_runs_are_replaced(tasks: dict[str, Task], steps: Any) -> None:
    leave_run(tasks["none-1"], "failed")
    tasks["none-2"].folder.mkdir(parents=True)
    (tasks["none-2"].folder / "latest.safetensors").write_bytes(b"half")
    for name in ("none-1", "none-2"):
        complete(tasks[name], steps)
        assert steps.verbs(name) == ["train", "utility", "attack"]
    assert not (tasks["none-2"].folder / "latest.safetensors").exists()


def test_a_run_of_another_configuration_is_replaced(tasks: dict[str, Task], steps: Any) -> None:
    task = tasks["none-1"]
    leave_run(task, "finished", model=replace(task.config.model, embedding_dim=9))
    complete(task, steps)
    assert steps.verbs("none-1") == ["train", "utility", "attack"]
    assert load_config(task.folder / "config.yaml").model.embedding_dim == 4


def test_other_attackers_do_not_train_a_run_again(study: Study, steps: Any, tmp_path: Path) -> None:
    task = tasks_of(study, tmp_path)[0]
    complete(task, steps)
    steps.calls.clear()
    config = replace(task.arm.config, attack=replace(task.arm.config.attack, attackers=("mlp",)))
    other = tasks_of(replace(study, arms=(replace(task.arm, config=config),)), tmp_path)[0]
    result = complete(other, steps)
    assert steps.verbs("none-1") == ["utility", "attack"]
    assert {found["attacker"] for found in result.row["attack"]} == {"mlp"}


def test_an_arm_may_start_from_the_run_of_another(tasks: dict[str, Task], steps: Any) -> None:
    complete(tasks["none-1"], steps)
    result = complete(tasks["leace-gender-1"], steps)
    assert steps.verbs("leace-gender-1") == ["unlearn", "utility", "attack"]
    assert (result.row["pooled_rows"], result.row["epsilon"], result.row["seconds"]) == (True, None, 0.25)
    steps.calls.clear()
    tasks["leace-gender-1"].result.unlink()
    complete(tasks["leace-gender-1"], steps)
    assert steps.verbs("leace-gender-1") == ["utility", "attack"]


def test_a_change_of_the_source_changes_what_starts_from_it(
    study_file: Callable[..., Path], tasks: dict[str, Task], steps: Any
) -> None:
    from fedrec_unlearn.bench import load_study

    folder = tasks["none-1"].folder.parent.parent
    for name in ("none-1", "leace-gender-1"):
        complete(tasks[name], steps)
    steps.calls.clear()
    changed = load_study(study_file(("{name: none}", "{name: none, options: {federation.rounds: 9}}")))
    for task in tasks_of(changed, folder):
        if task.name in ("none-1", "leace-gender-1"):
            complete(task, steps)
    assert steps.verbs("none-1") == ["train", "utility", "attack"]
    assert steps.verbs("leace-gender-1") == ["unlearn", "utility", "attack"]


def test_a_run_whose_origin_is_not_known_is_replaced(tasks: dict[str, Task], steps: Any) -> None:
    leave_run(tasks["none-1"], "finished")
    tasks["none-1"].result.with_suffix(".origin.json").unlink()
    complete(tasks["none-1"], steps)
    assert steps.verbs("none-1") == ["train", "utility", "attack"]


def test_results_without_their_run_do_not_count(tasks: dict[str, Task], steps: Any) -> None:
    complete(tasks["none-1"], steps)
    (tasks["none-1"].folder / "run.json").unlink()
    assert finished_result(tasks["none-1"]) is None


def test_warnings_are_handed_on(tasks: dict[str, Task], steps: Any) -> None:
    import warnings

    train_quietly = steps.train

    def train_and_warn(config: Any) -> None:
        warnings.warn("5 users have no gender", stacklevel=1)
        train_quietly(config)

    steps.train = train_and_warn
    assert complete(tasks["none-1"], steps).warnings == ("5 users have no gender",)


def test_utility_is_what_each_protocol_reports_of_the_same_state(tmp_path: Path) -> None:
    """The same rounds under either protocol: what `train` itself reports is the reference for both."""
    reported = {}
    for protocol in ("full", "sampled"):
        config = config_from_dict(
            {
                "seed": 3,
                "output": str(tmp_path / protocol),
                "data.name": "synthetic",
                "model.embedding_dim": 4,
                "federation": {"rounds": 8, "clients_per_round": 0, "server_learning_rate": 0.01},
                "evaluation": {
                    "topk": [5, 10], "metrics": ["ndcg", "hr"], "every": 0, "sampled_negatives": 30,
                    "protocol": protocol,
                },
            }
        )  # fmt: skip
        run = train(config)
        reported |= json.loads((run / "metrics.json").read_text())["test"]
    assert len(reported) == 8
    for protocol in ("full", "sampled"):
        assert utility(tmp_path / protocol) == pytest.approx(reported, abs=0)
