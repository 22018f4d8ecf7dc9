"""The ratios that speed is judged by, one program after another: what `make bench` runs.

    python -m benchmarks [--data-dir DIR] [--quick]

Runs engine_vs_loop, engine_vs_recbole and growth, each in a process of its own. The last line printed is one JSON
object with the last line of each; a program that failed is null there, and the exit status is that of the first
failure.
`benchmarks.datasets` and `benchmarks.quality` train whole runs and are called by themselves.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.program import parser

PROGRAMS = ("engine_vs_loop", "engine_vs_recbole", "growth", "adversary")


def run_program(name: str, arguments: Sequence[str]) -> tuple[int, str]:
    """Run a program, pass on what it prints, and return its exit status and its last line."""
    last = ""
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        for line in started.stdout:
            if last:
                print(last, flush=True)
            last = line.rstrip("\n") or " "
    if started.returncode:
        print(last, flush=True)
    return started.returncode, last


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    options = parser("", __doc__)
    options.prog = "python -m benchmarks"
    given = options.parse_args(arguments)
    passed = ["--quick"] if given.quick else []
    if given.data_dir is not None:
        passed += ["--data-dir", str(given.data_dir)]
    figures, status = {}, 0
    for name in PROGRAMS:
        print(f"\n== {name}\n", flush=True)
        ended, last = run_program(name, passed)
        figures[name] = None if ended else json.loads(last)
        status = status or ended
    print()
    print(json.dumps(figures), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
