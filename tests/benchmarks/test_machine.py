"""The measuring tools measure what they say."""

from __future__ import annotations

import time

import pytest
import torch

from benchmarks import machine
from fedrec_unlearn.errors import ConfigError


def test_sleeping_costs_no_cpu_time() -> None:
    assert machine.cpu_seconds(lambda: time.sleep(0.05)) < 0.04


def test_median_skips_the_warm_up_and_ignores_an_outlier(monkeypatch: pytest.MonkeyPatch) -> None:
    durations = iter([100.0, 1.0, 2.0, 90.0])
    clock = [0.0]

    def work() -> None:
        clock[0] += next(durations)

    monkeypatch.setattr(time, "process_time", lambda: clock[0])
    assert machine.median_cpu_seconds(work, repeats=3, warmup=1) == 2.0


def test_no_repeats_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        machine.median_cpu_seconds(lambda: None, repeats=0)


def test_floors_are_positive_and_give_the_thread_count_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert machine.gather_bandwidth(table_mib=0.1, rows=64, repeats=1) > 0
        assert machine.matmul_rate(size=16, repeats=1) > 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_peak_memory_sees_a_large_allocation() -> None:
    before = machine.peak_memory_mib()
    block = bytearray(int((before + 64) * 2**20))
    assert machine.peak_memory_mib() - before > 32
    del block
