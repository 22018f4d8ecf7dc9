"""One arm with one seed: brought to a finished run, judged, attacked, and written down.

Whatever is there already and fits is used: a finished run is not trained again, an interrupted one is resumed, one that
was stopped before it could be resumed or belongs to another configuration is replaced.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fedrec_unlearn.bench.study import Task
from fedrec_unlearn.config import AttackConfig, Config, UnlearnConfig
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.errors import RunError
from fedrec_unlearn.federation.run_folder import RunFolder, read_json, write_error, write_json
from fedrec_unlearn.progress import SilentProgress

_FORMAT = 1


class RunTask(Protocol):
    """A run that some study needs."""

    @property
    def folder(self) -> Path:
        """The run folder."""
        ...

    @property
    def result(self) -> Path:
        """The file for what is measured of it."""
        ...

    @property
    def source(self) -> Path | None:
        """The run it starts from."""
        ...

    @property
    def origin(self) -> Mapping[str, Any]:
        """What the run depends on, in plain values."""
        ...

    @property
    def config(self) -> Config:
        """Of the run."""
        ...


class TrainingSteps(Protocol):
    """What a study asks of the pipeline for a run."""

    def train(self, config: Config) -> None:
        """Train into `config.output`."""
        ...

    def resume(self, run: Path) -> None:
        """Go on with an interrupted run."""
        ...

    def unlearn(self, run: Path, config: UnlearnConfig, output: Path) -> None:
        """Unlearn from a trained run into a new one."""
        ...


class Steps(TrainingSteps, Protocol):
    """What a study of attacks asks of the pipeline."""

    def attack(self, run: Path, config: AttackConfig) -> Mapping[str, Any]:
        """The content of attack.json."""
        ...

    def utility(self, run: Path) -> Mapping[str, float]:
        """Ranking metrics on test items under both protocols."""
        ...


class PipelineSteps:
    """The steps as `fedrec_unlearn.pipeline` takes them."""

    def train(self, config: Config) -> None:
        """See `fedrec_unlearn.pipeline.train`."""
        from fedrec_unlearn import pipeline

        pipeline.train(config, progress=SilentProgress())

    def resume(self, run: Path) -> None:
        """See `fedrec_unlearn.pipeline.resume`."""
        from fedrec_unlearn import pipeline

        pipeline.resume(run, progress=SilentProgress())

    def unlearn(self, run: Path, config: UnlearnConfig, output: Path) -> None:
        """See `fedrec_unlearn.pipeline.unlearn`."""
        from fedrec_unlearn import pipeline

        pipeline.unlearn(run, config, output=output, progress=SilentProgress())

    def attack(self, run: Path, config: AttackConfig) -> Mapping[str, Any]:
        """See `fedrec_unlearn.pipeline.attack`."""
        from fedrec_unlearn import pipeline

        return pipeline.attack(run, config, progress=SilentProgress())

    def utility(self, run: Path) -> Mapping[str, float]:
        """See `utility`."""
        return utility(run)


def utility(run: Path) -> dict[str, float]:
    """Ranking metrics of a run's result on its test items, under full ranking and among sampled negatives.

    Args:
        run: a finished run folder.

    Returns:
        Every metric of the run's `evaluation.metrics` and `topk`, named ``ndcg@10/full`` and ``ndcg@10/99neg``.

    Raises:
        RunError: not a run folder, or its data has changed.
        ConfigError: a user has too few items left to sample from.
    """
    from fedrec_unlearn.federation.evaluation import Evaluator
    from fedrec_unlearn.pipeline.assembly import reopen, torch_threads, trained_state

    config = load_config(RunFolder(Path(run)).config)
    with torch_threads(config):
        folder, assembly = reopen(Path(run))
        state, _ = trained_state(folder, assembly)
        found: dict[str, float] = {}
        for protocol in ("full", "sampled"):
            options = replace(assembly.config.evaluation, protocol=protocol)
            judged = replace(assembly.config, evaluation=options)
            work = assembly.workload
            evaluator = Evaluator(work.model, assembly.split, judged, assembly.device, work.features)
            found |= evaluator.evaluate(state, "test")
    return found


@dataclass(frozen=True)
class Result:
    """What was measured of one arm with one seed."""

    row: dict[str, Any]
    """An entry of `rows` in bench.json."""
    attributes: dict[str, Any]
    """Classes and counts of each attribute attacked."""
    warnings: tuple[str, ...] = ()
    """What the pipeline warned of; not kept."""


def finished_result(task: Task) -> Result | None:
    """The result of a task that was done before with the same settings, None otherwise."""
    try:
        content = read_json(task.result)
        status = read_json(RunFolder(task.folder).run).get("status")
    except RunError:
        return None
    if content.get("format") != _FORMAT or status != "finished" or content.get("settings") != task.settings:
        return None
    # what tables call it is no part of the result
    return Result(content["row"] | {"label": task.arm.label, "group": task.arm.group}, content["attributes"])


def complete(task: Task, steps: Steps) -> Result:
    """Do what is left to do of a task.

    Raises:
        FedRecError: as the pipeline's verbs.
        Interrupted: Ctrl-C during training; the next call goes on with it.
    """
    before = finished_result(task)
    if before is not None:
        return before
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bring_to_finish(task, steps)
        metrics = dict(steps.utility(task.folder))
        results: list[Mapping[str, Any]] = []
        for surfaces, attributes in task.attacks():
            # one seed of folds and attackers for each training seed: the spread over seeds is that of both
            options = replace(task.config.attack, surfaces=surfaces, attributes=attributes, seeds=(task.seed,), jobs=1)
            results += steps.attack(task.folder, options)["results"]
    surfaces_in_order = list(task.arm.surfaces)
    known = task.config.attack.attributes
    results.sort(key=lambda found: (surfaces_in_order.index(found["surface"]), known.index(found["attribute"])))
    row = _row(task, metrics, results)
    attributes_found = {
        found["attribute"]: {name: found[name] for name in ("classes", "counts", "chance", "majority")}
        for found in results
    }
    content = {
        "format": _FORMAT, "settings": task.settings, "row": row, "attributes": attributes_found,
    }  # fmt: skip
    write_json(task.result, content)
    return Result(row, attributes_found, tuple(dict.fromkeys(str(warning.message) for warning in caught)))


def _row(task: Task, metrics: Mapping[str, float], results: list[Mapping[str, Any]]) -> dict[str, Any]:
    run = read_json(RunFolder(task.folder).run)
    unlearned = run.get("unlearn") or {}
    options = task.config.unlearn
    epsilon = unlearned.get("epsilon") or options.epsilon
    return {
        "arm": task.arm.name,
        "label": task.arm.label,
        "group": task.arm.group,
        "unlearns": list(options.attributes),
        "method": options.method,
        "epsilon": epsilon if options.adversarial else None,
        "seed": task.seed,
        "run": str(task.folder.relative_to(task.folder.parent.parent)),
        "pooled_rows": bool(unlearned.get("pooled_rows", False)),
        "metrics": dict(metrics),
        "seconds": (run.get("train_seconds") or 0.0) + (unlearned.get("seconds") or 0.0),
        "attack": [
            {
                **{name: found[name] for name in ("attribute", "surface", "attacker")},
                **{name: found[name]["mean"] for name in ("balanced_accuracy", "macro_f1", "auc")},
                **{name: found[name] for name in ("chance", "majority")},
            }
            for found in results
        ],
    }


def bring_to_finish(task: RunTask, steps: TrainingSteps) -> None:
    """Train what is left to train of a run.

    Raises:
        FedRecError: as the pipeline's verbs.
        Interrupted: Ctrl-C during training; the next call goes on with it.
    """
    for parent in (task.folder.parent, task.result.parent):
        try:
            parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(parent, error) from error
    standing = run_standing(task)
    if standing == "finished":
        return
    if standing == "interrupted":
        try:
            steps.resume(task.folder)
            return
        except RunError:
            standing = "useless"  # its checkpoint is missing or damaged; the run is short, so it starts again
    if standing == "useless":
        _remove(task.folder)
    write_json(_origin_file(task), task.origin)
    if task.source is None:
        steps.train(task.config)
    else:
        steps.unlearn(task.source, task.config.unlearn, task.folder)


def run_standing(task: RunTask) -> str:
    """What a task's run folder holds.

    Returns:
        ``absent``; ``finished``; ``interrupted``: worth resuming; ``useless``: half-made, failed, or of another
        configuration, to be replaced.
    """
    folder = RunFolder(task.folder)
    if not task.folder.exists():
        return "absent"
    try:
        status = read_json(folder.run).get("status")
        origin = read_json(_origin_file(task))
    except RunError:
        return "useless"
    if origin != task.origin:
        return "useless"
    if status == "finished":
        return "finished" if folder.metrics.is_file() else "useless"
    # a step after training takes seconds, and there is nothing of it to resume
    resumable = task.source is None or task.config.unlearn.adversarial
    return "interrupted" if status in ("running", "interrupted") and resumable else "useless"


def _origin_file(task: RunTask) -> Path:
    """What a run was started from, written before it: its own configuration does not tell all of it."""
    return task.result.with_suffix(".origin.json")


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise write_error(folder, error) from error
