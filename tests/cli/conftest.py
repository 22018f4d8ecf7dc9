"""A pipeline that does no work but writes what a run folder holds, so that the command line is tested alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fedrec_unlearn
from fedrec_unlearn.cli import main
from fedrec_unlearn.config import AttackConfig, Config, UnlearnConfig
from fedrec_unlearn.config_file import dump_config
from fedrec_unlearn.progress import Progress

METRICS = {
    "best_round": 450,
    "selected_by": "ndcg@10/full",
    "valid": {"ndcg@10/full": 0.2412, "recall@10/full": 0.25},
    "test": {"ndcg@10/full": 0.2901, "recall@10/full": 0.2402},
    "popularity": {"ndcg@10/full": 0.1607},
}


def attack_result(attribute: str, attacker: str, accuracy: float) -> dict[str, Any]:
    estimate = {"mean": accuracy, "std": 0.01, "low": accuracy - 0.02, "high": accuracy + 0.02, "per_seed": [accuracy]}
    return {
        "attribute": attribute,
        "surface": "user_embedding",
        "attacker": attacker,
        "classes": ["F", "M"],
        "counts": [273, 670],
        "n_users": 943,
        "n_missing": 0,
        "chance": 0.5,
        "majority": 0.711,
        "balanced_accuracy": estimate,
        "macro_f1": {},
        "auc": {},
        "accuracy": {},
        "parameters": {},
    }


ATTACK = {
    "format": 1,
    "created": "2026-01-31T12:00:00+00:00",
    "seconds": 41.0,
    "config": {"folds": 5, "inner_folds": 3, "seeds": [0]},
    "results": [attack_result("gender", "logistic", 0.68), attack_result("gender", "knn", 0.61)],
}


SWEEP = {
    "select_by": "ndcg@10/full",
    "points": [
        {"epsilon": 0.0, "valid": 0.3, "worst": {"gender": 0.18}},
        {"epsilon": 0.1, "valid": 0.29, "worst": {"gender": 0.03}},
    ],
    "chosen": 0.1,
    "reason": "0.1 is read least",
}


def write_run(folder: Path, config: Config | None = None, *, attacked: bool = True) -> Path:
    """A finished run folder as docs/run-folder.md describes it, without the states."""
    folder.mkdir(parents=True)
    run = {"format": 1, "status": "finished", "name": folder.name, "version": "0.1.0", "rounds_done": 600}
    (folder / "config.yaml").write_text(dump_config(config or Config()), encoding="utf-8")
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    (folder / "metrics.json").write_text(json.dumps(METRICS), encoding="utf-8")
    if attacked:
        (folder / "attack.json").write_text(json.dumps(ATTACK), encoding="utf-8")
    return folder


@dataclass
class RunResult:
    run: Path
    report: Path


@dataclass
class Recorder:
    """What the verbs asked of the pipeline."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    error: BaseException | None = None
    """Raised by whatever is called next."""

    def called(self, *call: Any) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    """Stands in for `fedrec_unlearn.pipeline`, in a working folder of its own."""
    recorder = Recorder()
    module = ModuleType("fedrec_unlearn.pipeline")

    def train(config: Config, *, progress: Progress | None = None) -> Path:
        recorder.called("train", config)
        assert progress is not None
        progress.start("training", 2, "round")
        progress.advance(2, {"loss": 0.5})
        progress.finish()
        return write_run(Path(config.output or "runs/new"), config, attacked=False)

    def resume(run: Path, *, progress: Progress | None = None) -> Path:
        recorder.called("resume", run)
        return run

    def attack(
        run: Path, config: AttackConfig | None = None, *, before: bool = False, progress: Progress | None = None
    ) -> dict[str, Any]:
        recorder.called("attack", run, config, *(["before"] if before else []))
        (run / "attack.json").write_text(json.dumps(ATTACK), encoding="utf-8")
        return ATTACK

    def report(runs: Sequence[Path], output: Path | None = None) -> Path:
        recorder.called("report", list(runs), output)
        return (output or runs[0]) / "report.html"

    def export(run: Path, output: Path, *, part: str = "best") -> Path:
        recorder.called("export", run, output, part)
        return output

    def unlearn(
        run: Path,
        config: UnlearnConfig,
        *,
        output: Path | None = None,
        seed: int | None = None,
        progress: Progress | None = None,
    ) -> Path:
        recorder.called("unlearn", run, config, output, seed)
        folder = write_run(output or Path("runs/unlearned"), attacked=False)
        (folder / "before.safetensors").write_bytes(b"")
        return folder

    def sweep(
        config: Config, output: Path, *, source: Path | None = None, progress: Progress | None = None
    ) -> dict[str, Any]:
        recorder.called("sweep", config, output, source)
        return SWEEP

    def sweep_page(content: dict[str, Any], output: Path) -> Path:
        recorder.called("sweep_page", content, output)
        return output / "sweep.html"

    def run(config: Config, *, progress: Progress | None = None) -> RunResult:
        recorder.called("run", config)
        folder = write_run(Path(config.output or "runs/new"), config)
        return RunResult(folder, folder / "report.html")

    for function in (train, resume, attack, report, export, unlearn, sweep, sweep_page, run):
        setattr(module, function.__name__, function)
    monkeypatch.setitem(sys.modules, "fedrec_unlearn.pipeline", module)
    monkeypatch.setattr(fedrec_unlearn, "pipeline", module, raising=False)
    monkeypatch.chdir(tmp_path)
    return recorder


@dataclass
class Outcome:
    status: int
    out: str
    err: str


@pytest.fixture
def fedrec(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command line in this process."""

    def run(*words: str) -> Outcome:
        capsys.readouterr()
        status = main(list(words))
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


@pytest.fixture
def run_folder(tmp_path: Path) -> Any:
    """Makes finished run folders under the working folder of `pipeline`."""
    return lambda name, **options: write_run(tmp_path / name, **options)
