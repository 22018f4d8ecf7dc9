"""All of a study of transports: costs one after the other, then the trainings, then its files."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedrec_unlearn.bench.measure import TrainingSteps
from fedrec_unlearn.bench.run import carry_out, check_data
from fedrec_unlearn.bench.secemb.costs import (
    CostTask,
    complete_cost,
    cost_targets,
    cost_tasks,
    costs_content,
    finished_cost,
    possible,
)
from fedrec_unlearn.bench.secemb.measure import complete_training, finished_training
from fedrec_unlearn.bench.secemb.study import TrainingTask, TransportStudy, training_tasks
from fedrec_unlearn.bench.secemb.summary import summarise
from fedrec_unlearn.bench.secemb.tables import costs_csv, rows_csv, summary_csv, transport_tables
from fedrec_unlearn.federation.run_folder import write_atomic, write_json
from fedrec_unlearn.progress import Progress


class _Trainer:
    """What a process does with a task; picklable, as long as its steps are."""

    def __init__(self, steps: TrainingSteps) -> None:
        self.steps = steps

    def __call__(self, task: TrainingTask) -> dict[str, Any]:
        return complete_training(task, self.steps)


def carry_out_transports(
    study: TransportStudy, folder: Path, jobs: int, progress: Progress, steps: TrainingSteps, *, check: bool
) -> None:
    """Do what is left to do of a study and write its files.

    Args:
        study: what to do.
        folder: of the study, for this process alone.
        jobs: trainings at the same time. Costs are always measured one by one.
        progress: told of every measurement and run.
        steps: what trains.
        check: whether to see first that the data is there.

    Raises:
        KeyboardInterrupt: Ctrl-C; the same call goes on with it.
        RunError: something failed; the others are finished first.
        DataError: the data is not there.
    """
    study = replace(study, costs=possible(study.costs, progress.message))
    costs, trainings = cost_tasks(study.costs, folder), training_tasks(study, folder)
    measured = {task.name: found for task in costs if (found := finished_cost(task)) is not None}
    rows = {task.name: found for task in trainings if (found := finished_training(task)) is not None}
    total, done = len(costs) + len(trainings), len(measured) + len(rows)
    if done == total:
        progress.message(f"{study.folder_name}: all {len(costs)} measurements and {len(trainings)} runs are done")
    elif done:
        progress.message(f"{study.folder_name}: {done} of {total} are done already")
    short = ", quick" if study.quick else ""
    if check and len(rows) < len(trainings):
        check_data(study)

    def cost_settled(task: CostTask, found: Mapping[str, Any]) -> tuple[Mapping[str, float | str], Sequence[str]]:
        measured[task.name] = dict(found)
        return {"last": task.name}, ()

    def training_settled(task: TrainingTask, row: Mapping[str, Any]) -> tuple[Mapping[str, float | str], Sequence[str]]:
        rows[task.name] = dict(row)
        return {"last": task.name, row["metric"]: row["value"]}, ()

    left = [task for task in costs if task.name not in measured]
    if left:
        title = f"{study.title}: costs{short}"
        carry_out(title, left, len(costs) - len(left), complete_cost, 1, lambda _: True, cost_settled, progress)
    waiting = [task for task in trainings if task.name not in rows]
    if waiting:
        title, before = f"{study.title}: trainings{short}", len(trainings) - len(waiting)
        carry_out(title, waiting, before, _Trainer(steps), jobs, lambda _: True, training_settled, progress)
    write(folder, study_content(study, costs, [measured[t.name] for t in costs], [rows[t.name] for t in trainings]))


def study_content(
    study: TransportStudy, costs: Sequence[CostTask], measured: Sequence[Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What bench.json holds.

    Args:
        study: the study.
        costs: its measurements.
        measured: figures of each of them.
        rows: of all its runs.
    """
    found = costs_content(study.costs, costs, measured)
    return {
        "format": 1,
        "kind": "transports",
        "paper": study.paper,
        "study": study.name,
        "title": study.title,
        "quick": study.quick,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seeds": list(study.seeds),
        **found,
        "comparisons": [
            {"name": c.name, "title": c.title, "metric": c.metric, "sweeps": c.sweeps} for c in study.comparisons
        ],
        "rows": list(rows),
        "summary": summarise(study, rows),
        "targets": cost_targets(found),
    }


def write(folder: Path, content: Mapping[str, Any]) -> None:
    """Write a study's files.

    Raises:
        RunError: the folder cannot be written.
    """
    head = f"## {content['title']}\n\n"
    if content["quick"]:
        head += "A quick run: fewer sizes, seeds and rounds than the study has. Its figures are not the study's.\n\n"
    write_atomic(folder / "bench.csv", rows_csv(content).encode())
    write_atomic(folder / "summary.csv", summary_csv(content).encode())
    write_atomic(folder / "costs.csv", costs_csv(content).encode())
    write_atomic(folder / "table.md", (head + "\n".join(t.markdown() for t in transport_tables(content))).encode())
    write_json(folder / "bench.json", content)
