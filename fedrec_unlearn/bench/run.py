"""`run_study`: all runs of a study, then its files. What is done already is not done again."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fedrec_unlearn.bench.inversion import InversionTask, finished_inversion, inversion_tasks, invert
from fedrec_unlearn.bench.measure import PipelineSteps, Result, Steps, complete, finished_result
from fedrec_unlearn.bench.pool import run_jobs
from fedrec_unlearn.bench.secemb.study import TransportStudy
from fedrec_unlearn.bench.study import Study, Task, tasks_of
from fedrec_unlearn.bench.study_folder import study_folder
from fedrec_unlearn.bench.summary import summarise
from fedrec_unlearn.bench.tables import rows_csv, study_tables, summary_csv
from fedrec_unlearn.bench.targets import judge
from fedrec_unlearn.errors import ConfigError, DependencyError, RunError
from fedrec_unlearn.federation.run_folder import write_atomic, write_json
from fedrec_unlearn.progress import Progress, SilentProgress


class Job(Protocol):
    """One piece of a study's work."""

    @property
    def name(self) -> str:
        """For progress."""
        ...


AnyJob = TypeVar("AnyJob", bound=Job)


def run_study(
    study: Study | TransportStudy,
    output: Path,
    *,
    jobs: int = 1,
    progress: Progress | None = None,
    steps: Steps | None = None,
) -> Path:
    """Carry out a study.

    Args:
        study: what to do.
        output: folder in which a folder of the study's name is made, or gone on with.
        jobs: runs at the same time, each in a process of its own with one thread. Results do not depend on it.
        progress: told of every run.
        steps: what trains and attacks, the pipeline if not given; anything else needs `jobs` 1.

    Returns:
        The study's folder: bench.json, bench.csv, summary.csv, table.md, and for a study of attacks study.html and
        charts, beside its runs.

    Raises:
        KeyboardInterrupt: Ctrl-C; the same call goes on with it.
        RunError: a run failed (the others are finished first), or the folder cannot be written or is in use.
        DataError: the data is not there, or lacks an attribute.
    """
    if jobs < 1:
        raise ConfigError(f"jobs: must be at least 1, not {jobs}")
    progress = progress or SilentProgress()
    with study_folder(output, study.folder_name) as folder:
        if isinstance(study, TransportStudy):
            from fedrec_unlearn.bench.secemb.run import carry_out_transports

            carry_out_transports(study, folder, jobs, progress, steps or PipelineSteps(), check=steps is None)
            return folder
        tasks = tasks_of(study, folder)
        attacks = inversion_tasks(study, tasks, folder)
        results, inverted = _carry_out(study, tasks, attacks, jobs, progress, steps)
        content = study_content(study, [results[task.name] for task in tasks], [r for found in inverted for r in found])
        _write(folder, content, progress)
    return folder


def check_data(study: Study | TransportStudy) -> None:
    """See that the study's data is there and has its attributes.

    Raises:
        DataError: it is not, or has not.
    """
    from fedrec_unlearn.data import load_dataset

    load_dataset(study.base.data, study.attributes)


def study_content(study: Study, results: Sequence[Result], inversion: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What bench.json holds.

    Args:
        study: the study.
        results: of all its arms and seeds.
        inversion: of its attacks on gradients.
    """
    rows = [result.row for result in results]
    summary = summarise(study, rows)
    attributes: dict[str, Any] = {}
    for result in results:
        for name, facts in result.attributes.items():
            attributes.setdefault(name, facts)
    return {
        "format": 1,
        "paper": study.paper,
        "study": study.name,
        "title": study.title,
        "quick": study.quick,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seeds": list(study.seeds),
        "utility": list(study.utility_keys),
        "baseline": study.baseline,
        "attributes": attributes,
        "rows": rows,
        "summary": summary,
        "inversion": list(inversion),
        "targets": judge(study, summary, inversion),
    }


class _Worker:
    """What a process does with a task; picklable, as long as its steps are."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps

    def __call__(self, task: Task | InversionTask) -> Any:
        return invert(task) if isinstance(task, InversionTask) else complete(task, self.steps)


def _carry_out(
    study: Study,
    tasks: Sequence[Task],
    attacks: Sequence[InversionTask],
    jobs: int,
    progress: Progress,
    steps: Steps | None,
) -> tuple[dict[str, Result], list[list[dict[str, Any]]]]:
    results: dict[str, Result] = {}
    inverted: dict[int, list[dict[str, Any]]] = {}
    finished: set[tuple[str, int]] = set()
    for task in tasks:
        before = finished_result(task)
        if before is not None:
            results[task.name] = before
            finished.add((task.arm.name, task.seed))
    for attack in attacks:
        found = finished_inversion(attack)
        if found is not None:
            inverted[attack.number] = found
    left: list[Task | InversionTask] = [task for task in tasks if task.name not in results]
    left += [attack for attack in attacks if attack.number not in inverted]
    if not left:
        progress.message(f"{study.folder_name}: all {len(tasks)} runs are done")
        return results, [inverted[attack.number] for attack in attacks]
    if steps is None:
        check_data(study)

    def ready(job: Task | InversionTask) -> bool:
        if isinstance(job, InversionTask):
            return finished.issuperset(job.needs)
        return job.arm.source is None or (job.arm.source, job.seed) in finished

    total = len(tasks) + len(attacks)
    done_before = total - len(left)
    if done_before:
        progress.message(f"{study.folder_name}: {done_before} of {total} are done already")

    def settled(job: Task | InversionTask, result: Any) -> tuple[Mapping[str, float | str], Sequence[str]]:
        if isinstance(job, InversionTask):
            inverted[job.number] = result
            return {"last": job.name}, ()
        results[job.name] = result
        finished.add((job.arm.name, job.seed))
        return _figures(study, result.row), result.warnings

    title = study.title + (", quick" if study.quick else "")
    carry_out(title, left, done_before, _Worker(steps or PipelineSteps()), jobs, ready, settled, progress)
    return results, [inverted[attack.number] for attack in attacks]


def carry_out(
    title: str,
    left: Sequence[AnyJob],
    done_before: int,
    work: Callable[[AnyJob], Any],
    processes: int,
    ready: Callable[[AnyJob], bool],
    settled: Callable[[AnyJob, Any], tuple[Mapping[str, float | str], Sequence[str]]],
    progress: Progress,
) -> None:
    """Do a study's work, telling of it.

    Args:
        title: of the study.
        left: what is to be done.
        done_before: how much more is done already.
        work, processes, ready: as for `pool.run_jobs`.
        settled: told of each result; returns figures worth showing and warnings.
        progress: told of every piece.

    Raises:
        KeyboardInterrupt: Ctrl-C; what was settled is kept.
        RunError: some failed; the others were done first.
    """
    total = len(left) + done_before
    settled_jobs: set[str] = set()
    errors: dict[str, Exception] = {}
    warned: set[str] = set()
    progress.start(title, total, "run")
    try:
        progress.advance(done_before, {})
        for number, done in enumerate(run_jobs(left, work, processes, ready), done_before + 1):
            job = done.job
            if done.error is not None:
                errors[job.name] = done.error
                progress.message(f"{job.name} failed: {done.error}")
                progress.advance(number, {"last": f"{job.name} failed"})
                continue
            figures, warnings = settled(job, done.result)
            settled_jobs.add(job.name)
            for text in warnings:
                if text not in warned:
                    warned.add(text)
                    progress.message(f"warning: {text}")
            progress.advance(number, figures)
    except KeyboardInterrupt:
        kept = len(settled_jobs) + done_before
        progress.message(f"{kept} of {total} runs are done and kept; the same command goes on from here")
        # the hint of an `Interrupted` is how to resume a single run
        raise KeyboardInterrupt from None
    finally:
        progress.finish()
    if errors:
        waiting = [job.name for job in left if job.name not in settled_jobs and job.name not in errors]
        raise RunError(_told(errors, waiting))


def _figures(study: Study, row: Mapping[str, Any]) -> dict[str, float | str]:
    """What is worth showing of a run: a metric, and what attackers read of each attribute at most."""
    metric = study.utility_keys[0]
    shown: dict[str, float | str] = {"last": f"{row['arm']}-{row['seed']}", metric: row["metrics"][metric]}
    worst: dict[str, tuple[float, float]] = {}
    for found in row["attack"]:
        distance = abs(found["balanced_accuracy"] - found["chance"])
        worst[found["attribute"]] = max(
            worst.get(found["attribute"], (-1.0, 0.0)), (distance, found["balanced_accuracy"])
        )
    return shown | {attribute: accuracy for attribute, (_, accuracy) in worst.items()}


def _told(errors: Mapping[str, Exception], waiting: Sequence[str]) -> str:
    lines = [f"{len(errors)} of the study's runs failed, so there are no tables:"]
    lines += [f"  {name}: {str(error).splitlines()[0]}" for name, error in errors.items()]
    if waiting:
        lines.append(f"  not started, for they need one of these: {', '.join(waiting)}")
    return "\n".join([*lines, "The others are done and kept; run the same command again for these."])


def _write(folder: Path, content: dict[str, Any], progress: Progress) -> None:
    tables = study_tables(content)
    head = f"## {content['title']}\n\n"
    if content["quick"]:
        head += "A quick run: fewer seeds, arms and rounds than the study has. Its figures are not the study's.\n\n"
    write_atomic(folder / "bench.csv", rows_csv(content).encode())
    write_atomic(folder / "summary.csv", summary_csv(content).encode())
    write_atomic(folder / "table.md", (head + "\n".join(table.markdown() for table in tables)).encode())
    write_json(folder / "bench.json", content)
    from fedrec_unlearn.report import write_study

    try:
        write_study(content, folder)
    except DependencyError as error:
        progress.message(f"no page and no charts: {error}")
