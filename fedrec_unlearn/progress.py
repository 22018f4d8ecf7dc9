"""What a long piece of work tells whoever watches it.

Training, attacks and downloads take a `Progress` and know nothing of terminals; the command line shows it as a
bar or as lines (`fedrec_unlearn.cli.progress`), a notebook may show it in its own way, and a library call that
passes none gets `SilentProgress`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


class Progress(Protocol):
    """Watches one piece of work after another: `start`, any number of `advance`, `finish`."""

    def start(self, title: str, total: int, unit: str) -> None:
        """A piece of work begins.

        Args:
            title: what is done, for example ``ml-100k-mf-001``.
            total: number of steps, 0 where it is not known.
            unit: one step's name in the singular, for example ``round``.
        """
        ...

    def advance(self, step: int, fields: Mapping[str, float | str]) -> None:
        """The work has come to `step`.

        Args:
            step: steps done so far, counted from the start of the whole work and not from the last call.
            fields: figures worth showing beside it, for example ``{"loss": 0.53}``. A field that only some
                steps have (a validation metric) marks those steps as worth a line of their own.
        """
        ...

    def message(self, text: str) -> None:
        """A sentence for the reader, shown without disturbing the bar."""
        ...

    def finish(self) -> None:
        """The piece of work is over, before its last step if it stopped early."""
        ...


class SilentProgress:
    """Shows nothing."""

    def start(self, title: str, total: int, unit: str) -> None:
        """Ignored."""

    def advance(self, step: int, fields: Mapping[str, float | str]) -> None:
        """Ignored."""

    def message(self, text: str) -> None:
        """Ignored."""

    def finish(self) -> None:
        """Ignored."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run that has a folder to resume from.

    A `KeyboardInterrupt`, so that nothing that catches `Exception` swallows it.
    """

    def __init__(self, run: Path, how: str = "") -> None:
        """An interruption of the run in folder `run`; `how` is the command that goes on with it."""
        super().__init__(f"interrupted; {run} can be resumed")
        self.run = run
        """The run folder, complete up to its last checkpoint, or that checkpoint's file."""
        self.how = how
        """The command to go on with; empty: that of a run folder."""
