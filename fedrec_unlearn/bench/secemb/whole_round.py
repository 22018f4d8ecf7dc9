"""A whole round by phases: all clients and both servers in one process, or the servers as processes behind HTTPS."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fedrec_unlearn.bench.secemb.machine import ONE_THREAD, Spent, other_cpu_seconds, other_peak_mib, peak_mib, timed
from fedrec_unlearn.bench.secemb.play import Play
from fedrec_unlearn.bench.secemb.timing import round_parameters
from fedrec_unlearn.errors import RunError
from fedrec_unlearn.secemb.local import LocalPair
from fedrec_unlearn.secemb.pair import Pair
from fedrec_unlearn.secemb.server import Total

T = TypeVar("T")

_STOP_SECONDS = 30


class _Clock:
    """Times phases, with the CPU time of server processes where there are any."""

    def __init__(self, servers: tuple[int, ...] = ()) -> None:
        self.servers = servers
        self.phases: dict[str, dict[str, Any]] = {}

    def phase(self, name: str, work: Callable[[], T]) -> T:
        """Do a piece of work and keep what it took."""
        before = [other_cpu_seconds(pid) for pid in self.servers]
        result, spent = timed(work)
        after = [other_cpu_seconds(pid) for pid in self.servers]
        self.phases[name] = _phase(spent, before, after)
        return result


def _phase(spent: Spent, before: list[float | None], after: list[float | None]) -> dict[str, Any]:
    servers = [None if a is None or b is None else b - a for a, b in zip(before, after, strict=True)]
    return {**spent.json(), **({"server_cpu_seconds": servers} if servers else {})}


def local_round(parameters: Mapping[str, Any], clients: int, fraction_bits: int) -> dict[str, Any]:
    """A round in this process.

    Args:
        parameters: of `timing.round_parameters`.
        clients: all with as many items as they may hold.
        fraction_bits: of the fixed point.

    Returns:
        `phases` with wall and CPU seconds each, `bytes` of all clients together, and `memory` in MiB: the process
        before the round and at its largest.

    Raises:
        TransportError: rows or the sum are not exact.
    """
    idle = peak_mib()
    play = Play.of(round_parameters(**parameters, clients=clients), clients, fraction_bits)
    ready = peak_mib()
    clock = _Clock()
    figures = _round(play, LocalPair(), clock)
    return {**figures, "memory": {"idle": idle, "data": ready, "peak": peak_mib()}}


def https_round(parameters: Mapping[str, Any], clients: int, fraction_bits: int) -> dict[str, Any]:
    """A round through two server processes on this machine.

    Args, Raises: as `local_round`.

    Returns:
        The same; each phase with the servers' own CPU seconds too, and `memory` with each server's largest.
    """
    from fedrec_unlearn.serving.certificates import make_certificates
    from fedrec_unlearn.serving.remote import RemotePair

    with tempfile.TemporaryDirectory(prefix="fedrec-round-") as name, contextlib.ExitStack() as stack:
        certs = make_certificates(Path(name) / "certs")
        one, url_one = stack.enter_context(_server(1, Path(name), certs))
        zero, url_zero = stack.enter_context(_server(0, Path(name), certs, "--peer", url_one))
        before = [other_peak_mib(pid) for pid in (zero, one)]
        play = Play.of(round_parameters(**parameters, clients=clients), clients, fraction_bits)
        with RemotePair((url_zero, url_one), certs) as pair:
            figures = _round(play, pair, _Clock((zero, one)))
        servers = [other_peak_mib(pid) for pid in (zero, one)]
    memory = {"servers_idle": before, "servers_peak": servers, "peak": peak_mib()}
    return {**figures, "memory": memory}


def _round(play: Play, pair: Pair, clock: _Clock) -> dict[str, Any]:
    clock.phase("open", lambda: pair.open(play.round, play.table))
    sessions = play.sessions(pair.keys)
    requests = clock.phase(
        "clients ask", lambda: [s.request(items) for s, items in zip(sessions, play.items, strict=True)]
    )
    answers = clock.phase("servers answer", lambda: pair.request(requests))
    rows = clock.phase("clients read", lambda: [s.rows(answer) for s, answer in zip(sessions, answers, strict=True)])
    play.check_rows(sessions, rows)
    updates = clock.phase("clients update", lambda: play.updates(sessions))
    clock.phase("servers receive", lambda: pair.update(updates))
    forwarded = pair.bytes_between
    total: Total = clock.phase("servers sum", pair.close)
    play.check_sum(sessions, total)
    return {
        "clients": len(sessions),
        "phases": clock.phases,
        "bytes": {
            "upload": sum(len(message) for pairs in (requests, updates) for both in pairs for message in both),
            "download": sum(len(message) for both in answers for message in both),
            "forwarded": forwarded,
            "table": play.table.nbytes,
        },
    }


@contextlib.contextmanager
def _server(party: int, folder: Path, certs: Path, *options: str) -> Iterator[tuple[int, str]]:
    """``fedrec serve`` until the block ends; its process id and address.

    Raises:
        RunError: it did not start.
    """
    command = [sys.executable, "-m", "fedrec_unlearn", "serve", "--quiet", "--party", str(party), "--certs", str(certs)]
    process = subprocess.Popen(
        [*command, "--spool", str(folder / f"spool-{party}"), *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD},
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            line = process.stdout.readline()  # party 0 listens on https://127.0.0.1:40123
            if "https://" not in line:
                raise RunError(f"server {party} did not start: {line.strip() or 'its message is on standard error'}")
            yield process.pid, line.split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
