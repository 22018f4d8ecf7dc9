"""What the programs of this folder have in common: options, a plain table, one JSON object as the last line."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import cpu_seconds
from fedrec_unlearn.errors import FedRecError


def parser(name: str, doc: str) -> argparse.ArgumentParser:
    """Command line of ``python -m benchmarks.NAME`` with the options all programs share.

    Args:
        name: of the module.
        doc: its docstring; the first line is shown as the description, the rest below the options.
    """
    first, _, rest = doc.partition("\n")
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=first,
        epilog=rest.strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="folder with one folder per data set (unset: $FEDREC_DATA)"
    )
    made.add_argument("--quick", action="store_true", help="fewer repeats and points: a minute instead of many")
    return made


def data_folder(given: Path | None) -> Path | None:
    """The folder given, else $FEDREC_DATA, else None."""
    named = os.environ.get("FEDREC_DATA")
    return given or (Path(named) if named else None)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns aligned by their widest cell: the first to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = []
    for row in cells:
        padded = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *padded[1:]]).rstrip())
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def interleaved(
    arms: Mapping[str, Callable[[], object]], repeats: int, warmup: int = 1, prepare: Callable[[], object] | None = None
) -> dict[str, list[float]]:
    """CPU seconds of each call of each arm, called in turn (A B C A B C ...) so that noise hits all alike.

    Args:
        arms: what to measure, by name; results are dropped.
        repeats: measured calls of each arm.
        warmup: rounds of calls before them that are not measured.
        prepare: called before each call, outside the measurement.
    """
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for repeat in range(warmup + repeats):
        for name, arm in arms.items():
            if prepare is not None:
                prepare()
            spent = cpu_seconds(arm)
            if repeat >= warmup:
                seconds[name].append(spent)
    return seconds


def medians(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Median of each arm."""
    return {name: statistics.median(values) for name, values in seconds.items()}


def last_line(benchmark: str, figures: Mapping[str, Any]) -> None:
    """Print the figures as one JSON object, with what is needed to judge them: machine, versions, load."""
    import torch

    about = {
        "benchmark": benchmark,
        "load": [round(value, 2) for value in os.getloadavg()],
        "cpus": os.cpu_count(),
        "threads": 1,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    print(json.dumps({**about, **figures}), flush=True)


def run(main: Callable[[Sequence[str] | None], None], name: str, arguments: Sequence[str] | None = None) -> int:
    """Call a program; an error of ours becomes a line on stderr and its exit status."""
    try:
        main(arguments)
    except FedRecError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.exit_code
    return 0
