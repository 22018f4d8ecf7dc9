from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedrec_unlearn.config import AttackConfig, Config
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.data import load_dataset
from fedrec_unlearn.errors import AttackError, RunError
from fedrec_unlearn.federation.contribution import ClientUpdate
from fedrec_unlearn.federation.reference import ReferenceEngine
from fedrec_unlearn.pipeline import attack, train
from fedrec_unlearn.pipeline.assembly import reopen, trained_state
from fedrec_unlearn.pipeline.audit import observe_round
from fedrec_unlearn.progress import SilentProgress

DOCS = Path(__file__).parents[2] / "docs" / "run-folder.md"
QUICK: dict[str, Any] = {"attackers": ("logistic",), "seeds": (0,), "folds": 3}


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained run."""
    return Path(shutil.copytree(trained, tmp_path / "copy"))


def accuracies(content: dict[str, Any]) -> dict[tuple[str, str], float]:
    return {(r["surface"], r["attribute"]): r["balanced_accuracy"]["mean"] for r in content["results"]}


def test_embeddings_tell_the_planted_attribute_and_nothing_of_the_noise(run: Path) -> None:
    options = AttackConfig(attributes=("gender", "noise"), attackers=("logistic",), folds=4, seeds=(0, 1))
    found = accuracies(attack(run, options))
    assert found["user_embedding", "gender"] > 0.8
    # 198 users with a known class: three standard errors of a guess
    assert abs(found["user_embedding", "noise"] - 0.5) < 3 * (0.25 / 198) ** 0.5


def test_untrained_embeddings_tell_nothing(config: Callable[..., Config]) -> None:
    untrained = train(config("run", {"federation.rounds": 1, "federation.user_learning_rate": 1e-9}))
    found = accuracies(attack(untrained, AttackConfig(attributes=("gender",), **QUICK)))
    # 52 users of the smaller class
    assert abs(found["user_embedding", "gender"] - 0.5) < 3 * (0.25 * (1 / 52 + 1 / 143) / 4) ** 0.5


def test_uploads_tell_it_too(run: Path) -> None:
    surfaces = ("user_embedding", "update_support", "update_values")
    found = accuracies(attack(run, AttackConfig(attributes=("gender",), surfaces=surfaces, **QUICK)))
    assert [surface for surface, _ in found] == list(surfaces)
    for surface in surfaces:
        assert found[surface, "gender"] > 0.65, surface


def test_the_written_file_is_what_is_returned_with_the_documented_fields(run: Path) -> None:
    content = attack(run, AttackConfig(attributes=("gender",), **QUICK))
    assert json.loads((run / "attack.json").read_text()) == json.loads(json.dumps(content))
    section = DOCS.read_text(encoding="utf-8").split("## `attack.json`")[1]
    example = json.loads(re.findall(r"```json\n(.*?)```", section, flags=re.DOTALL)[0])
    assert example.keys() <= content.keys()
    assert example["config"].keys() <= content["config"].keys()
    (result,) = content["results"]
    assert example["results"][0].keys() <= result.keys()
    assert example["results"][0]["balanced_accuracy"].keys() <= result["balanced_accuracy"].keys()
    gender = load_dataset(load_config(run / "config.yaml").data).attributes["gender"]
    assert result["classes"] == list(gender.classes)
    assert result["counts"] == [int((gender.labels == k).sum()) for k in range(2)]
    assert result["n_missing"] == int((gender.labels == -1).sum())
    assert result["n_users"] == sum(result["counts"])


def test_the_same_attack_gives_the_same_numbers(run: Path) -> None:
    options = AttackConfig(attributes=("gender",), **QUICK)
    first, second = attack(run, options)["results"], attack(run, options)["results"]
    assert first == second


def test_the_runs_own_options_serve_where_none_are_given(config: Callable[..., Config]) -> None:
    options = {
        "federation.rounds": 2, "attack.attributes": ["noise"], "attack.attackers": ["knn"], "attack.seeds": [4],
        "attack.folds": 2,
    }  # fmt: skip
    content = attack(train(config("run", options)))
    assert [(r["attribute"], r["attacker"]) for r in content["results"]] == [("noise", "knn")]
    assert content["config"]["seeds"] == (4,)


class Listener(SilentProgress):
    def __init__(self) -> None:
        self.told: list[Any] = []

    def start(self, title: str, total: int, unit: str) -> None:
        self.told.append(title)

    def advance(self, step: int, fields: Mapping[str, float | str]) -> None:
        self.told.append((step, fields["attacker"]))

    def finish(self) -> None:
        self.told.append("finish")


def test_progress_is_told_of_every_fold(run: Path) -> None:
    listener = Listener()
    attack(run, AttackConfig(attributes=("gender",), **QUICK), progress=listener)
    steps = [(step, "logistic") for step in (1, 2, 3)]
    assert listener.told == ["attack on gender from user_embedding", *steps, "finish"]


@pytest.mark.parametrize("model", ["mf", "ncf"])
def test_what_is_observed_is_what_every_client_would_upload(config: Callable[..., Config], model: str) -> None:
    options = {"federation.rounds": 3, "model.name": model, "model.hidden_sizes": [8], "federation.local_epochs": 2}
    folder, assembly = reopen(train(config("run", options)))
    state, _ = trained_state(folder, assembly, "latest")
    kept = state.private.clone()
    users, indptr, items, values = observe_round(state, assembly, with_values=True)
    assert values is not None
    assert torch.equal(state.private, kept)
    assert sorted(users.tolist()) == assembly.workload.eligible().tolist()
    single = ReferenceEngine(assembly.workload)
    for place in (0, 57, 113, len(users) - 1):
        update: ClientUpdate = single.train_one(state, int(users[place]), state.server.rounds_done)[0]
        mine = slice(indptr[place], indptr[place + 1])
        assert items[mine].tolist() == update.item_ids.tolist()
        np.testing.assert_allclose(values[mine] * update.weight, update.item_rows.numpy(), rtol=1e-4, atol=1e-6)


def test_an_unknown_attribute_lists_the_known_ones(run: Path) -> None:
    with pytest.raises(AttackError, match=r"no user attribute 'shoe_size'; it has age, gender, noise"):
        attack(run, AttackConfig(attributes=("gender", "shoe_size")))
    assert not (run / "attack.json").exists()


def with_column(folder: Path, name: str, values: Callable[[int], str]) -> None:
    lines = (folder / "synthetic.user").read_text().splitlines()
    lines = [f"{lines[0]}\t{name}:token", *(f"{line}\t{values(k)}" for k, line in enumerate(lines[1:]))]
    (folder / "synthetic.user").write_text("\n".join(lines) + "\n")


def test_an_attribute_with_one_class_cannot_be_told_apart(config: Callable[..., Config], own_files: Path) -> None:
    with_column(own_files, "planet", lambda _: "earth")
    run = train(config("run", {"data.dir": str(own_files), "federation.rounds": 1}))
    with pytest.raises(AttackError, match=r"planet: all 200 users with a label are 'earth'; an attack needs two"):
        attack(run, AttackConfig(attributes=("planet",), **QUICK))


def test_a_column_left_out_of_the_attributes_can_still_be_asked_for(
    config: Callable[..., Config], own_files: Path
) -> None:
    # 110 classes among 200 users look like an identifier
    with_column(own_files, "street", lambda k: str(k // 10) if k < 100 else f"single {k}")
    run = train(config("run", {"data.dir": str(own_files), "federation.rounds": 1}))
    assert "street" not in json.loads((run / "run.json").read_text())["data"]["attributes"]
    with pytest.warns(UserWarning, match="left out, for too few users"):
        content = attack(run, AttackConfig(attributes=("street", "gender"), **QUICK))
    assert [result["attribute"] for result in content["results"]] == ["street", "gender"]
    assert len(content["results"][0]["classes"]) == 10


def test_data_without_attributes_has_nothing_to_infer(config: Callable[..., Config], own_files: Path) -> None:
    (own_files / "synthetic.user").unlink()
    run = train(config("run", {"data.dir": str(own_files), "federation.rounds": 1}))
    with pytest.raises(AttackError, match="no user attributes, so there is nothing to infer"):
        attack(run)


def test_too_few_users_of_a_class_are_told(config: Callable[..., Config], own_files: Path) -> None:
    with_column(own_files, "rare", lambda k: "yes" if k < 2 else "no")
    run = train(config("run", {"data.dir": str(own_files), "federation.rounds": 1}))
    with pytest.raises(AttackError, match=r"rare: too few users in 'yes' \(2\).*merge classes"):
        attack(run, AttackConfig(attributes=("rare",), **QUICK))


def test_only_users_that_took_part_are_attacked(config: Callable[..., Config], own_files: Path) -> None:
    # whoever began late has everything in validation and test
    options = {"data.dir": str(own_files), "federation.rounds": 1, "split.method": "global_time"}
    run = train(config("run", options))
    _, assembly = reopen(run)
    idle = assembly.dataset.n_users - len(assembly.workload.eligible())
    assert idle > 0
    (result,) = attack(run, AttackConfig(attributes=("gender",), **QUICK))["results"]
    assert result["n_users"] + result["n_missing"] == assembly.dataset.n_users - idle


def test_a_run_whose_data_has_changed_is_not_attacked(config: Callable[..., Config], own_files: Path) -> None:
    run = train(config("run", {"data.dir": str(own_files), "federation.rounds": 1}))
    lines = (own_files / "synthetic.inter").read_text().splitlines()
    (own_files / "synthetic.inter").write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(RunError, match="the data it was trained on has changed"):
        attack(run, AttackConfig(attributes=("gender",), **QUICK))


def test_a_run_still_going_can_be_attacked(config: Callable[..., Config], stop_after: Any) -> None:
    made = config("run", {"federation.rounds": 30})
    with pytest.raises(KeyboardInterrupt):
        train(made, progress=stop_after(20))
    content = attack(Path(made.output or ""), AttackConfig(attributes=("gender",), **QUICK))
    assert content["round"] in (3, 6, 9, 12, 15, 18)
