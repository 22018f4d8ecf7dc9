"""Server 0's side of the line to server 1: what a client sent once reaches both, now or later.

Messages wait here in the order they were accepted, and in the spool as long as server 1 has not acknowledged them;
server 1 takes a repeated one as acknowledged. So an outage of either server loses nothing and counts nothing twice.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
from collections.abc import Awaitable, Callable

import httpx

from fedrec_unlearn.secemb.wire import header_of
from fedrec_unlearn.serving.bodies import BATCH, pack_messages
from fedrec_unlearn.serving.receipt import Key

log = logging.getLogger("fedrec_unlearn.serving")

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class Forwarder:
    """Sends what `add` was given until server 1 has it."""

    def __init__(
        self, url: str, context: ssl.SSLContext, acknowledge: Callable[[bytes, list[Key]], Awaitable[None]]
    ) -> None:
        """A forwarder; `run` makes it work.

        Args:
            url: of server 1.
            context: TLS with server 0's certificate.
            acknowledge: told the round's digest and the messages server 1 has.
        """
        self._url, self._context, self._acknowledge = url.rstrip("/"), context, acknowledge
        self._waiting: dict[Key, tuple[bytes, asyncio.Future[None]]] = {}
        self._digest = b""
        self._wake = asyncio.Event()
        self.trouble: str | None = None
        """Why server 1 could not be given anything the last time; None where it could."""

    def add(self, digest: bytes, key: Key, message: bytes) -> None:
        """Give it a message, unless it has it already. One of another round ends the wait of all before."""
        if digest != self._digest:
            self.drop()
            self._digest = digest
        if key not in self._waiting:
            self._waiting[key] = message, asyncio.get_running_loop().create_future()
            self._wake.set()

    def drop(self) -> None:
        """Forget what waits: its round is over."""
        for _, future in self._waiting.values():
            future.cancel()
        self._waiting = {}

    @property
    def pending(self) -> int:
        """Messages server 1 has not been seen to have."""
        return len(self._waiting)

    async def arrived(self, key: Key, seconds: float) -> bool:
        """Whether server 1 has the message, waiting for it as long."""
        entry = self._waiting.get(key)
        if entry is None:
            return True
        done, _ = await asyncio.wait([entry[1]], timeout=seconds)
        return bool(done) and not entry[1].cancelled()

    async def run(self) -> None:
        """Forward until cancelled."""
        pause = _FIRST_PAUSE
        timeout = httpx.Timeout(30, connect=5)
        async with httpx.AsyncClient(verify=self._context, trust_env=False, timeout=timeout) as http:
            while True:
                await self._wake.wait()
                batch = list(itertools.islice(self._waiting.items(), BATCH))
                if not batch:
                    self._wake.clear()
                    continue
                digest = self._digest
                trouble = await self._send(http, [message for _, (message, _) in batch])
                if trouble is not None:
                    if trouble != self.trouble:
                        log.warning("party 0 cannot forward, will try again: %s", trouble)
                    self.trouble = trouble
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
                    continue
                if self.trouble is not None:
                    log.info("party 0 forwards again")
                self.trouble, pause = None, _FIRST_PAUSE
                await self._done([key for key, _ in batch], digest)

    async def _send(self, http: httpx.AsyncClient, messages: list[bytes]) -> str | None:
        """Send once; None if server 1 has dealt with them, else what is the matter."""
        number = header_of(messages[0]).number
        try:
            answer = await http.post(f"{self._url}/v1/rounds/{number}/forward", content=pack_messages(messages))
        except httpx.HTTPError as error:
            return f"server 1 at {self._url} is not reached ({type(error).__name__}: {error})"
        if answer.status_code == 409:  # closed there: these come too late for the sum
            log.warning("party 0 forwarded %d messages of round %d too late", len(messages), number)
            return None
        if answer.status_code != 200:
            return f"server 1 at {self._url} answers {answer.status_code}"
        return None

    async def _done(self, keys: list[Key], digest: bytes) -> None:
        await self._acknowledge(digest, keys)
        if digest != self._digest:
            return
        for key in keys:
            entry = self._waiting.pop(key, None)
            if entry is not None and not entry[1].done():
                entry[1].set_result(None)
