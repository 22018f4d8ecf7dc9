"""The one thread that does a server's arithmetic and disk writes, fed from the event loop in batches.

Whatever waits while the thread works is taken together the next time: up to `BATCH` messages share one write to the
disk, and their answers one evaluation. The event loop itself never computes, so it can always tell how the server is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.wire import header_of
from fedrec_unlearn.serving.bodies import BATCH
from fedrec_unlearn.serving.keeper import Keeper
from fedrec_unlearn.serving.receipt import Key, Receipt
from fedrec_unlearn.serving.refused import RefusedError

T = TypeVar("T")


@dataclass
class _Job:
    """One thing to do: take messages, call something, or only look who can be answered."""

    messages: Sequence[bytes] = ()
    call: Callable[[], Any] | None = None
    done: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Worker:
    """Carries out what the routes ask of a `Keeper`, one batch after the other."""

    def __init__(self, keeper: Keeper, forward: Callable[[bytes, Key, bytes], None] | None) -> None:
        """A worker; `run` makes it work.

        Args:
            keeper: touched by the worker's thread alone once `run` has begun.
            forward: told, on the event loop, of each message that party 1 must be given: round digest, key, message.
        """
        self._keeper, self._forward = keeper, forward
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="secemb")
        self._waiting: dict[tuple[bytes, bytes], asyncio.Future[bytes]] = {}

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function in the thread, in its turn; its exceptions are raised here."""
        job = _Job(call=lambda: function(*arguments))
        self._jobs.put_nowait(job)
        # shielded: a caller that hangs up must not undo what the thread is about to do
        result: T = await asyncio.shield(job.done)
        return result

    async def receive(self, messages: Sequence[bytes]) -> list[Receipt | TransportError]:
        """See `Keeper.receive`."""
        job = _Job(messages=messages)
        self._jobs.put_nowait(job)
        outcomes: list[Receipt | TransportError] = await asyncio.shield(job.done)
        return outcomes

    async def response(self, digest: bytes, client: bytes, seconds: float) -> bytes:
        """The answer to a client's request, as soon as it is complete.

        Raises:
            RefusedError: it was not complete in time (503), or the round was closed (409).
        """
        key = (digest, client)
        future = self._waiting.get(key)
        if future is None:
            future = self._waiting[key] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait(_Job())
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(future)
        except TimeoutError:
            raise RefusedError(
                503, "the other server has not passed its part of this request on yet; send the same message again"
            ) from None

    async def run(self) -> None:
        """Work until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            jobs = [await self._jobs.get()]
            while len(jobs) < BATCH and not self._jobs.empty():
                jobs.append(self._jobs.get_nowait())
            waiting = frozenset(self._waiting)
            outcomes, answers, digest = await loop.run_in_executor(self._thread, self._work, jobs, waiting)
            for job, outcome in zip(jobs, outcomes, strict=True):
                self._tell(job, outcome, digest)
            for key in waiting:
                self._answer(key, answers, digest)

    def stop(self) -> None:
        """Wait for the thread; `run` must be cancelled already."""
        self._thread.shutdown(wait=True)

    def _work(
        self, jobs: Sequence[_Job], waiting: frozenset[tuple[bytes, bytes]]
    ) -> tuple[list[Any], dict[bytes, bytes] | Exception, bytes | None]:
        """In the thread: outcomes of the jobs, answers that are ready, and the digest of the round they are of."""
        outcomes: list[Any] = []
        group: list[_Job] = []
        for job in jobs:
            if job.call is None:
                group.append(job)
                continue
            outcomes += self._take(group)
            group = []
            try:
                outcomes.append(job.call())
            except Exception as error:
                outcomes.append(error)
        outcomes += self._take(group)
        keeper = self._keeper
        digest = keeper.round.digest if keeper.round is not None and keeper.is_open else None
        try:
            return outcomes, keeper.answer({client for of, client in waiting if of == digest}), digest
        except Exception as error:
            return outcomes, error, digest

    def _take(self, group: Sequence[_Job]) -> list[Any]:
        try:
            results = iter(self._keeper.receive([message for job in group for message in job.messages]))
        except Exception as error:
            return [error] * len(group)
        return [[next(results) for _ in job.messages] for job in group]

    def _tell(self, job: _Job, outcome: Any, digest: bytes | None) -> None:
        """On the event loop: hand a job's outcome over and pass on what party 1 must be given."""
        if self._forward is not None and job.messages and not isinstance(outcome, Exception):
            for receipt in outcome:
                if isinstance(receipt, Receipt) and receipt.forward is not None:
                    of = header_of(receipt.forward).digest
                    if of == digest:  # else the round ended in the same batch
                        self._forward(of, receipt.key, receipt.forward)
        if isinstance(outcome, Exception):
            job.done.set_exception(outcome)
            job.done.exception()  # seen: nobody may be left to ask
        else:
            job.done.set_result(outcome)

    def _answer(self, key: tuple[bytes, bytes], answers: dict[bytes, bytes] | Exception, digest: bytes | None) -> None:
        future = self._waiting.get(key)
        if future is None:
            return
        if key[0] != digest:
            error: Exception | None = RefusedError(409, "the round is closed")
        elif isinstance(answers, Exception):
            error = answers
        elif key[1] in answers:
            error = None
        else:
            return
        del self._waiting[key]
        if error is not None:
            future.set_exception(error)
            future.exception()
        else:
            assert not isinstance(answers, Exception)
            future.set_result(answers[key[1]])
