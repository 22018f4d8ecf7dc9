"""What this machine can do, so that a time can be read as a share of it.

All times are CPU seconds of this process (`time.process_time`: user and system, all threads added up), which a busy
neighbour on a shared machine disturbs less than the clock on the wall. The floors use one thread.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.seeds import Purpose, generator

ROW_FLOATS = 64
"""Floats in a gathered row: the default embedding."""


def cpu_seconds(fn: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    fn()
    return time.process_time() - start


def median_cpu_seconds(fn: Callable[[], object], repeats: int = 5, warmup: int = 1) -> float:
    """Median CPU seconds of a call.

    Args:
        fn: what to measure; its result is dropped.
        repeats: measured calls, at least 1.
        warmup: calls before them that are not measured (first allocations, lazy imports).

    Raises:
        ConfigError: `repeats` is below 1.
    """
    if repeats < 1:
        raise ConfigError(f"repeats: must be at least 1, not {repeats}")
    for _ in range(warmup):
        fn()
    return statistics.median(cpu_seconds(fn) for _ in range(repeats))


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch computes on one thread."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def gather_bandwidth(table_mib: float = 64.0, rows: int = 1 << 18, repeats: int = 7) -> float:
    """Bytes a second this machine moves while it gathers random rows of an embedding table, one thread.

    Each row of 64 float32 (256 bytes) is read from a random place and written once in order, so `rows` rows count as
    `2 * 256 * rows` bytes; the row ids (8 bytes a row) are not counted. A table that fits the cache gives a higher
    figure than one that does not: pass the size of the table the figure shall be compared with.

    Args:
        table_mib: size of the table, MiB.
        rows: rows gathered per call.
        repeats: measured calls, of which the median is taken.
    """
    import torch

    n_table = max(1, int(table_mib * 2**20) // (4 * ROW_FLOATS))
    ids = torch.from_numpy(generator(0, Purpose.SYNTHETIC).integers(n_table, size=rows))
    table = torch.ones(n_table, ROW_FLOATS)
    gathered = torch.empty(rows, ROW_FLOATS)
    with one_thread():
        seconds = median_cpu_seconds(lambda: torch.index_select(table, 0, ids, out=gathered), repeats, warmup=2)
    return 2 * 4 * ROW_FLOATS * rows / seconds


def matmul_rate(size: int = 1024, repeats: int = 7) -> float:
    """Multiply-adds a second of one product of two square float32 matrices, one thread.

    Args:
        size: rows of the matrices; the product takes `size**3` multiply-adds.
        repeats: measured calls, of which the median is taken.
    """
    import torch

    left, right = torch.ones(size, size), torch.ones(size, size)
    product = torch.empty(size, size)
    with one_thread():
        seconds = median_cpu_seconds(lambda: torch.mm(left, right, out=product), repeats, warmup=2)
    return size**3 / seconds


def peak_memory_mib() -> float:
    """Largest resident memory of this process since it began, MiB.

    It only grows: to compare two programs, measure each in a process of its own.
    """
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # kibibytes on Linux, bytes on macOS
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


if __name__ == "__main__":
    for mib in (0.25, 1.0, 16.0, 64.0, 256.0):
        print(f"gathering rows of a {mib:g} MiB table: {gather_bandwidth(mib) / 1e9:.2f} GB/s")
    print(f"matrix product: {matmul_rate() / 1e9:.1f} G multiply-adds/s")
    print(f"peak memory: {peak_memory_mib():.0f} MiB")
