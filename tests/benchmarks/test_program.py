"""Tables, alternation and the last line of the programs."""

from __future__ import annotations

import json
import time

import pytest

from benchmarks import program
from fedrec_unlearn.errors import DataError


def test_a_table_aligns_its_columns() -> None:
    assert program.table(("name", "s"), [("a", "1.25"), ("longer", 10)]) == (
        "name       s\n------  ----\na       1.25\nlonger    10"
    )


def test_arms_take_turns_and_warm_ups_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, order = [0.0], list[str]()
    costs = {"a": iter([100.0, 1.0, 2.0]), "b": iter([200.0, 3.0, 4.0])}

    def arm(name: str) -> None:
        order.append(name)
        clock[0] += next(costs[name])

    def prepare() -> None:
        order.append("-")
        clock[0] += 50.0

    monkeypatch.setattr(time, "process_time", lambda: clock[0])
    seconds = program.interleaved({"a": lambda: arm("a"), "b": lambda: arm("b")}, repeats=2, prepare=prepare)
    assert order == ["-", "a", "-", "b"] * 3
    assert seconds == {"a": [1.0, 2.0], "b": [3.0, 4.0]}
    assert program.medians(seconds) == {"a": 1.5, "b": 3.5}


def test_the_last_line_is_one_json_object_with_the_load(capsys: pytest.CaptureFixture[str]) -> None:
    program.last_line("speed", {"ratio": 2.0})
    found = json.loads(capsys.readouterr().out)
    assert found["benchmark"] == "speed"
    assert found["ratio"] == 2.0
    assert len(found["load"]) == 3


def test_an_error_of_ours_becomes_its_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    def main(arguments: object) -> None:
        raise DataError("no such folder")

    assert program.run(main, "speed") == DataError.exit_code
    assert capsys.readouterr().err == "speed: no such folder\n"
