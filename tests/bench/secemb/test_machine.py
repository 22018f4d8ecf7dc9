from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedrec_unlearn.bench.pool import WorkerError
from fedrec_unlearn.bench.secemb.machine import apart, other_cpu_seconds, other_peak_mib, peak_mib, timed

SMALL = {"n_items": 60, "max_items": 6, "width": 4, "ring_bits": 32, "dense": 1}


def test_a_measurement_apart_is_what_it_returns_here() -> None:
    found = apart("client", {"parameters": SMALL, "repeats": 1, "fraction_bits": 20})
    assert set(found) == {"trees", "slots", "depth", "bytes", "milliseconds"}


def test_a_measurement_that_fails_says_why() -> None:
    with pytest.raises(WorkerError, match="items"):
        apart("client", {"parameters": {**SMALL, "n_items": 0}, "repeats": 1, "fraction_bits": 20})


def test_measuring_loads_no_torch() -> None:
    command = "import sys, fedrec_unlearn.bench.secemb.apart; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system has no /proc")
def test_memory_and_time_of_a_process_are_its_own() -> None:
    command = "import sys; held = b'x' * (200 << 20); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        peak, spent = other_peak_mib(process.pid), other_cpu_seconds(process.pid)
        process.stdin.close()
    assert peak is not None
    assert 200 < peak < 260
    assert spent is not None
    assert 0 <= spent < 60
    assert other_peak_mib(process.pid) is None
    assert other_cpu_seconds(process.pid) is None
    # rounded differently by the system
    assert peak_mib() == pytest.approx(other_peak_mib(os.getpid()), rel=0.1)


def test_work_is_timed_and_its_result_returned() -> None:
    result, spent = timed(lambda: sum(range(200_000)))
    assert result == 19_999_900_000
    assert spent.wall > 0
    assert spent.cpu >= 0
