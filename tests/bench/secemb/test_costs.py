from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn.bench import TransportStudy
from fedrec_unlearn.bench.secemb import costs
from fedrec_unlearn.bench.secemb.costs import complete_cost, cost_targets, cost_tasks, costs_content, finished_cost
from fedrec_unlearn.bench.secemb.tables import cost_tables, round_tables, target_table
from fedrec_unlearn.errors import DependencyError


@pytest.fixture
def content(study: TransportStudy, tmp_path: Path, made_up: Any) -> dict[str, Any]:
    tasks = cost_tasks(study.costs, tmp_path)
    return costs_content(study.costs, tasks, [made_up(task.measurement, task.settings) for task in tasks])


def test_every_size_encoding_and_batch_is_measured_once(study: TransportStudy, tmp_path: Path) -> None:
    tasks = cost_tasks(study.costs, tmp_path)
    assert [task.name for task in tasks] == [
        "small, binned: client",
        "small, binned: server, 2 clients",
        "small, binned: server, 3 clients",
        "other, binned: client",
        "other, binned: server, 2 clients",
        "other, binned: server, 3 clients",
        "small, paper: client",
        "small, paper: server, 2 clients",
        "other, paper: client",
        "other, paper: server, 2 clients",
        "small, binned: local round",
    ]
    assert len({task.result for task in tasks}) == len(tasks)
    with_https = cost_tasks(replace(study.costs, round_https=True), tmp_path)
    assert with_https[-1].measurement == "https round"


def test_what_was_measured_is_kept_and_other_settings_are_measured_anew(
    study: TransportStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def apart(name: str, settings: Any) -> dict[str, Any]:
        asked.append((name, settings["parameters"]["n_items"], settings["repeats"]))
        return {"found": len(asked)}

    monkeypatch.setattr(costs, "apart", apart)
    (tmp_path / "results").mkdir()
    task = cost_tasks(study.costs, tmp_path)[1]
    assert finished_cost(task) is None
    assert complete_cost(task) == complete_cost(task) == {"found": 1}
    other = cost_tasks(replace(study.costs, repeats=7), tmp_path)[1]
    assert other.result == task.result
    assert complete_cost(other) == {"found": 2}
    assert asked == [("server", 60, 2), ("server", 60, 7)]


def test_without_the_extra_the_round_over_https_is_left_out(
    study: TransportStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*names: str) -> None:
        raise DependencyError(f"needs {names[0]}")

    plan = replace(study.costs, round_https=True)
    told: list[str] = []
    monkeypatch.setattr("fedrec_unlearn.serving.extra.need_extra", missing)
    assert costs.possible(plan, told.append) == study.costs
    assert told == ["no round over HTTPS: needs httpx"]
    assert costs.possible(study.costs, told.append) == study.costs
    assert len(told) == 1


def test_ratios_are_those_of_dense_sharing(content: dict[str, Any]) -> None:
    entry = content["costs"][0]
    # two shares of 60 rows of 4 numbers of 4 bytes; one share and a seed of 32 bytes
    assert entry["ratio"] == 2 * 60 * 4 * 4 / 1000
    assert entry["ratio_compressed"] == (60 * 4 * 4 + 32) / 1000


def test_server_work_is_compared_in_batches_of_the_same_size(
    study: TransportStudy, content: dict[str, Any], tmp_path: Path, made_up: Any
) -> None:
    assert content["work"][0] == {
        "catalogue": "small", "target": 1e-9, "clients": 2, "retrieve": 40.0, "aggregate": 40.0, "both": 40.0,
    }  # fmt: skip
    plan = replace(study.costs, batches=(3,))
    tasks = cost_tasks(plan, tmp_path)
    other = costs_content(plan, tasks, [made_up(task.measurement, task.settings) for task in tasks])
    assert other["work"][0]["both"] is None
    assert len(cost_tables(other)) == len(cost_tables(content)) - 1


def test_targets_say_by_how_much_they_are_met(content: dict[str, Any]) -> None:
    targets = {target["aim"]: target for target in cost_targets(content)}
    assert len(targets) == 8
    assert targets["small: upload"] == {
        "aim": "small: upload", "must": "at most 1 MB", "measured": "0.001 MB, 99.9% below", "met": True, "arm": None,
    }  # fmt: skip
    missed = targets["small: dense sharing over ours"]
    assert (missed["must"], missed["met"]) == ("at least 1000×", False)
    assert not targets["small: server, retrieve"]["met"]
    assert targets["small: server work, paper's encoding over ours"]["met"]
    assert target_table(list(targets.values())).rows[0] == (
        "small: upload", "at most 1 MB", "0.001 MB, 99.9% below", "yes",
    )  # fmt: skip


def test_tables_hold_what_was_measured(content: dict[str, Any]) -> None:
    sent, times, work, formula = cost_tables(content)
    row = dict(zip(sent.columns, sent.rows[0], strict=True))
    assert (row["catalogue"], row["upload MB"], row["with whole keys"]) == ("small, binned", "0.001", "0.002")
    row = dict(zip(times.columns, times.rows[0], strict=True))
    assert (row["client: keys"], row["client: all"]) == ("0.50", "1.50")
    assert (row["retrieve, 2"], row["aggregate, 3"], row["aggregate, 2"]) == ("1.00", "2.00", "3.00")
    row = dict(zip(times.columns, times.rows[1], strict=True))
    assert (row["catalogue"], row["retrieve, 2"], row["retrieve, 3"]) == ("small, paper", "40.00", "-")
    assert work.rows[0] == ("small", "2", "40×", "40×", "40×")
    assert formula.rows[0][:4] == ("small", "60", "6", "0.00")
    (whole,) = round_tables(content)
    assert whole.title == "A round of 3 clients at small's size, both servers in one process"
    assert whole.rows[-1] == ("all", "0.50", "0.25")
    assert "1.000 MB up, 2.000 MB down and 1.000 MB between the servers" in whole.note
    json.dumps(content)
