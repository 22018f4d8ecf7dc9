from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedrec_unlearn.config import AttackConfig, Config, UnlearnConfig
from fedrec_unlearn.config_unlearn import UnlearnWarning
from fedrec_unlearn.data.types import MISSING, Attribute
from fedrec_unlearn.errors import AttackError, ConfigError, DataError, RunError
from fedrec_unlearn.federation.state import initial_state
from fedrec_unlearn.pipeline import attack, export, resume, sweep, train, unlearn
from fedrec_unlearn.pipeline.afterwards import score_directions, score_slopes
from fedrec_unlearn.pipeline.assembly import Assembly
from fedrec_unlearn.pipeline.selection import selection_users
from fedrec_unlearn.progress import Interrupted

GENDER = AttackConfig(attributes=("gender", "age"), attackers=("logistic",), folds=4, seeds=(0, 1))
ADVERSARIAL = {"unlearn.method": "fedau2", "unlearn.attributes": ["gender"], "unlearn.epsilon": 0.05}
AFTERWARDS = ("moments", "u2u", "d2d", "leace", "local_dp")


def found(entries: list[dict[str, Any]]) -> dict[str, float]:
    return {entry["attribute"]: entry["balanced_accuracy"]["mean"] for entry in entries}


def read(run: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / name).read_text())
    return content


@pytest.mark.parametrize("method", ["moments", "leace", "d2d"])
def test_a_trained_run_loses_the_attribute_keeps_the_other_and_still_recommends(
    trained: Path, tmp_path: Path, method: str
) -> None:
    before_bytes = {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()}
    run = unlearn(trained, UnlearnConfig(attributes=("gender",), method=method), output=tmp_path / "after")
    content = attack(run, GENDER, before=True)
    before, after = found(content["before"]), found(content["results"])
    assert before["gender"] > 0.8
    assert after["gender"] < 0.7
    assert abs(after["age"] - before["age"]) < 0.12
    metrics = read(run, "metrics.json")
    assert metrics["before"] == read(trained, "metrics.json")["test"]
    assert metrics["test"]["ndcg@10/full"] > 0.7 * metrics["before"]["ndcg@10/full"]
    assert {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()} == before_bytes


@pytest.mark.parametrize("method", AFTERWARDS)
def test_what_happened_is_told(trained: Path, tmp_path: Path, method: str) -> None:
    run = unlearn(trained, UnlearnConfig(attributes=("gender",), method=method), output=tmp_path / "after")
    told = read(run, "run.json")["unlearn"]
    assert (told["method"], told["attributes"], told["source"]) == (method, ["gender"], trained.name)
    assert told["known"]["gender"] + told["missing"]["gender"] == read(run, "run.json")["data"]["n_users"]
    assert told["pooled_rows"] == (method in ("u2u", "d2d"))
    assert (told["bytes_up"] > 0) == (method in ("moments", "leace"))
    before, after = load_file(run / "before.safetensors"), load_file(run / "best.safetensors")
    assert torch.equal(before["items"], after["items"])
    assert not torch.equal(before["private"], after["private"])


def test_training_with_a_method_that_works_afterwards_is_training_and_then_unlearning(
    config: Callable[..., Config], tmp_path: Path
) -> None:
    options = {"unlearn.method": "moments", "unlearn.attributes": ["gender"]}
    at_once = train(config("at-once", options))
    in_two = unlearn(
        train(config("plain")), UnlearnConfig(attributes=("gender",), method="moments"), output=tmp_path / "two"
    )
    one, other = load_file(at_once / "best.safetensors"), load_file(in_two / "best.safetensors")
    assert torch.equal(one["private"], other["private"])
    assert read(at_once, "metrics.json")["before"] == read(in_two, "metrics.json")["before"]


def test_adversarial_unlearning_in_training_hides_the_attribute(config: Callable[..., Config], trained: Path) -> None:
    options = {"federation.rounds": 240, "federation.clients_per_round": 0, "evaluation.every": 20, **ADVERSARIAL}
    options["unlearn.epsilon"] = 0.2
    run = train(config("fedau2", options))
    assert found(attack(trained, GENDER)["results"])["gender"] > 0.8
    assert found(attack(run, GENDER)["results"])["gender"] < 0.7
    event = json.loads((run / "events.jsonl").read_text().splitlines()[0])
    assert event["adversary"]["gender"]["clients"] > 0
    with pytest.raises(RunError, match="no state before"):
        attack(run, GENDER, before=True)


def test_adversarial_unlearning_of_a_trained_run_keeps_the_last_round(trained: Path, tmp_path: Path) -> None:
    options = UnlearnConfig(attributes=("gender",), method="grl_sut", epsilon=0.05, further_rounds=60)
    run = unlearn(trained, options, output=tmp_path / "after")
    described = read(run, "run.json")
    assert (described["rounds_done"], described["best_round"]) == (60, 60)
    content = attack(run, GENDER, before=True)
    assert found(content["results"])["gender"] < found(content["before"])["gender"] - 0.05


@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("method", ["fedau2", "fedau2_moments", "moments"])
def test_an_interrupted_run_ends_as_if_it_had_not_been(
    config: Callable[..., Config],
    stop_after: Callable[[int], Any],
    assert_same_run: Callable[[Path, Path], None],
    method: str,
    ring: bool,
) -> None:
    options = {**ADVERSARIAL, "unlearn.method": method, "federation.ring": ring, "federation.snapshot_every": 4}
    whole = train(config("whole", options))
    with pytest.raises(Interrupted):
        train(config("part", options), progress=stop_after(7))
    part = whole.with_name("part")
    resume(part)
    assert_same_run(whole, part)
    assert sorted(p.name for p in (whole / "snapshots").iterdir()) == [
        f"round-{number:06d}.safetensors" for number in (4, 8, 12)
    ]


def test_a_run_killed_while_it_changes_the_rows_changes_them_once(
    config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedrec_unlearn.federation.run_folder import RunFolder

    options = {"unlearn.method": "moments", "unlearn.attributes": ["gender"]}
    whole = train(config("whole", options))
    original = RunFolder.update_run

    def killed(self: RunFolder, **fields: Any) -> None:
        if "unlearn" in fields:
            raise SystemExit
        original(self, **fields)

    monkeypatch.setattr(RunFolder, "update_run", killed)
    with pytest.raises(SystemExit):
        train(config("part", options))
    monkeypatch.undo()
    part = whole.with_name("part")
    resume(part)
    for name in ("best", "before"):
        one, other = load_file(whole / f"{name}.safetensors"), load_file(part / f"{name}.safetensors")
        assert torch.equal(one["private"], other["private"])


def test_users_who_do_not_tell_keep_their_row_and_are_told_of(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fedrec_unlearn.pipeline.assembly as assembly

    load = assembly.load_dataset

    def with_missing(*args: Any) -> Any:
        dataset = load(*args)
        labels = dataset.attributes["gender"].labels.copy()
        labels[:40] = MISSING
        dataset.attributes["gender"] = Attribute("gender", dataset.attributes["gender"].classes, labels)
        return dataset

    monkeypatch.setattr(assembly, "load_dataset", with_missing)
    with pytest.warns(UnlearnWarning, match=r"gender is not known of \d+ of 200 users"):
        run = unlearn(trained, UnlearnConfig(attributes=("gender",), method="moments"), output=tmp_path / "after")
    before, after = load_file(run / "before.safetensors")["private"], load_file(run / "best.safetensors")["private"]
    assert torch.equal(before[:40], after[:40])
    assert not torch.equal(before[40:], after[40:])


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"unlearn.method": "moments", "unlearn.attributes": ["sex"]}, DataError, "no user attribute 'sex'"),
        (
            {**ADVERSARIAL, "data.item_features": ["genre"], "unlearn.attributes": ["genre"], "model.name": "fm"},
            ConfigError,
            "genre is also in data.item_features",
        ),
        ({"unlearn.attributes": ["gender"]}, ConfigError, "none leaves gender as it is"),
        ({"unlearn.method": "fedau2"}, ConfigError, "needs at least one attribute"),
        ({**ADVERSARIAL, "unlearn.attributes": ["gender", "gender"]}, ConfigError, "names an attribute twice"),
    ],
)
def test_a_mistake_is_told_before_anything_is_written(
    config: Callable[..., Config], options: Mapping[str, Any], error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        train(config("run", options))


@pytest.mark.parametrize("method", ["moments", "fedau2"])
def test_an_attribute_all_users_share_is_refused(config: Callable[..., Config], own_files: Path, method: str) -> None:
    users = (own_files / "synthetic.user").read_text().replace("\tM\t", "\tF\t").replace("\tM\n", "\tF\n")
    (own_files / "synthetic.user").write_text(users)
    options = {
        "data.dir": str(own_files),
        "unlearn.method": method,
        "unlearn.attributes": ["gender"],
        "unlearn.epsilon": 0.1,
    }
    made = config("run", options)
    with pytest.raises(ConfigError, match="all users are 'F'; there is nothing to unlearn"):
        train(made)
    assert not Path(str(made.output)).exists()


def test_unlearning_needs_a_method(trained: Path) -> None:
    with pytest.raises(ConfigError, match="none changes nothing"):
        unlearn(trained, UnlearnConfig())


def test_the_state_before_is_exported(trained: Path, tmp_path: Path) -> None:
    run = unlearn(trained, UnlearnConfig(attributes=("gender",), method="moments"), output=tmp_path / "after")
    parts = {
        part: np.load(export(run, tmp_path / f"{part}.npz", part=part))["representation"] for part in ("best", "before")
    }
    own = np.load(export(trained, tmp_path / "own.npz"))["representation"]
    assert np.array_equal(parts["before"], own)
    assert not np.array_equal(parts["best"], own)


def test_a_sweep_chooses_on_users_set_aside_and_goes_on_where_it_stopped(
    config: Callable[..., Config], tmp_path: Path
) -> None:
    options = {
        **ADVERSARIAL,
        "unlearn.epsilon": 0.0,
        "unlearn.epsilons": [0.05, 30.0],
        "unlearn.tolerance": 0.5,
        "federation.rounds": 120,
        "federation.clients_per_round": 0,
        "attack.attackers": ["logistic"],
        "attack.seeds": [0],
        "attack.folds": 3,
    }
    made = config("run", options)
    folder = tmp_path / "sweep"
    content = sweep(made, folder)
    assert [point["run"] for point in content["points"]] == ["none", "epsilon-0.05", "epsilon-30"]
    none, weak, _ = content["points"]
    assert weak["worst"]["gender"] < none["worst"]["gender"]
    assert read(folder, "sweep.json") == json.loads(json.dumps(content))
    chosen = selection_users(200, 0.5, made.split.seed)
    assert none["n_selection"] <= chosen.sum() < 200
    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("*/best.safetensors")}
    shutil.rmtree(folder / "epsilon-30")
    sweep(made, folder)
    again = {path: path.stat().st_mtime_ns for path in folder.glob("*/best.safetensors")}
    assert {path: again[path] for path in again if path.parent.name != "epsilon-30"} == {
        path: stamps[path] for path in stamps if path.parent.name != "epsilon-30"
    }


def test_strength_zero_means_that_a_sweep_chooses_it(config: Callable[..., Config]) -> None:
    options = {
        **ADVERSARIAL,
        "unlearn.epsilon": 0.0,
        "unlearn.epsilons": [0.05],
        "unlearn.tolerance": 0.5,
        "federation.rounds": 120,
        "federation.clients_per_round": 0,
        "attack.attackers": ["logistic"],
        "attack.seeds": [0],
        "attack.folds": 3,
    }
    run = train(config("run", options))
    assert read(run, "run.json")["unlearn"] | {} == read(run, "run.json")["unlearn"]
    assert (read(run, "run.json")["unlearn"]["epsilon"], read(run, "run.json")["unlearn"]["chosen"]) == (0.05, True)
    assert read(run.with_name("run-sweep"), "sweep.json")["chosen"] == 0.05


def test_audit_leaves_out_the_users_who_chose(trained: Path) -> None:
    options = AttackConfig(attributes=("gender",), attackers=("logistic",), folds=3, seeds=(0,), users="audit")
    everyone = attack(trained, AttackConfig(attributes=("gender",), attackers=("logistic",), folds=3, seeds=(0,)))
    audited = attack(trained, options)
    n_users = read(trained, "run.json")["data"]["n_users"]
    chosen = selection_users(n_users, 0.5, 2020)
    assert audited["results"][0]["n_users"] < everyone["results"][0]["n_users"]
    assert audited["results"][0]["n_users"] <= n_users - chosen.sum()


def test_five_snapshots_are_attacked_and_their_absence_is_told(config: Callable[..., Config]) -> None:
    options = {"federation.rounds": 60, "federation.clients_per_round": 0, "federation.snapshot_every": 10}
    run = train(config("run", {**options, "evaluation.keep": "last"}))
    surfaces = AttackConfig(
        attributes=("gender",), attackers=("logistic",), folds=3, seeds=(0,), surfaces=("trajectory", "directions")
    )
    results = attack(run, surfaces)["results"]
    assert [entry["surface"] for entry in results] == ["trajectory", "directions"]
    assert results[0]["balanced_accuracy"]["mean"] > 0.6
    bare = train(config("bare"))
    with pytest.raises(AttackError, match=r"train with federation\.snapshot_every"):
        attack(bare, surfaces)


def test_the_state_before_is_attacked_on_every_surface_it_has(trained: Path, tmp_path: Path) -> None:
    options = UnlearnConfig(attributes=("gender",), method="fedau2", epsilon=0.05, further_rounds=60)
    source = Path(shutil.copytree(trained, tmp_path / "source"))
    settings = (source / "config.yaml").read_text().replace("snapshot_every: 0", "snapshot_every: 10")
    (source / "config.yaml").write_text(settings)
    run = unlearn(source, options, output=tmp_path / "after")
    surfaces = ("update_support", "trajectory")
    wanted = AttackConfig(attributes=("gender",), attackers=("logistic",), folds=3, seeds=(0,), surfaces=surfaces)
    content = attack(run, wanted, before=True)
    assert [entry["surface"] for entry in content["results"]] == ["trajectory", "update_support"]
    # the snapshots are of rounds after that state
    assert [entry["surface"] for entry in content["before"]] == ["update_support"]
    assert content["config"]["surfaces"] == surfaces
    with pytest.raises(AttackError, match="before has no trajectory or directions"):
        attack(run, AttackConfig(attributes=("gender",), folds=3, surfaces=("directions",)), before=True)


def test_shuffled_labels_are_a_control_that_ends_at_chance(trained: Path) -> None:
    wanted = AttackConfig(
        attributes=("gender",), attackers=("logistic",), folds=4, seeds=(0, 1, 2), surfaces=("shuffled_labels",)
    )
    (found,) = attack(trained, wanted)["results"]
    assert found["control"] == "shuffled_labels"
    # 52 users of the smaller class, three seeds
    assert abs(found["balanced_accuracy"]["mean"] - 0.5) < 3 * (0.25 * (1 / 52 + 1 / 143) / 4) ** 0.5


def test_a_sweep_does_not_take_runs_of_another_configuration(config: Callable[..., Config], tmp_path: Path) -> None:
    options = {**ADVERSARIAL, "unlearn.epsilons": [0.05], "unlearn.tolerance": 0.9, "attack.attackers": ["logistic"]}
    few = {"attack.seeds": [0], "attack.folds": 3}
    sweep(config("run", {**options, **few}), tmp_path / "sweep")
    sweep(config("run", {**options, **few, "attack.seeds": [1]}), tmp_path / "sweep")
    with pytest.raises(RunError, match="holds a run of another configuration than this sweep's"):
        sweep(config("run", {**options, **few, "federation.rounds": 15}), tmp_path / "sweep")


def test_updates_in_the_clear_are_warned_of(config: Callable[..., Config]) -> None:
    with pytest.warns(UnlearnWarning, match="a client's update of the adversary alone tells its class"):
        train(config("run", {**ADVERSARIAL, "unlearn.secure_sums": False}))


@pytest.mark.parametrize("method", ["moments", "fedau2_moments"])
def test_item_rows_train_on_while_private_rows_stand_still(config: Callable[..., Config], method: str) -> None:
    options = {**ADVERSARIAL, "unlearn.method": method}
    at_once = train(config("none", options))
    with_rounds = train(config("some", {**options, "unlearn.item_rounds": 4}))
    one, other = load_file(at_once / "best.safetensors"), load_file(with_rounds / "best.safetensors")
    assert torch.equal(one["private"], other["private"])
    assert not torch.equal(one["items"], other["items"])
    assert not torch.equal(one["moment.first.items"], other["moment.first.items"])
    adversaries = [name for name in one if "term." in name]
    assert bool(adversaries) == (method == "fedau2_moments")
    assert all(torch.equal(one[name], other[name]) for name in adversaries)


@pytest.mark.parametrize("model_name", ["mf", "fm", "ncf", "deepfm"])
def test_what_a_row_is_multiplied_with_is_the_scores_derivative(config: Callable[..., Config], model_name: str) -> None:
    made = config("run", {"model.name": model_name, "model.hidden_sizes": [8, 4]})
    assembly = Assembly.of(made)
    state = initial_state(assembly.workload.model, made, torch.device("cpu"))
    state.private.mul_(5.0)
    model, dense = assembly.workload.model, state.server.dense
    at = state.private[torch.from_numpy(assembly.workload.eligible())].mean(0)
    directions = score_directions(assembly, state)
    assert directions is not None
    slopes = torch.func.jacfwd(lambda row: model.score(row, state.server.items, dense))(at)
    # a part that is the same for every item changes no ranking
    difference = directions - slopes
    assert torch.allclose(difference - difference.mean(0), torch.zeros_like(difference), atol=1e-5)
    assert torch.allclose(score_slopes(assembly.workload, state, at, chunk=7), slopes, atol=1e-5)
