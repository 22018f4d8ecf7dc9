from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedrec_unlearn.config import Config
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.data import load_dataset, make_split
from fedrec_unlearn.errors import ConfigError, DataError, FedRecError, RunError
from fedrec_unlearn.federation import training
from fedrec_unlearn.pipeline import train
from fedrec_unlearn.progress import SilentProgress

MakeConfig = Callable[..., Config]
DOCS = Path(__file__).parents[2] / "docs" / "run-folder.md"


def events_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def json_of(run: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / name).read_text())
    return found


def documented(name: str) -> list[dict[str, Any]]:
    """The example objects the documentation shows for a file."""
    section = DOCS.read_text(encoding="utf-8").split(f"## `{name}`")[1].split("\n## ")[0]
    block = re.findall(r"```json\n(.*?)```", section, flags=re.DOTALL)[0]
    if name.endswith(".jsonl"):
        return [json.loads(line) for line in block.splitlines()]
    return [json.loads(block)]


def test_a_finished_run_has_the_documented_files(trained: Path) -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    of_train = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    of_train -= {"attack.json", "report.html", "report.json", "report.csv"}
    of_train -= {"before.safetensors", "trained.safetensors", "snapshots/round-<number>.safetensors"}
    assert {path.name for path in trained.iterdir()} == of_train


def test_run_json_has_the_documented_fields(trained: Path) -> None:
    (example,), found = documented("run.json"), json_of(trained, "run.json")
    for name, value in example.items():
        assert isinstance(found[name], type(value)), name
    for section in ("data", "model"):
        assert example[section].keys() <= found[section].keys()
    assert (found["status"], found["rounds_done"], found["device"]) == ("finished", 240, "cpu")
    assert found["train_seconds"] > 0
    assert found["peak_memory_mib"] > 10


def test_run_json_tells_the_sizes_of_data_and_model(trained: Path) -> None:
    config = load_config(trained / "config.yaml")
    dataset = load_dataset(config.data)
    split = make_split(dataset, config.split)
    data, model = json_of(trained, "run.json")["data"], json_of(trained, "run.json")["model"]
    assert (data["n_users"], data["n_items"]) == (dataset.n_users, dataset.n_items)
    assert [data[f"n_{part}"] for part in ("train", "valid", "test")] == [
        len(getattr(split, part).items) for part in ("train", "valid", "test")
    ]
    gender = dataset.attributes["gender"]
    assert data["attributes"]["gender"] == {
        "classes": {name: int((gender.labels == k).sum()) for k, name in enumerate(gender.classes)},
        "missing": int((gender.labels == -1).sum()),
    }
    assert model == {
        "name": "mf", "private": {"user_embedding": [dataset.n_users, 8]},
        "item_rows": {"item_embedding": [dataset.n_items, 8]}, "dense": {},
    }  # fmt: skip


def test_events_have_the_documented_fields_and_every_round_once(trained: Path) -> None:
    examples = {example["event"]: example for example in documented("events.jsonl")}
    found = events_of(trained)
    for event in found:
        assert event.keys() == examples[event["event"]].keys()
    rounds = [event for event in found if event["event"] == "round"]
    assert [event["round"] for event in rounds] == list(range(1, 241))
    assert all(event["clients"] == 200 and event["loss"] > 0 for event in rounds)
    evaluated = [event for event in found if event["event"] == "evaluation"]
    assert [event["round"] for event in evaluated] == list(range(20, 241, 20))


def test_the_best_round_is_the_one_with_the_best_validation_value(trained: Path) -> None:
    metrics, name = json_of(trained, "metrics.json"), "ndcg@10/full"
    assert documented("metrics.json")[0].keys() == metrics.keys()
    evaluated = {e["round"]: e["metrics"][name] for e in events_of(trained) if e["event"] == "evaluation"}
    best = max(evaluated, key=lambda number: evaluated[number])
    assert metrics["best_round"] == json_of(trained, "run.json")["best_round"] == best
    assert metrics["selected_by"] == name
    assert metrics["valid"][name] == evaluated[best]
    marked = [e["round"] for e in events_of(trained) if e.get("best")]
    running = [r for r in evaluated if evaluated[r] == max(v for k, v in evaluated.items() if k <= r)]
    assert marked == running


def test_the_best_state_is_that_of_its_round(config: MakeConfig) -> None:
    run = train(config("long", {"federation.rounds": 9, "evaluation.every": 3}))
    best = json_of(run, "metrics.json")["best_round"]
    short = train(config("short", {"federation.rounds": best, "evaluation.every": 3}))
    for name, value in load_file(short / "latest.safetensors").items():
        assert torch.equal(value, load_file(run / "best.safetensors")[name]), name


def test_training_learns_more_than_popularity(trained: Path) -> None:
    metrics = json_of(trained, "metrics.json")
    for name, value in metrics["popularity"].items():
        assert metrics["test"][name] > 1.5 * value
    rounds = [event["loss"] for event in events_of(trained) if event["event"] == "round"]
    assert np.log(2) == pytest.approx(rounds[0], abs=0.01)
    assert rounds[-1] < 0.5 * rounds[0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model.name": "ncf", "model.hidden_sizes": [8, 4]},
        {"model.name": "deepfm", "model.hidden_sizes": [8], "data.item_features": ["genre"]},
        {"federation.engine": "reference", "federation.rounds": 2},
        {"federation.ring": True},
    ],
    ids=["mf", "ncf", "deepfm+features", "reference", "ring"],
)
def test_the_same_configuration_gives_the_same_bits(
    config: MakeConfig, assert_same_run: Callable[[Path, Path], None], options: dict[str, Any]
) -> None:
    runs = [train(config(name, options)) for name in ("a", "b")]
    assert_same_run(*runs)


def test_another_seed_gives_another_run_on_the_same_split(config: MakeConfig) -> None:
    one, other = (train(config(f"run{seed}", {"seed": seed})) for seed in (1, 2))
    assert json_of(one, "run.json")["data"] == json_of(other, "run.json")["data"]
    assert json_of(one, "metrics.json")["popularity"] == json_of(other, "metrics.json")["popularity"]
    assert not torch.equal(*(load_file(run / "best.safetensors")["private"] for run in (one, other)))


def test_what_is_only_about_speed_does_not_change_the_ring_result(
    config: MakeConfig, assert_same_run: Callable[[Path, Path], None]
) -> None:
    def run(name: str, **options: Any) -> dict[str, torch.Tensor]:
        changed = {"federation.ring": True, "federation.rounds": 4, **options}
        return load_file(train(config(name, changed)) / "latest.safetensors")

    plain = run("plain")
    others: dict[str, dict[str, Any]] = {
        "blocks": {"federation.block_mib": 0.01},
        "reference": {"federation.engine": "reference"},
        "sparse": {"federation.transport": "sparse"},
        "chunks": {"evaluation.chunk_size": 3},
    }
    for name, options in others.items():
        other = run(name, **options)
        for tensor, value in plain.items():
            assert torch.equal(value, other[tensor]), (name, tensor)


def test_training_stops_when_validation_no_longer_improves(config: MakeConfig) -> None:
    options = {
        "federation.rounds": 500, "federation.server_learning_rate": 0.05, "evaluation.every": 2,
        "evaluation.patience": 3,
    }  # fmt: skip
    run = train(config("run", options))
    described = json_of(run, "run.json")
    evaluated = [event for event in events_of(run) if event["event"] == "evaluation"]
    assert described["stopped_early"] is True
    assert described["rounds_done"] < 500
    assert [event["best"] for event in evaluated[-3:]] == [False] * 3
    assert evaluated[-4]["best"] is True
    assert described["best_round"] == evaluated[-4]["round"] == described["rounds_done"] - 6
    last, best = (load_file(run / f"{part}.safetensors")["private"] for part in ("latest", "best"))
    assert not torch.equal(last, best)


def test_no_patience_means_every_round(config: MakeConfig) -> None:
    options = {"federation.server_learning_rate": 0.05, "evaluation.every": 1, "evaluation.patience": 0}
    described = json_of(train(config("run", options | {"federation.rounds": 40})), "run.json")
    assert (described["rounds_done"], described["stopped_early"]) == (40, False)


def test_no_evaluation_interval_means_one_at_the_end(config: MakeConfig) -> None:
    run = train(config("run", {"evaluation.every": 0}))
    evaluated = [event for event in events_of(run) if event["event"] == "evaluation"]
    assert [event["round"] for event in evaluated] == [12]
    assert json_of(run, "metrics.json")["best_round"] == 12


class Listener(SilentProgress):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


@pytest.mark.parametrize("objective", ["bpr", "mse"])
def test_without_validation_items_every_round_is_trained_and_the_last_kept(config: MakeConfig, objective: str) -> None:
    listener = Listener()
    options = {
        "split.ratios": [0.8, 0.0, 0.2], "evaluation.every": 1, "evaluation.patience": 2,
        "federation.objective": objective, "federation.user_learning_rate": 0.5,
        "evaluation.select_by": "rmse" if objective == "mse" else "ndcg@10",
    }  # fmt: skip
    run = train(config("run", options), progress=listener)
    described, metrics = json_of(run, "run.json"), json_of(run, "metrics.json")
    assert (described["rounds_done"], described["stopped_early"], described["best_round"]) == (12, False, 12)
    assert any("no validation items" in text for text in listener.messages)
    assert set(metrics["valid"].values()) == {None}
    assert all(value > 0 for value in metrics["test"].values())
    for name, value in load_file(run / "latest.safetensors").items():
        assert torch.equal(value, load_file(run / "best.safetensors")[name])


def test_rating_prediction_beats_the_mean_rating(config: MakeConfig) -> None:
    # with fm, whose biases these ratings are made of; mf has none
    options = {
        "federation.objective": "mse", "federation.user_learning_rate": 0.2, "federation.rounds": 60,
        "federation.clients_per_round": 0, "evaluation.select_by": "rmse", "model.name": "fm", "model.embedding_dim": 4,
    }  # fmt: skip
    run = train(config("run", options))
    metrics, made = json_of(run, "metrics.json"), load_config(run / "config.yaml")
    assert metrics["selected_by"] == "rmse"
    assert metrics["test"]["rmse"] < 0.98 * metrics["popularity"]["rmse"]
    split = make_split(load_dataset(made.data), made.split)
    assert split.train.ratings is not None
    assert split.test.ratings is not None
    spread = np.sqrt(np.mean((split.test.ratings - split.train.ratings.mean()) ** 2))
    assert metrics["popularity"]["rmse"] == pytest.approx(spread)
    evaluated = [e["metrics"]["rmse"] for e in events_of(run) if e["event"] == "evaluation"]
    assert metrics["valid"]["rmse"] == min(evaluated)


def test_bce_trains_too(config: MakeConfig) -> None:
    options = {"federation.objective": "bce", "federation.rounds": 60, "federation.clients_per_round": 0}
    metrics = json_of(train(config("run", options)), "metrics.json")
    assert metrics["test"]["ndcg@10/full"] > 1.2 * metrics["popularity"]["ndcg@10/full"]


def test_the_sampled_protocol_is_named_in_its_metrics(config: MakeConfig) -> None:
    options = {
        "evaluation.protocol": "sampled", "evaluation.sampled_negatives": 20, "split.method": "leave_one_out",
        "federation.rounds": 60, "federation.clients_per_round": 0,
    }  # fmt: skip
    metrics = json_of(train(config("run", options)), "metrics.json")
    assert metrics["selected_by"] == "ndcg@10/20neg"
    assert set(metrics["test"]) == {"ndcg@10/20neg", "hr@10/20neg"}
    # a guess puts the held-out item among the first 10 of 21 with probability 10/21
    assert metrics["test"]["hr@10/20neg"] > 10 / 21 + 4 * (0.25 / 200) ** 0.5


def test_bytes_in_the_log_are_the_transports(config: MakeConfig) -> None:
    plain, sparse = (
        [e for e in events_of(train(config(name, {"federation.transport": name}))) if e["event"] == "round"]
        for name in ("plain", "sparse")
    )
    described = json_of(Path(config("plain").output or ""), "run.json")
    for event in plain:
        assert event["bytes_up"] == event["clients"] * (28 + described["data"]["n_items"] * 8 * 4)
    for dense, by_row in zip(plain, sparse, strict=True):
        assert by_row["loss"] == dense["loss"]
        assert by_row["bytes_up"] < dense["bytes_up"]
        # n items and as many negatives each: no client here has seen more than half the catalogue
        rows = 2 * by_row["interactions"]
        assert by_row["bytes_up"] == 2 * 28 * by_row["clients"] + rows * (4 + 4 + 8 * 4)


def test_runs_without_a_name_are_numbered_below_runs(
    config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    unnamed = dataclasses.replace(config("x", {"federation.rounds": 1}), output=None)
    assert [train(unnamed) for _ in range(2)] == [Path("runs/synthetic-mf-001"), Path("runs/synthetic-mf-002")]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["runs"]


def test_the_written_configuration_makes_the_same_run_again(
    config: MakeConfig, tmp_path: Path, assert_same_run: Callable[[Path, Path], None]
) -> None:
    first = train(config("first", {"federation.ring": True}))
    again = train(load_config(first / "config.yaml", {"output": str(tmp_path / "again")}))
    (again / "config.yaml").write_bytes((first / "config.yaml").read_bytes())
    assert_same_run(first, again)


def test_the_number_of_threads_is_put_back(config: MakeConfig) -> None:
    torch.set_num_threads(2)
    try:
        train(config("run", {"federation.rounds": 1}))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"evaluation.topk": [10, 500]}, ConfigError, r"evaluation\.topk: K=500"),
        (
            {"evaluation.protocol": "sampled", "evaluation.sampled_negatives": 120},
            ConfigError,
            r"evaluation\.sampled_negatives: 120",
        ),
        ({"data.name": "no-such-set"}, DataError, "data set 'no-such-set' was not found"),
        ({"data.item_features": ["genre"]}, FedRecError, "use model.name fm or deepfm"),
        ({"model.name": "fm", "data.item_features": ["colour"]}, DataError, "colour"),
        ({"attack.attributes": ["shoe_size"]}, DataError, "no user attribute 'shoe_size'"),
        ({"data.min_user_interactions": 10_000}, DataError, "min_user_interactions"),
        ({"device": "quantum"}, ConfigError, "device: 'quantum' is not known"),
    ],
)
def test_what_cannot_work_is_told_before_anything_is_written(
    config: MakeConfig, tmp_path: Path, options: dict[str, Any], error: type[FedRecError], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        train(config("run", options))
    assert not (tmp_path / "run").exists()


def test_a_diverging_run_is_marked_and_keeps_its_last_checkpoint(config: MakeConfig) -> None:
    made = config(
        "run",
        {
            "federation.objective": "mse", "federation.user_learning_rate": 50.0,
            "federation.client_learning_rate": 50.0, "federation.local_epochs": 8, "evaluation.select_by": "rmse",
            "federation.checkpoint_every": 1, "federation.server_optimizer": "sgd",
            "federation.server_learning_rate": 1.0,
        },
    )  # fmt: skip
    with pytest.raises(FedRecError, match="diverged"):
        train(made)
    run = Path(made.output or "")
    assert json_of(run, "run.json")["status"] == "failed"
    assert all(bool(torch.isfinite(value).all()) for value in load_file(run / "latest.safetensors").values())
    assert not (run / "metrics.json").exists()


def test_a_defect_marks_the_run_as_failed(config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(training, "apply_contribution", broken)
    made = config()
    with pytest.raises(ZeroDivisionError):
        train(made)
    assert json_of(Path(made.output or ""), "run.json")["status"] == "failed"


def test_an_existing_run_is_not_overwritten(config: MakeConfig) -> None:
    run = train(config("run", {"federation.rounds": 2}))
    kept = {path.name: path.read_bytes() for path in run.iterdir()}
    with pytest.raises(RunError, match="exists and is not empty"):
        train(config("run", {"federation.rounds": 3}))
    assert {path.name: path.read_bytes() for path in run.iterdir()} == kept
