from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedrec_unlearn.bench.secemb import timing
from fedrec_unlearn.bench.secemb.play import Play
from fedrec_unlearn.bench.secemb.timing import client_costs, round_parameters, server_costs
from fedrec_unlearn.bench.secemb.whole_round import local_round
from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.client import download_bytes, forwarded_bytes, upload_bytes
from fedrec_unlearn.secemb.local import LocalPair
from fedrec_unlearn.secemb.server import Total

SMALL: dict[str, Any] = {"n_items": 60, "max_items": 6, "width": 4, "ring_bits": 32, "dense": 1}


@pytest.mark.parametrize("encoding", ["binned", "paper"])
def test_bytes_are_those_of_messages_and_agree_with_the_layout(encoding: str) -> None:
    found = client_costs({**SMALL, "encoding": encoding}, repeats=2, fraction_bits=20)
    for name, whole in (("once", False), ("whole", True)):
        sizes = found["bytes"][name]
        round_ = Play.of(round_parameters(**SMALL, clients=2, encoding=encoding, whole_keys=whole), 2, 20).round
        assert sizes["upload"] == sizes["request"] + sizes["update"] == upload_bytes(round_)
        assert sizes["download"] == download_bytes(round_)
        assert sizes["forwarded"] == forwarded_bytes(round_)
    assert all(value > 0 for value in found["milliseconds"].values())


@pytest.mark.parametrize("encoding", ["binned", "paper"])
def test_a_servers_times_are_per_client(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def process_time() -> float:
        clock[0] += 1.0  # every call that is timed takes a second
        return clock[0]

    monkeypatch.setattr("time.process_time", process_time)
    found = server_costs({**SMALL, "encoding": encoding}, clients=4, repeats=2, fraction_bits=20)
    assert (found["clients"], found["repeats"]) == (4, 2)
    assert found["milliseconds"] == {"receive": 500.0, "retrieve": 250.0, "aggregate": 250.0}


def test_a_wrong_sum_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    combine = timing.combine

    def altered(first: Any, second: Any) -> Total:
        total = combine(first, second)
        total.rows[7, 0] += 1
        return total

    monkeypatch.setattr(timing, "combine", altered)
    with pytest.raises(TransportError, match="not the sum of the clients' updates"):
        server_costs(SMALL, clients=2, repeats=1, fraction_bits=20)


def test_wrong_rows_are_not_reported() -> None:
    play = Play.of(round_parameters(**SMALL, clients=2), 2, 20)
    pair = LocalPair()
    pair.open(play.round, play.table)
    sessions = play.sessions(pair.keys)
    answers = pair.request([s.request(items) for s, items in zip(sessions, play.items, strict=True)])
    rows = [session.rows(answer) for session, answer in zip(sessions, answers, strict=True)]
    play.check_rows(sessions, rows)
    rows[1][0, 0] += 1
    with pytest.raises(TransportError, match="not those of the table"):
        play.check_rows(sessions, rows)


def test_clients_hold_as_many_items_as_they_may() -> None:
    play = Play.of(round_parameters(**SMALL, clients=3), 3, 20)
    assert [len(np.unique(items)) for items in play.items] == [6, 6, 6]
    assert all(np.abs(rows).max() <= play.round.parameters.limit for rows in play.rows)


def test_a_round_is_told_by_phases() -> None:
    found = local_round(SMALL, clients=3, fraction_bits=20)
    assert list(found["phases"]) == [
        "open", "clients ask", "servers answer", "clients read", "clients update", "servers receive", "servers sum",
    ]  # fmt: skip
    round_ = Play.of(round_parameters(**SMALL, clients=3), 3, 20).round
    assert found["bytes"] == {
        "upload": 3 * upload_bytes(round_),
        "download": 3 * download_bytes(round_),
        "forwarded": 3 * forwarded_bytes(round_),
        "table": 60 * 4 * 8,
    }
    assert 0 < found["memory"]["idle"] <= found["memory"]["data"] <= found["memory"]["peak"]
