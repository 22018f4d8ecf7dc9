"""uvicorn as a server of SecEmb needs it: roles from certificates, a word when it is ready, an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedrec_unlearn.serving.identity import role_of


class PeerProtocol(H11Protocol):
    """One connection; every request on it carries ``request.state.role``."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The TLS handshake is done and the peer's certificate verified."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        # uvicorn copies this state into the scope of each request; it fills no `tls` extension
        self.app_state = {**self.app_state, "role": role_of(tls.getpeercert() if tls is not None else None)}

    def shutdown(self) -> None:
        """The server stops: an idle connection ends at once, a busy one after its answer."""
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.transport.get_write_buffer_size() == 0:
            # close() would wait for the peer's part of TLS's farewell, which an idle peer does not send
            self.transport.abort()
        else:
            super().shutdown()


class HttpServer(uvicorn.Server):
    """uvicorn's server that tells when it is ready and, after a signal, returns in place of dying of it."""

    when_ready: Callable[[], None] | None = None
    """Called on the event loop once connections are taken."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then call `when_ready`."""
        await super().startup(sockets=sockets)
        if self.started and self.when_ready is not None:
            self.when_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT, in the main thread, where alone signals arrive."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
