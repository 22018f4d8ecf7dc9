"""One transport with one seed: brought to a finished run, and its figures read from the run's own files."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

from fedrec_unlearn.bench.measure import TrainingSteps, bring_to_finish
from fedrec_unlearn.bench.secemb.study import TrainingTask
from fedrec_unlearn.errors import RunError
from fedrec_unlearn.federation.run_folder import RunFolder, read_json, write_json

_FORMAT = 1
_TRAFFIC = ("bytes_up", "bytes_down", "bytes_between", "saturated", "deferred")


def finished_training(task: TrainingTask) -> dict[str, Any] | None:
    """The row of a task that was done before with the same settings, None otherwise."""
    try:
        content = read_json(task.result)
        status = read_json(RunFolder(task.folder).run).get("status")
    except RunError:
        return None
    if content.get("format") != _FORMAT or status != "finished" or content.get("settings") != task.settings:
        return None
    row: dict[str, Any] = content["row"]
    return row | {
        "label": task.arm.label,
        "metric": task.comparison.metric,
        "value": row["test"][task.comparison.metric],
    }


def complete_training(task: TrainingTask, steps: TrainingSteps) -> dict[str, Any]:
    """Do what is left to do of a task.

    Raises:
        FedRecError: as the pipeline's verbs.
        Interrupted: Ctrl-C during training; the next call goes on with it.
    """
    before = finished_training(task)
    if before is not None:
        return before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bring_to_finish(task, steps)
        row = _row(task)
    write_json(task.result, {"format": _FORMAT, "settings": task.settings, "row": row})
    return row


def _row(task: TrainingTask) -> dict[str, Any]:
    folder = RunFolder(task.folder)
    metrics, run = read_json(folder.metrics), read_json(folder.run)
    metric = task.comparison.metric
    if metric not in metrics["test"]:
        raise RunError(f"{folder.metrics} has no {metric}")
    touched = _touched(task)
    return {
        "comparison": task.comparison.name,
        "arm": task.arm.name,
        "label": task.arm.label,
        "transport": task.config.federation.transport,
        "max_items": task.arm.max_items,
        "seed": task.seed,
        "run": str(task.folder.relative_to(task.folder.parent.parent)),
        "metric": metric,
        "value": metrics["test"][metric],
        "valid": metrics["valid"][metric],
        "test": metrics["test"],
        "best_round": metrics["best_round"],
        "rounds": run["rounds_done"],
        "seconds": run["train_seconds"],
        **_traffic(folder),
        **touched,
    }


def _traffic(folder: RunFolder) -> dict[str, float]:
    """Means per client and round over a run."""
    sums: dict[str, float] = dict.fromkeys((*_TRAFFIC, "clients"), 0)
    with folder.events.open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if event["event"] == "round":
                for name in sums:
                    sums[name] += event.get(name, 0)
    clients = sums.pop("clients")
    return {name: total / clients for name, total in sums.items()}


def _touched(task: TrainingTask) -> Mapping[str, float]:
    """How many item rows clients would touch without a limit, and which share of them a limit cuts."""
    import torch

    from fedrec_unlearn.pipeline.assembly import Assembly

    assembly = Assembly.of(task.config)
    clients, options = assembly.workload.clients, assembly.workload.config
    negatives = 0 if options.objective == "mse" else options.num_negatives
    everybody = torch.arange(clients.n_users, device=clients.device)
    touched = clients.touched(everybody, negatives).double()
    limit = task.arm.max_items or int(touched.max())
    return {
        "touched_mean": float(touched.mean()),
        "touched_p90": float(touched.quantile(0.9)),
        "touched_max": float(touched.max()),
        "cut": float((touched > limit).double().mean()),
    }
