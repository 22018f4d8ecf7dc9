from __future__ import annotations

import io
from typing import Any

import pytest

from fedrec_unlearn.cli.progress import (
    LineProgress,
    TerminalProgress,
    command_progress,
    format_fields,
    format_seconds,
)
from fedrec_unlearn.progress import Progress, SilentProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def lines() -> Any:
    stream, clock = io.StringIO(), Clock()
    return LineProgress(stream, clock), stream, clock


def test_the_display_fits_the_output() -> None:
    assert isinstance(command_progress(quiet=False, stream=Terminal()), TerminalProgress)
    assert isinstance(command_progress(quiet=False, stream=io.StringIO()), LineProgress)
    assert isinstance(command_progress(quiet=True, stream=Terminal()), SilentProgress)


def test_lines_come_at_evaluations_at_the_end_and_every_few_seconds(lines: Any) -> None:
    progress, stream, clock = lines
    progress.start("a", 100, "round")
    for step in range(1, 101):
        clock.now += 0.1
        evaluated = {"ndcg@10": 0.2} if step % 15 == 0 else {}
        progress.advance(step, {"loss": 0.5, **evaluated})
    progress.finish()
    written = stream.getvalue().splitlines()
    assert written[0] == "a: 100 rounds"
    assert written[-1] == "a: done, 0:10"
    steps = [int(line.split()[1].split("/")[0]) for line in written[1:-1]]
    assert steps == [15, 30, 45, 60, 75, 90, 100]
    assert "ndcg@10 0.2" in written[1]


def test_without_evaluations_time_alone_decides(lines: Any) -> None:
    progress, stream, clock = lines
    progress.start("a", 1000, "round")
    for step in range(1, 121):
        clock.now += 0.25
        progress.advance(step, {"loss": 0.5})
    steps = [int(line.split()[1].split("/")[0]) for line in stream.getvalue().splitlines()[1:]]
    assert steps == [20, 40, 60, 80, 100, 120]


def test_a_resumed_run_estimates_from_what_it_did_itself(lines: Any) -> None:
    progress, stream, clock = lines
    progress.start("a", 100, "round")
    for step in (91, 92, 93, 94, 95):
        clock.now += 2.0
        progress.advance(step, {"loss": 0.5})
    # five rounds in ten seconds, five left; the line written at six seconds saw three and seven
    assert [line.rpartition("  ")[2] for line in stream.getvalue().splitlines()[1:]] == ["0:14 left"]


def test_work_that_stops_early_says_where(lines: Any) -> None:
    progress, stream, clock = lines
    progress.start("a", 100, "round")
    progress.advance(40, {"loss": 0.5})
    clock.now += 61.0
    progress.finish()
    assert stream.getvalue().splitlines()[-1] == "a: done, round 40, 1:01"


def test_messages_are_lines(lines: Any) -> None:
    progress, stream, _ = lines
    progress.message("3 users were left out")
    assert stream.getvalue() == "3 users were left out\n"


def test_the_bar_keeps_figures_and_survives_markup_in_names() -> None:
    stream = Terminal()
    progress: Progress = TerminalProgress(stream)
    progress.start("run [bold] 1", 10, "round")
    progress.advance(5, {"ndcg@10": 0.25})
    progress.advance(6, {"loss": 0.5})
    progress.message("[red] is a name")
    progress.finish()
    text = stream.getvalue()
    assert "run [bold] 1" in text
    assert "[red] is a name" in text
    assert "6/10" in text
    progress.finish()


def test_a_piece_of_work_follows_another() -> None:
    stream = Terminal()
    progress = TerminalProgress(stream)
    for title in ("first", "second"):
        progress.start(title, 0, "step")
        progress.advance(1, {})
    progress.finish()
    assert "second" in stream.getvalue()


def test_figures_and_times_are_short() -> None:
    assert format_fields({"loss": 0.123456, "clients": 64.0, "bytes": 27557888.0, "best": "yes"}) == (
        "loss 0.1235  clients 64  bytes 27,557,888  best yes"
    )
    assert format_fields({"loss": 0.0, "nan": float("nan")}) == "loss 0  nan nan"
    assert [format_seconds(s) for s in (0.4, 7, 59.6, 750, 3723)] == ["0:00", "0:07", "1:00", "12:30", "1:02:03"]
