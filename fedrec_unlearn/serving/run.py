"""A server as a process (`serve`) or, for tests and trials, in a thread (`start`)."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.serving.extra import need_extra
from fedrec_unlearn.serving.identity import SERVERS, client_context, sealing_key, server_context
from fedrec_unlearn.serving.spool import Spool

if TYPE_CHECKING:
    from fedrec_unlearn.serving.http_server import HttpServer
    from fedrec_unlearn.serving.reading import Limits

_STOP_SECONDS = 5
"""How long requests in progress may go on after a signal to stop."""
_MAX_CONNECTIONS = 1024


@dataclass(frozen=True)
class Settings:
    """Where a server listens and keeps its things."""

    certs: Path
    """Folder of certificates, as `certificates.make_certificates` lays it out; only its own role's folder is read."""
    spool: Path
    """Folder for what it must remember; made if need be."""
    host: str = "127.0.0.1"
    """Name or address to listen on."""
    port: int = 0
    """0: any free one."""
    peer: str | None = None
    """Of server 0: the address of server 1, https://host:port."""
    limits: Limits | None = field(default=None)
    """How much and how long it takes; None for `app.Limits`'s own."""


class RunningServer:
    """A server in a thread of this process."""

    def __init__(self, url: str, server: HttpServer, thread: threading.Thread) -> None:
        """Made by `start`."""
        self.url = url
        """https://host:port."""
        self._server, self._thread = server, thread

    def stop(self) -> None:
        """Let requests in progress end, then stop."""
        self._server.should_exit = True
        self._thread.join()

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def serve(party: int, settings: Settings, announce: Callable[[str], None] = print) -> None:
    """Be a server until SIGTERM or SIGINT.

    Args:
        party: 0 or 1.
        settings: where it listens and keeps its things.
        announce: told one line when the server is ready and one when it has stopped.

    Raises:
        ConfigError: the port is in use, a key unreadable, the spool another party's or in use, the peer missing.
        RunError: the spool is damaged.
        DependencyError: the extra ``serve`` is not installed.
    """
    with _prepared(party, settings) as (server, listener, url):
        server.when_ready = lambda: announce(f"party {party} listens on {url}")
        server.run(sockets=[listener])
    announce(f"party {party} has stopped")


def start(party: int, settings: Settings) -> RunningServer:
    """Be a server in a thread, for tests and trials; both may run in one process.

    Returns:
        The server, ready; `RunningServer.stop` ends it.

    Raises:
        ConfigError, RunError, DependencyError: as `serve`.
    """
    ready = threading.Event()
    outcome: list[tuple[str, HttpServer]] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with _prepared(party, settings) as (server, listener, url):
                outcome.append((url, server))
                server.when_ready = ready.set
                server.run(sockets=[listener])
        except BaseException as error:
            errors.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=work, name=f"secemb-server-{party}", daemon=True)
    thread.start()
    ready.wait()
    if errors:
        raise errors[0]
    url, server = outcome[0]
    return RunningServer(url, server, thread)


@contextlib.contextmanager
def _prepared(party: int, settings: Settings) -> Iterator[tuple[HttpServer, socket.socket, str]]:
    """The server with all that can fail done, its socket and its address; everything is given back at the end."""
    need_extra("httpx", "starlette", "uvicorn")
    import uvicorn

    from fedrec_unlearn.serving.app import Service
    from fedrec_unlearn.serving.http_server import HttpServer, PeerProtocol
    from fedrec_unlearn.serving.keeper import Keeper
    from fedrec_unlearn.serving.reading import Limits

    if party not in (0, 1):
        raise ConfigError(f"the servers are party 0 and party 1, not {party}")
    certs = Path(settings.certs)
    context, key = server_context(certs, party), sealing_key(certs, party)
    peer = _peer(party, settings)
    with contextlib.ExitStack() as stack:
        listener, url = _bound(settings.host, settings.port)
        stack.callback(listener.close)
        public_key = key.public_key().public_bytes_raw()
        try:
            spool = Spool(Path(settings.spool), party, public_key)
            stack.callback(spool.release)
            keeper = Keeper(party, key, spool)
        except OSError as error:
            raise ConfigError(f"spool {error.filename or settings.spool} cannot be used: {error.strerror}") from error
        stack.callback(keeper.flush)
        service = Service(keeper, public_key, peer, settings.limits or Limits())
        config = uvicorn.Config(
            service.app(),
            http=PeerProtocol,
            ws="none",
            loop="asyncio",
            interface="asgi3",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        config.load()
        config.ssl = context  # uvicorn's own options make one that takes older TLS too
        yield HttpServer(config), listener, url


def _peer(party: int, settings: Settings) -> tuple[str, ssl.SSLContext] | None:
    if party:
        if settings.peer is not None:
            raise ConfigError("party 1 calls nobody: leave the peer out; party 0 is told the address of party 1")
        return None
    if settings.peer is None or not settings.peer.startswith("https://"):
        raise ConfigError(
            f"party 0 forwards to party 1: its address must be https://host:port, not {settings.peer}; "
            "start party 1 first, it tells its address"
        )
    return settings.peer, client_context(Path(settings.certs), SERVERS[0])


def _bound(host: str, port: int) -> tuple[socket.socket, str]:
    """A listening socket and its address.

    Raises:
        ConfigError: the port is in use or not allowed, or the host is not this machine's.
    """
    if not 0 <= port < 1 << 16:
        raise ConfigError(f"a port lies in 0 .. 65535, not at {port}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"host {host!r} is not known: {error.strerror}; name one of this machine") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        # on Linux two sockets may be bound with SO_REUSEADDR; the second is told of the first only here
        listener.listen(2048)
    except OSError as error:
        listener.close()
        remedy = (
            "another program listens there; stop it, or take another port (0: any free one)"
            if error.errno == errno.EADDRINUSE
            else "take a host of this machine and a port this user may use"
        )
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror}; {remedy}") from error
    shown = f"[{host}]" if ":" in host else host
    return listener, f"https://{shown}:{listener.getsockname()[1]}"
