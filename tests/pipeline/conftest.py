"""Runs on the synthetic set that comes with the package, and ways to stop them."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from fedrec_unlearn.config import Config
from fedrec_unlearn.config_file import config_from_dict
from fedrec_unlearn.data.synthetic import packaged_files
from fedrec_unlearn.pipeline import train
from fedrec_unlearn.progress import SilentProgress

QUICK = {
    "data.name": "synthetic",
    "model.embedding_dim": 8,
    "federation.rounds": 12,
    "federation.clients_per_round": 60,
    "federation.user_learning_rate": 5.0,
    "federation.client_learning_rate": 1.0,
    "federation.l2": 0.0,
    "federation.server_learning_rate": 0.01,
    "federation.checkpoint_every": 5,
    "evaluation.topk": [10],
    "evaluation.metrics": ["ndcg", "hr"],
    "evaluation.every": 3,
}
"""A run of a tenth of a second: checkpoints after rounds 5, 10 and 12, evaluations after 3, 6, 9 and 12."""


def made_config(output: Path, options: Mapping[str, Any] | None = None) -> Config:
    nested: dict[str, Any] = {"output": str(output)}
    for name, value in {**QUICK, **(options or {})}.items():
        section, _, option = name.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[option] = value
    return config_from_dict(nested)


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Config]:
    """A quick configuration: name of the run folder, and options such as ``{"federation.rounds": 3}``."""
    return lambda name="run", options=None: made_config(tmp_path / name, options)


@pytest.fixture(scope="session")
def quick_config() -> Callable[..., Config]:
    """The same, given the run folder, for fixtures that outlive a test."""
    return made_config


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that has learnt something. Tests copy it before they change it."""
    options = {"federation.rounds": 240, "federation.clients_per_round": 0, "evaluation.every": 20}
    return train(made_config(tmp_path_factory.mktemp("trained") / "run", options))


@pytest.fixture
def own_files(tmp_path: Path) -> Path:
    """The synthetic files in a folder of the test's own, to be changed."""
    folder = tmp_path / "data" / "synthetic"
    folder.mkdir(parents=True)
    for name in ("synthetic.inter", "synthetic.user", "synthetic.item"):
        (folder / name).write_bytes((packaged_files() / name).read_bytes())
    return folder


class StopAfter(SilentProgress):
    """Presses Ctrl-C when a round is done; `times=2` presses it again at once."""

    def __init__(self, round_number: int, times: int = 1) -> None:
        self.round_number, self.times = round_number, times

    def advance(self, step: int, fields: Mapping[str, float | str]) -> None:
        if step == self.round_number:
            for _ in range(self.times):
                signal.raise_signal(signal.SIGINT)


@pytest.fixture
def stop_after() -> type[StopAfter]:
    return StopAfter


def tensors_of(run: Path) -> dict[str, torch.Tensor]:
    """All tensors of a run, of its last and of its best state."""
    return {
        f"{part}/{name}": value
        for part in ("latest", "best")
        for name, value in load_file(run / f"{part}.safetensors").items()
    }


def outcome_of(run: Path) -> dict[str, Any]:
    """What a run has to show apart from its tensors, its name and what the clock said."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    described = json.loads((run / "run.json").read_text())
    for name in ("name", "created", "train_seconds", "peak_memory_mib"):
        del described[name]
    if described["unlearn"]:
        del described["unlearn"]["seconds"]
    return {
        "events": [{key: value for key, value in event.items() if key != "seconds"} for event in events],
        "metrics": json.loads((run / "metrics.json").read_text()),
        "run": described,
    }


@pytest.fixture
def assert_same_run() -> Callable[[Path, Path], None]:
    """Checks that two finished runs are the same, bit for bit."""

    def check(one: Path, other: Path) -> None:
        assert sorted(p.name for p in one.iterdir()) == sorted(p.name for p in other.iterdir())
        assert outcome_of(one) == outcome_of(other)
        left, right = tensors_of(one), tensors_of(other)
        assert left.keys() == right.keys()
        for name, value in left.items():
            assert torch.equal(value, right[name]), name

    return check
