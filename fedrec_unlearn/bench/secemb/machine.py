"""CPU seconds and memory of this process and others, and work in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fedrec_unlearn.bench.pool import WorkerError

T = TypeVar("T")

ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS", "VECLIB_MAXIMUM")}
"""Environment under which numpy computes on one thread."""


class Spent(NamedTuple):
    """What a piece of work took."""

    wall: float
    cpu: float
    """User and system, all threads of this process."""

    def json(self) -> dict[str, float]:
        """For a file."""
        return {"wall_seconds": self.wall, "cpu_seconds": self.cpu}


def timed(work: Callable[[], T]) -> tuple[T, Spent]:
    """The result of a call, and what it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, Spent(time.perf_counter() - wall, time.process_time() - cpu)


def peak_mib() -> float:
    """Largest resident memory of this process since it began, MiB."""
    found = other_peak_mib(os.getpid())
    if found is not None:
        return found
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def other_peak_mib(pid: int) -> float | None:
    """The same of another process, None where the system does not tell.

    Read from /proc rather than from `getrusage`, which on Linux remembers the peak of whatever started the process.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(found[0]) / 2**10 if found else None


def other_cpu_seconds(pid: int) -> float | None:
    """CPU seconds of another process so far, None where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def apart(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Measure in a fresh process with one thread, so that nothing that came before is in its memory or caches.

    Args:
        name: of a measurement that `fedrec_unlearn.bench.secemb.apart` knows.
        settings: its arguments, as JSON can hold them.

    Raises:
        WorkerError: it failed; with the end of what it said.
    """
    command = [sys.executable, "-m", "fedrec_unlearn.bench.secemb.apart", name]
    ended = subprocess.run(
        command,
        input=json.dumps(settings),
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        told = ended.stderr.strip().splitlines() or [f"status {ended.returncode}"]
        raise WorkerError(f"{told[-1]}\n" + "\n".join(told[-30:]))
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found
