"""How the command line shows progress: a bar on a terminal, lines elsewhere. Both write to standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TextIO

from fedrec_unlearn.progress import Progress, SilentProgress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

SECONDS_BETWEEN_LINES = 5.0


def command_progress(quiet: bool, stream: TextIO | None = None) -> Progress:
    """The progress display that fits where the output goes.

    Args:
        quiet: show nothing.
        stream: standard error when None.
    """
    stream = sys.stderr if stream is None else stream
    if quiet:
        return SilentProgress()
    return TerminalProgress(stream) if stream.isatty() else LineProgress(stream)


def format_fields(fields: Mapping[str, float | str]) -> str:
    """``loss 0.531  ndcg@10 0.21``: four significant digits, whole numbers whole."""
    return "  ".join(f"{name} {_figure(value)}" for name, value in fields.items())


def _figure(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) >= 1 else f"{value:.4g}"


def format_seconds(seconds: float) -> str:
    """``0:07``, ``12:30``, ``1:02:03``."""
    whole = round(seconds)
    minutes, second = divmod(whole, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


class LineProgress:
    """A line for every step that has a field of its own (an evaluation), and at least one every few seconds."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        """Lines on a stream.

        Args:
            stream: where to write.
            clock: seconds, monotonic.
        """
        self._stream = stream
        self._clock = clock
        self._title, self._total, self._unit = "", 0, "step"
        self._usual: set[str] | None = None
        self._started = self._last_line = 0.0
        self._first_step = self._step = self._written = 0

    def start(self, title: str, total: int, unit: str) -> None:
        """Begin with the title and the number of steps."""
        self._title, self._total, self._unit = title, total, unit
        self._usual = None
        self._started = self._last_line = self._clock()
        self._first_step = self._step = self._written = -1
        self._write(f"{title}: {total:,} {unit}s" if total > 1 else title)

    def advance(self, step: int, fields: Mapping[str, float | str]) -> None:
        """Write a line if it is due."""
        now = self._clock()
        if self._usual is None:
            # the fields of the first step are those that every step has
            self._usual, self._first_step = set(fields), step
        self._step = step
        due = now - self._last_line >= SECONDS_BETWEEN_LINES
        if due or set(fields) - self._usual or step == self._total:
            self._last_line, self._written = now, step
            self._write(self._line(step, fields, now))

    def _line(self, step: int, fields: Mapping[str, float | str], now: float) -> str:
        width = len(str(self._total))
        count = f"{step:>{width}}/{self._total}" if self._total else str(step)
        done = step - self._first_step
        left = ""
        if done > 0 and step < self._total:
            left = f"  {format_seconds((now - self._started) / (done + 1) * (self._total - step))} left"
        return f"{self._unit} {count}  {format_fields(fields)}{left}".rstrip()

    def message(self, text: str) -> None:
        """Write the sentence."""
        self._write(text)

    def finish(self) -> None:
        """Say how far it came and how long it took."""
        took = format_seconds(self._clock() - self._started)
        where = f"{self._unit} {self._step}, " if self._step >= 0 and self._step != self._total else ""
        self._write(f"{self._title}: done, {where}{took}")

    def _write(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class TerminalProgress:
    """A bar that is redrawn in place; messages scroll by above it."""

    def __init__(self, stream: TextIO) -> None:
        """A bar on a terminal's stream."""
        from rich.console import Console

        self._console = Console(file=stream)
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._kept: dict[str, float | str] = {}

    def start(self, title: str, total: int, unit: str) -> None:
        """Show the bar."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._stop()
        self._kept = {}
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn(f"{unit}s"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self._console,
        )
        self._task = self._bar.add_task(title, total=total or None, figures="")
        self._bar.start()

    def advance(self, step: int, fields: Mapping[str, float | str]) -> None:
        """Move the bar; a field that is not given this time keeps its last value."""
        if self._bar is not None and self._task is not None:
            self._kept.update(fields)
            self._bar.update(self._task, completed=step, figures=format_fields(self._kept))

    def message(self, text: str) -> None:
        """Print the sentence above the bar."""
        self._console.print(text, markup=False, highlight=False)

    def finish(self) -> None:
        """Leave the bar where it stands."""
        self._stop()

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None
