"""The worker between the event loop and a server's round."""

from __future__ import annotations

import asyncio

import pytest

from fedrec_unlearn.serving.identity import sealing_key
from fedrec_unlearn.serving.keeper import Keeper
from fedrec_unlearn.serving.log_file import LogFile
from fedrec_unlearn.serving.receipt import Receipt
from fedrec_unlearn.serving.spool import Spool
from fedrec_unlearn.serving.worker import Worker


@pytest.fixture
def keeper(certs, tmp_path):
    key = sealing_key(certs, 0)
    spool = Spool(tmp_path / "spool", 0, key.public_key().public_bytes_raw())
    yield Keeper(0, key, spool)
    spool.release()


def _opening(trial):
    return trial.round.to_bytes(), trial.table.astype("<i8").tobytes()


async def _together(worker, *asked):
    """Ask for everything before the worker begins, so that it is one batch."""
    tasks = [asyncio.ensure_future(each) for each in asked]
    await asyncio.sleep(0)
    running = asyncio.create_task(worker.run())
    try:
        return await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        running.cancel()
        worker.stop()


def test_messages_that_wait_together_are_written_together(keeper, new_trial, monkeypatch):
    trial, writes = new_trial(20), []
    keeper.open(*_opening(trial))
    real = LogFile.append
    monkeypatch.setattr(LogFile, "append", lambda self, records: (writes.append(len(records)), real(self, records)))
    worker = Worker(keeper, lambda *_: None)
    outcomes = asyncio.run(_together(worker, *(worker.receive([zero]) for zero, _ in trial.requests())))
    assert writes == [20]
    assert [outcome.key[1] for (outcome,) in outcomes] == [client.client_id for client in trial.clients]


def test_what_was_received_in_a_round_that_ended_in_the_same_batch_is_not_forwarded(keeper, new_trial):
    trial, later = new_trial(2, 1), new_trial(2, 2)
    keeper.open(*_opening(trial))
    forwarded = []
    worker = Worker(keeper, lambda *given: forwarded.append(given))
    (zero, _), _ = trial.requests()
    outcomes = asyncio.run(_together(worker, worker.receive([zero]), worker.call(keeper.open, *_opening(later))))
    assert isinstance(outcomes[0][0], Receipt)
    assert outcomes[1] == later.round
    assert forwarded == []


def test_an_error_is_told_to_whom_it_concerns_alone(keeper, new_trial):
    trial = new_trial(2)
    keeper.open(*_opening(trial))
    worker = Worker(keeper, lambda *_: None)
    requests = [zero for zero, _ in trial.requests()]

    def fails():
        raise ValueError("this one")

    asked = (worker.receive(requests[:1]), worker.call(fails), worker.receive(requests[1:]))
    first, failed, second = asyncio.run(_together(worker, *asked))
    assert isinstance(first[0], Receipt)
    assert isinstance(second[0], Receipt)
    assert isinstance(failed, ValueError)
