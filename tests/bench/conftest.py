"""A small study on the synthetic set, and steps that leave the files of a run without training anything."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn.bench import load_study
from fedrec_unlearn.bench.study import Study
from fedrec_unlearn.config import AttackConfig, Config, UnlearnConfig
from fedrec_unlearn.config_file import dump_config, load_config

STUDY = """\
paper: fedau2
title: A tiny study
seeds: [1, 2]
base:
  data: {name: synthetic}
  model: {embedding_dim: 4}
  federation: {rounds: 12, clients_per_round: 60, server_learning_rate: 0.01, checkpoint_every: 4, snapshot_every: 2}
  evaluation: {topk: [10], metrics: [ndcg, hr], every: 3, sampled_negatives: 30}
  attack: {attributes: [gender, age], attackers: [logistic, knn]}
utility: [ndcg@10]
surfaces:
  table: {user_embedding: all}
  ablation: {user_embedding: unlearned}
arms:
  - {name: none}
  - {method: fedau2, unlearns: [gender], epsilon: 0.1}
  - {method: leace, unlearns: [gender], from: none}
ablation: {methods: [grl], unlearns: [gender], epsilons: [0.1, 1e-0]}
targets:
  - {aim: gender hidden, arm: fedau2-gender, attribute: gender, at_most: 0.6, keeps: {ndcg@10/30neg: 0.9}}
  - {aim: age left alone, arm: fedau2-gender, attribute: age, relative_to: {arm: none, within: 0.02}}
quick: {seeds: [1], arms: [none, fedau2-gender], options: {federation.rounds: 6}}
"""


@pytest.fixture
def study_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes the study above, with texts of it replaced."""

    def write(*changes: tuple[str, str]) -> Path:
        text = STUDY
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        file = tmp_path / "tiny.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


@pytest.fixture
def study(study_file: Callable[..., Path]) -> Study:
    return load_study(study_file())


def write_run(folder: Path, config: Config, status: str = "finished", **fields: Any) -> None:
    """A run folder as docs/run-folder.md describes it, without states."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    run = {"format": 1, "status": status, "train_seconds": 2.0, **fields}
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    if status == "finished":
        (folder / "metrics.json").write_text("{}", encoding="utf-8")


@dataclass
class FakeSteps:
    """Remembers what was asked of it. Figures depend on arm and seed alone."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    fails: Mapping[str, BaseException] = field(default_factory=dict)
    """Raised when a run of that folder name is trained."""

    def train(self, config: Config) -> None:
        folder = Path(str(config.output))
        self.called("train", folder)
        unlearned = None
        if config.unlearn.method != "none":
            unlearned = {"method": config.unlearn.method, "epsilon": config.unlearn.epsilon, "seconds": 0.5}
        write_run(folder, config, unlearn=unlearned)

    def resume(self, run: Path) -> None:
        self.called("resume", run)
        write_run(run, load_config(run / "config.yaml"))

    def unlearn(self, run: Path, config: UnlearnConfig, output: Path) -> None:
        self.called("unlearn", output)
        assert json.loads((run / "run.json").read_text())["status"] == "finished"
        before = load_config(run / "config.yaml")
        from dataclasses import replace

        unlearned = {"method": config.method, "epsilon": None, "seconds": 0.25, "pooled_rows": True}
        write_run(output, replace(before, output=str(output), unlearn=config), train_seconds=None, unlearn=unlearned)

    def attack(self, run: Path, config: AttackConfig) -> Mapping[str, Any]:
        self.called("attack", run)
        assert config.seeds == (int(run.name.rpartition("-")[2]),)
        results = []
        for surface in config.surfaces:
            for attribute in config.attributes:
                results += [attacked(run.name, attribute, surface, attacker) for attacker in config.attackers]
        return {"results": results}

    def utility(self, run: Path) -> Mapping[str, float]:
        self.called("utility", run)
        return {key: 0.2 + 0.1 * share(run.name + key) for key in ("ndcg@10/full", "ndcg@10/30neg", "hr@10/full")}

    def called(self, verb: str, run: Path) -> None:
        self.calls.append((verb, run.name))
        if verb == "train" and run.name in self.fails:
            raise self.fails[run.name]

    def verbs(self, run: str) -> list[str]:
        return [verb for verb, name in self.calls if name == run]


def share(text: str) -> float:
    """A number in [0, 1) that belongs to a text."""
    return (zlib.crc32(text.encode()) % 1000) / 1000


def attacked(run: str, attribute: str, surface: str, attacker: str) -> dict[str, Any]:
    found = 0.4 + 0.4 * share(run + attribute + surface + attacker)
    classes = ["F", "M"] if attribute == "gender" else ["18-34", "35-54", "55+"]
    return {
        "attribute": attribute,
        "surface": surface,
        "attacker": attacker,
        "classes": classes,
        "counts": [40] * len(classes),
        "chance": 1 / len(classes),
        "majority": 0.5,
        **{name: {"mean": found} for name in ("balanced_accuracy", "macro_f1", "auc")},
    }


@pytest.fixture
def steps() -> FakeSteps:
    return FakeSteps()
