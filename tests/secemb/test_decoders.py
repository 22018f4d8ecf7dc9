"""Decoders take valid messages, refuse all others with `TransportError`, and change nothing when they refuse."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.inbox import Inbox
from fedrec_unlearn.secemb.parameters import Parameters, Round
from fedrec_unlearn.secemb.server import Partial
from fedrec_unlearn.secemb.wire import Header, Kind, header_of

FUZZER = Path(__file__).parent / "fuzz_decoders.py"
RUNS = 150_000


@pytest.fixture(scope="module")
def targets() -> Any:
    """What the fuzzer feeds, made once."""
    spec = importlib.util.spec_from_file_location("secemb_fuzz_decoders", FUZZER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Targets()


def test_targets_take_what_is_valid(targets: Any) -> None:
    taken = {name for name, message in targets.valid if targets.run(name, message)}
    # a repeated message is not taken, and server 0 takes nothing that is forwarded
    assert taken == set(targets.names) - {"forward 0", "forward 1"}


@given(data=st.data())
@settings(max_examples=1500, deadline=None)
def test_mutated_messages_are_refused_by_our_error_alone(targets: Any, data: st.DataObject) -> None:
    name, message = data.draw(st.sampled_from(targets.valid))
    changed = bytearray(message)
    for _ in range(data.draw(st.integers(1, 3))):
        what = data.draw(st.sampled_from(["byte", "bit", "number", "cut", "grow", "repeat"]))
        place = data.draw(st.integers(0, len(changed)))
        if what == "byte":
            changed[place : place + 1] = data.draw(st.binary(min_size=1, max_size=1))
        elif what == "bit" and place < len(changed):
            changed[place] ^= 1 << data.draw(st.integers(0, 7))
        elif what == "number":
            changed[place : place + 4] = data.draw(
                st.sampled_from([b"\0" * 4, b"\xff" * 4, b"\1\0\0\0", b"\0\0\0\x80"])
            )
        elif what == "cut":
            del changed[place:]
        elif what == "grow":
            changed += data.draw(st.binary(max_size=40))
        elif what == "repeat":
            changed[place:place] = changed[: place % 80]
    targets.run(name, bytes(changed))


@given(data=st.binary(max_size=300), name=st.integers(0, 1000))
@settings(max_examples=500, deadline=None)
def test_random_bytes_are_refused_by_our_error_alone(targets: Any, data: bytes, name: int) -> None:
    targets.once(bytes([name % 256]) + data)


def test_fuzzing_would_find_a_missing_check_and_a_state_that_changed(
    targets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, request = next((name, m) for name, m in targets.valid if name == "receive 0")
    name, partial = next((name, m) for name, m in targets.valid if name == "corrections")
    with monkeypatch.context() as patched:
        patched.setattr("fedrec_unlearn.secemb.parameters.Parameters.correction_bytes", len(partial) - 1)
        with pytest.raises(ValueError, match="cannot reshape"):
            targets.run(name, partial[:-1])
    keep = Inbox._refuse_second

    def careless(self: Inbox, entry: Any, header: Header, message: bytes) -> None:
        entry.share = b"changed"
        keep(self, entry, header, message)

    monkeypatch.setattr(Inbox, "_refuse_second", careless)
    with pytest.raises(AssertionError, match="refused and the state changed"):
        targets.run("receive 0", request)
    targets.servers[0]._inbox.entries[header_of(request).client].share = b""


def test_fuzzer_finds_nothing() -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed (there is none for Python 3.13 and later)")
    # the peak of memory is inherited from this process, so a limit on it would judge the tests that ran before
    command = [sys.executable, str(FUZZER), f"-atheris_runs={RUNS}", "-seed=1", "-rss_limit_mb=0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"Done {RUNS}" in done.stderr
    # without coverage it would only throw dice
    features = [int(found) for found in re.findall(r"\bft: (\d+)", done.stderr)]
    assert features[-1] > features[0] > 100


def test_nothing_is_allocated_for_a_message_of_a_wrong_length() -> None:
    # a catalogue whose correct messages have gigabytes
    p = Parameters(2_000_000, 4096, 4096, 1 << 28, 100_000, limit=1, max_clients=10)
    round_ = Round(p, bytes(16), 0, bytes(32))
    lying = Header(Kind.PARTIAL, 0, 0, round_.digest, bytes(16), bytes(16)).to_bytes() + b"\xff" * 400
    description = bytearray(p.to_bytes())
    description[4:36] = b"\xff" * 32
    tracemalloc.start()
    try:
        for call in (
            lambda: Partial.from_bytes(lying, round_),
            lambda: Partial.from_bytes(lying[:72] + b"\5\0\0\0" + lying[76:], round_),
            lambda: Parameters.from_bytes(bytes(description)),
            lambda: Round.from_bytes(round_.to_bytes()[:-1]),
        ):
            with pytest.raises(TransportError):
                call()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_description_that_leaves_the_bins_open_is_refused_without_choosing_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p = Parameters(1_000_000, 64, 64, 0, 100_000, limit=1, max_clients=10, bins=110_012)
    data = bytearray(p.to_bytes())
    data[32:36] = bytes(4)
    assert Parameters.from_bytes(p.to_bytes()) == p

    def chosen(_: Parameters) -> int:
        raise AssertionError("bins were chosen, which takes a second for every such message")

    monkeypatch.setattr(Parameters, "_choose_bins", chosen)
    with pytest.raises(TransportError, match="leave the number of bins open"):
        Parameters.from_bytes(bytes(data))


@pytest.mark.parametrize("count", [0, 1, 6, (1 << 32) - 1])
def test_share_over_fewer_or_more_clients_than_the_round_allows_is_refused(targets: Any, count: int) -> None:
    share = next(message for name, message in targets.valid if name == "partial")
    with pytest.raises(TransportError, match=r"over 2 \.\. 5 clients"):
        Partial.from_bytes(share[:72] + count.to_bytes(4, "little") + share[76:], targets.round)


def test_share_with_a_client_twice_or_out_of_order_is_refused(targets: Any) -> None:
    share = next(message for name, message in targets.valid if name == "partial")
    for clients in (share[76:92] * 2, share[92:108] + share[76:92]):
        with pytest.raises(TransportError, match="distinct and in order"):
            Partial.from_bytes(share[:76] + clients + share[108:], targets.round)
