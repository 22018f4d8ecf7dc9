"""Tasks on several processes, each with one thread; Ctrl-C stops all of them and loses nothing that was written."""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from fedrec_unlearn.errors import FedRecError

Job = TypeVar("Job")
_PATIENCE = 5.0
"""Seconds a process gets to write its checkpoint after Ctrl-C."""


@dataclass(frozen=True)
class Done(Generic[Job]):
    """How one job ended."""

    job: Job
    result: Any = None
    error: Exception | None = None
    """What went wrong; `result` is None then."""


class WorkerError(FedRecError):
    """A process ended, or raised something that is not an error of this package."""


def run_jobs(
    jobs: Sequence[Job],
    work: Callable[[Job], Any],
    processes: int,
    ready: Callable[[Job], bool],
) -> Iterator[Done[Job]]:
    """Carry out jobs, those first that come first and are ready.

    Args:
        jobs: what to do; picklable.
        work: a function at the top of a module, if `processes` is above 1.
        processes: at the same time; with 1, in this process.
        ready: whether a job's preconditions are met; asked again after each job. Jobs that never become ready are
            left out.

    Yields:
        How each job ended, in the order in which they do. An error of one does not stop the others.

    Raises:
        KeyboardInterrupt: after all processes have ended.
    """
    if processes == 1:
        yield from _in_this_process(jobs, work, ready)
        return
    waiting = list(jobs)
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, Any] = {}
    idle: list[Connection] = []
    busy: dict[Connection, Job] = {}
    try:
        while True:
            while waiting and (job := next((j for j in waiting if ready(j)), None)) is not None:
                if not idle and len(workers) < processes:
                    ours, theirs = context.Pipe()
                    process = context.Process(target=_serve, args=(theirs, work), daemon=True)
                    process.start()
                    theirs.close()
                    workers[ours] = process
                    idle.append(ours)
                if not idle:
                    break
                connection = idle.pop(0)
                connection.send(job)
                busy[connection] = job
                waiting.remove(job)
            if not busy:
                return
            answered = wait(list(busy))
            for connection in [known for known in busy if known in answered]:
                finished = busy.pop(connection)
                try:
                    result, error = connection.recv()
                    idle.append(connection)
                except EOFError:
                    process = workers.pop(connection)
                    process.join()
                    told = f"its process ended without a word (status {process.exitcode}); is memory short?"
                    result, error = None, WorkerError(told)
                yield Done(finished, result, error)
    finally:
        _stop(workers)


def _in_this_process(
    jobs: Sequence[Job], work: Callable[[Job], Any], ready: Callable[[Job], bool]
) -> Iterator[Done[Job]]:
    waiting = list(jobs)
    while waiting and (job := next((j for j in waiting if ready(j)), None)) is not None:
        waiting.remove(job)
        try:
            done = Done(job, work(job))
        except FedRecError as error:
            done = Done(job, error=error)
        yield done


def _stop(workers: dict[Connection, Any]) -> None:
    for connection in workers:
        connection.close()  # an idle process ends when its pipe does
    until = time.monotonic() + _PATIENCE
    for process in workers.values():
        process.join(max(0.0, until - time.monotonic()))
    for process in workers.values():
        if process.is_alive():
            process.terminate()
            process.join()


def _serve(connection: Connection, work: Callable[[Any], Any]) -> None:
    import torch

    torch.set_num_threads(1)
    try:
        while True:
            job = connection.recv()
            try:
                answer: tuple[Any, FedRecError | None] = (work(job), None)
            except FedRecError as error:
                answer = (None, error)
            except Exception as error:
                told = "".join(traceback.format_exception(error)).rstrip()
                answer = (None, WorkerError(f"unexpected {type(error).__name__}: {error}\n{told}"))
            connection.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        # the other side has gone, or Ctrl-C: what is worth keeping has been written
        signal.signal(signal.SIGINT, signal.SIG_IGN)
