from __future__ import annotations

import math
import operator
import os

import pytest

from fedrec_unlearn.bench.pool import WorkerError, run_jobs
from fedrec_unlearn.errors import DataError


def always(job: object) -> bool:
    return True


@pytest.mark.parametrize("processes", [1, 2])
def test_every_job_is_done(processes: int) -> None:
    done = list(run_jobs([1, 4, 9], math.sqrt, processes, always))
    assert sorted((d.job, d.result) for d in done) == [(1, 1.0), (4, 2.0), (9, 3.0)]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_job_waits_for_what_it_needs(processes: int) -> None:
    finished: list[int] = []
    jobs = [9, 4, 1, 25]
    needs = {9: 4, 4: 1, 25: 16}
    for done in run_jobs(jobs, math.sqrt, processes, lambda job: job not in needs or needs[job] in finished):
        finished.append(done.job)
    # 25 needs a job that is not there
    assert finished == [1, 4, 9]


def test_an_error_of_this_package_does_not_stop_the_others() -> None:
    def work(job: int) -> int:
        if job == 2:
            raise DataError("no such thing")
        return job

    done = {d.job: d for d in run_jobs([1, 2, 3], work, 1, always)}
    assert isinstance(done[2].error, DataError)
    assert (done[1].result, done[3].result) == (1, 3)


def test_an_unexpected_error_of_a_process_is_told_with_its_traceback() -> None:
    done = {d.job: d for d in run_jobs([4, -1], math.sqrt, 2, always)}
    assert done[4].result == 2.0
    assert isinstance(done[-1].error, WorkerError)
    assert "unexpected ValueError" in str(done[-1].error)
    assert "Traceback" in str(done[-1].error)


def test_a_process_that_dies_is_told_and_the_others_go_on() -> None:
    done = {d.job: d for d in run_jobs([7, 8], os._exit, 2, always)}
    assert {str(d.error) for d in done.values()} == {
        f"its process ended without a word (status {status}); is memory short?" for status in (7, 8)
    }


def test_processes_end_when_the_reader_stops() -> None:
    import multiprocessing

    others = set(multiprocessing.active_children())  # of tests before
    jobs = run_jobs([1, 2, 3, 4], operator.neg, 2, always)
    next(jobs)
    own = set(multiprocessing.active_children()) - others
    assert own
    jobs.close()  # type: ignore[attr-defined]
    assert not own & set(multiprocessing.active_children())
