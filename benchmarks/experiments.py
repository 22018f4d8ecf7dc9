"""Whole runs of `fedrec train`, each in a process of its own, and what their folders say."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrec_unlearn.config import Config
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.errors import RunError

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
"""The configurations of the repository."""


@dataclass(frozen=True)
class Finished:
    """A finished run."""

    config: Config
    run: dict[str, Any]
    """run.json."""
    metrics: dict[str, Any]
    """metrics.json."""
    round_seconds: float
    """Median wall seconds of a round, server step included."""
    evaluation_seconds: float
    """Median wall seconds of an evaluation on validation data."""
    cpu_seconds: float
    """User and system time of the whole process."""

    def test(self, metric: str) -> float:
        """A test metric by its bare name (``ndcg@10``)."""
        return _by_name(self.metrics["test"], metric)

    def popularity(self, metric: str) -> float:
        """The same metric of the popularity baseline."""
        return _by_name(self.metrics["popularity"], metric)


def _by_name(values: Mapping[str, float], metric: str) -> float:
    return next(value for name, value in values.items() if name.partition("/")[0] == metric)


def train(config: str, output: Path, data_dir: Path | None, overrides: Mapping[str, object] | None = None) -> Finished:
    """Run ``fedrec train configs/<config>.yaml`` on one thread and read its folder.

    This process should be small: on Linux a child's peak memory starts at what its parent held.

    Args:
        config: name of a file of `CONFIGS` without its ending.
        output: run folder, new.
        data_dir: where the data is, or None for what the configuration and the environment say.
        overrides: further options by dotted name.

    Raises:
        RunError: the command failed; its last words are quoted.
    """
    path = CONFIGS / f"{config}.yaml"
    options = {"output": str(output), **(overrides or {})}
    if data_dir is not None:
        options["data.dir"] = str(data_dir)
    command = [sys.executable, "-m", "fedrec_unlearn", "train", str(path), "--quiet"]
    command += [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    before = os.times()
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    after = os.times()
    if ended.returncode:
        raise RunError(f"fedrec train {path.name} ended with status {ended.returncode}: {ended.stderr.strip()[-3000:]}")
    events = [json.loads(line) for line in (output / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    seconds = {
        kind: [event["seconds"] for event in events if event["event"] == kind] for kind in ("round", "evaluation")
    }
    return Finished(
        load_config(output / "config.yaml"),
        json.loads((output / "run.json").read_text(encoding="utf-8")),
        json.loads((output / "metrics.json").read_text(encoding="utf-8")),
        statistics.median(seconds["round"]),
        statistics.median(seconds["evaluation"] or [float("nan")]),
        after.children_user + after.children_system - before.children_user - before.children_system,
    )
