from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrec_unlearn.errors import RunError
from fedrec_unlearn.report import Users, read_run

MakeRun = Callable[..., Path]


def test_reads_every_file_of_a_finished_run(make_run: MakeRun) -> None:
    folder = make_run()
    record = read_run(folder)
    assert record.run == json.loads((folder / "run.json").read_text())
    assert record.metrics == json.loads((folder / "metrics.json").read_text())
    assert record.attack == json.loads((folder / "attack.json").read_text())
    assert record.events == [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert record.config["federation"]["rounds"] == 600


def test_a_half_written_last_event_is_ignored_wherever_it_is_cut(make_run: MakeRun) -> None:
    folder = make_run(rounds=3)
    events = folder / "events.jsonl"
    whole = events.read_bytes()
    added = '{"event": "note", "text": "größer"}\n'.encode()
    for cut in range(len(added) - 1):
        events.write_bytes(whole + added[:cut])
        assert len(read_run(folder).events) == 3
    events.write_bytes(whole + added)
    assert len(read_run(folder).events) == 4


def test_a_broken_event_before_the_last_is_an_error_with_file_and_line(make_run: MakeRun) -> None:
    folder = make_run(rounds=5)
    lines = (folder / "events.jsonl").read_text().splitlines()
    lines[2] = lines[2][:20]
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(RunError, match=r"events\.jsonl:3: not valid JSON"):
        read_run(folder)


def test_a_broken_last_event_that_was_ended_is_an_error(make_run: MakeRun) -> None:
    folder = make_run(rounds=5)
    with (folder / "events.jsonl").open("a") as file:
        file.write('{"event": "rou\n')
    with pytest.raises(RunError, match=r"events\.jsonl:6: "):
        read_run(folder)


@pytest.mark.parametrize("name", ["run.json", "metrics.json", "attack.json"])
@pytest.mark.parametrize("content", [b'{"format": 1,\n "x"', b"[1, 2]", b"\xff\xfe", b"", b"[" * 100_000])
def test_a_corrupt_json_file_is_named(make_run: MakeRun, name: str, content: bytes) -> None:
    folder = make_run()
    (folder / name).write_bytes(content)
    with pytest.raises(RunError, match=re.escape(str(folder / name))):
        read_run(folder)


@pytest.mark.parametrize("content", ["a: [1", "- 1\n- 2", "!!python/object/apply:os.getcwd []"])
def test_a_corrupt_config_is_named(make_run: MakeRun, content: str) -> None:
    folder = make_run()
    (folder / "config.yaml").write_text(content)
    with pytest.raises(RunError, match=r"config\.yaml"):
        read_run(folder)


def test_missing_files_are_told_apart(make_run: MakeRun, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such folder"):
        read_run(tmp_path / "nowhere")
    (tmp_path / "bare").mkdir()
    with pytest.raises(RunError, match=r"no run\.json, so this is not a run folder"):
        read_run(tmp_path / "bare")
    folder = make_run()
    (folder / "config.yaml").unlink()
    with pytest.raises(RunError, match=r"config\.yaml: missing"):
        read_run(folder)


def test_a_run_in_progress_needs_neither_metrics_nor_attack_nor_events(make_run: MakeRun) -> None:
    record = read_run(make_run(rounds=0, metrics=False, attack=False, status="running", best_round=None))
    assert record.metrics is None
    assert record.attack is None
    assert record.events == []


def test_another_format_is_refused(make_run: MakeRun) -> None:
    folder = make_run(format=2)
    with pytest.raises(RunError, match=r"run\.json: has format 2, this version reads 1"):
        read_run(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attacker": 3}, "'attacker' must be a text"),
        ({"counts": [1]}, "'classes' and 'counts' differ in length"),
        ({"counts": [1, 2.5]}, "'counts' must be whole numbers"),
        ({"chance": 0}, "'chance' must lie between 0 and 1"),
        ({"balanced_accuracy": {"mean": "high"}}, "'mean' must be a number"),
        ({"balanced_accuracy": {}}, "'mean' must be a number, but is missing"),
    ],
)
def test_a_malformed_attack_result_is_named(make_run: MakeRun, change: dict[str, Any], message: str) -> None:
    folder = make_run()
    attack = json.loads((folder / "attack.json").read_text())
    attack["results"][1] |= change
    (folder / "attack.json").write_text(json.dumps(attack))
    with pytest.raises(RunError, match=rf"attack\.json: results\[1\].*{re.escape(message)}"):
        read_run(folder)


@pytest.mark.parametrize(
    "event",
    [
        {"event": "round", "round": "1", "clients": 3},
        {"event": "round", "round": 1, "clients": 3, "loss": "low"},
        {"event": "evaluation", "round": 1, "part": "valid", "metrics": {"ndcg@10/full": True}},
        {"round": 1},
        [1],
    ],
)
def test_a_malformed_event_is_named(make_run: MakeRun, event: object) -> None:
    folder = make_run(rounds=2)
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")
    with pytest.raises(RunError, match=r"events\.jsonl:3: "):
        read_run(folder)


def test_events_of_unknown_kinds_pass(make_run: MakeRun) -> None:
    folder = make_run(rounds=2)
    with (folder / "events.jsonl").open("a") as file:
        file.write('{"event": "unlearn", "what": 1}\n')
    assert read_run(folder).events[-1]["event"] == "unlearn"


def test_users_that_do_not_fit_together_are_refused() -> None:
    ids, table = np.array(["a", "b"]), np.zeros((2, 3), dtype=np.float32)
    labels = np.array([0, 1])
    with pytest.raises(RunError, match="2 user ids"):
        Users(ids, table[:1], {})
    with pytest.raises(RunError, match="labels of shape"):
        Users(ids, table, {"gender": (("F", "M"), labels[:1])})
    with pytest.raises(RunError, match=r"outside -1\.\.0"):
        Users(ids, table, {"gender": (("F",), labels)})
    table[1, 2] = np.nan
    with pytest.raises(RunError, match=r"1 user\(s\), first .*'b'"):
        Users(ids, table, {})


def test_users_before_are_the_same_users_of_the_same_model(make_run: MakeRun, make_users: Callable[..., Users]) -> None:
    folder = make_run(rounds=2)
    users = make_users(20)
    assert read_run(folder, users, users).users_before is users
    turned = Users(users.user_ids[::-1], users.representation, users.attributes)
    with pytest.raises(RunError, match="not the same users in the same order"):
        read_run(folder, users, turned)
    shorter = Users(users.user_ids, users.representation[:, :5], users.attributes)
    with pytest.raises(RunError, match="length 16, users_before of length 5"):
        read_run(folder, users, shorter)


@pytest.mark.parametrize(
    ("unlearn", "message"),
    [
        ({"attributes": ["gender"]}, "'method' must be a text, but is missing"),
        ({"method": "moments", "attributes": "gender"}, "'attributes' must be a list"),
        ({"method": "moments", "attributes": [1]}, "'attributes' must be texts"),
        ({"method": "moments", "attributes": [], "seconds": "0.2"}, "'seconds' must be a number"),
        ({"method": "moments", "attributes": [], "known": {"gender": 1.5}}, "'gender' must be a whole number"),
    ],
)
def test_malformed_unlearning_is_named(make_run: MakeRun, unlearn: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=rf"run\.json: unlearn.*{re.escape(message)}"):
        read_run(make_run(rounds=2, unlearn=unlearn))


def test_malformed_attacks_before_and_adversaries_are_named(make_run: MakeRun) -> None:
    folder = make_run(rounds=2)
    attack = json.loads((folder / "attack.json").read_text())
    before = [attack["results"][0], attack["results"][1] | {"chance": 1.5}]
    (folder / "attack.json").write_text(json.dumps(attack | {"before": before}))
    with pytest.raises(RunError, match=r"attack\.json: before\[1\]: 'chance' must lie between"):
        read_run(folder)
    (folder / "attack.json").unlink()
    with (folder / "events.jsonl").open("a") as file:
        event = {"event": "round", "round": 3, "clients": 2, "adversary": {"gender": {"accuracy": "half"}}}
        file.write(json.dumps(event) + "\n")
    with pytest.raises(RunError, match=r"events\.jsonl:3: adversary: gender: 'accuracy' must be a number"):
        read_run(folder)
