"""The spool folder: what a restart finds, what is kept, and whose it is."""

from __future__ import annotations

import stat

import pytest

from fedrec_unlearn.errors import ConfigError, RunError
from fedrec_unlearn.serving.refused import RefusedError
from fedrec_unlearn.serving.spool import ClosedRound, OpenRound, Spool

KEY = bytes(range(32))
RUN, OTHER = b"a" * 16, b"b" * 16
CLIENTS = frozenset({b"1" * 16, b"2" * 16})


@pytest.fixture
def take(tmp_path):
    """Opens the spool as a starting server does, after the one before has ended."""
    held = []

    def make(party=0, key=KEY):
        while held:
            held.pop().release()
        held.append(Spool(tmp_path / "spool", party, key))
        return held[-1]

    yield make
    for spool in held:
        spool.release()


def _messages(spool):
    assert isinstance(spool.current, OpenRound)
    return [payload for _, payload in spool.current.log.replay()]


def test_an_open_round_is_found_after_a_restart(take):
    spool = take()
    assert spool.current is None
    spool.open(RUN, 3, b"description", b"table").log.append([(1, b"message")])
    spool = take()
    assert (spool.current.description, spool.current.table) == (b"description", b"table")
    assert _messages(spool) == [b"message"]


def test_a_closed_round_is_found_after_a_restart_without_its_messages_and_table(take, tmp_path):
    spool = take()
    spool.open(RUN, 3, b"description", b"the table").log.append([(1, b"the message")])
    spool.close_round(CLIENTS, b"partial")
    contents = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"the message" not in contents
    assert b"the table" not in contents
    assert take().current == ClosedRound(b"description", CLIENTS, b"partial")


def test_messages_that_a_crash_left_beside_a_closed_round_are_removed(take, tmp_path, monkeypatch):
    spool = take()
    spool.open(RUN, 3, b"description", b"table").log.append([(1, b"message")])
    with monkeypatch.context() as patch:
        patch.setattr("fedrec_unlearn.serving.spool._remove_messages", lambda place: None)
        spool.close_round(CLIENTS, b"partial")
    place = tmp_path / "spool" / RUN.hex() / "3"
    assert (place / "messages").exists()
    assert isinstance(take().current, ClosedRound)
    assert [path.name for path in place.iterdir()] == ["closed"]


def test_opening_a_round_removes_the_one_before(take, tmp_path):
    spool = take()
    spool.open(RUN, 1, b"one", b"")
    spool.close_round(CLIENTS, b"partial")
    spool.open(RUN, 2, b"two", b"")
    spool.open(OTHER, 0, b"other", b"")
    folders = sorted(str(path.relative_to(tmp_path / "spool")) for path in (tmp_path / "spool").glob("*/*"))
    assert folders == [f"{OTHER.hex()}/0"]
    assert sorted(path.name for path in (tmp_path / "spool").iterdir() if path.is_dir()) == [OTHER.hex()]


@pytest.mark.parametrize("restart", [False, True])
def test_a_round_of_a_run_is_opened_once_even_after_other_runs(take, restart):
    spool = take()
    spool.open(RUN, 5, b"", b"")
    spool.open(OTHER, 1, b"", b"")
    if restart:
        spool = take()
    for number in (5, 4):
        with pytest.raises(RefusedError, match="take a new run id") as caught:
            spool.open(RUN, number, b"", b"")
        assert caught.value.status == 409
    spool.open(RUN, 6, b"", b"")


def test_a_crash_while_opening_leaves_the_round_before(take, tmp_path, monkeypatch):
    spool = take()
    spool.open(RUN, 1, b"one", b"").log.append([(1, b"message")])
    with monkeypatch.context() as patch:
        patch.setattr(Spool, "_write_ledger", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(OSError, match="No space"):
            spool.open(RUN, 2, b"two", b"")
    spool = take()
    assert spool.current.description == b"one"
    assert _messages(spool) == [b"message"]
    assert not (tmp_path / "spool" / RUN.hex() / "2").exists()
    spool.open(RUN, 2, b"two", b"")


def test_files_are_for_their_owner_alone(take, tmp_path):
    spool = take()
    spool.open(RUN, 1, b"one", b"table").log.append([(1, b"message")])
    spool.open(RUN, 2, b"two", b"table")
    spool.close_round(CLIENTS, b"partial")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "spool").rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (tmp_path / "spool").rglob("*")} == {0}


def test_a_folder_in_use_is_refused(tmp_path):
    spool = Spool(tmp_path / "spool", 0, KEY)
    with pytest.raises(ConfigError, match="in use by another process"):
        Spool(tmp_path / "spool", 0, KEY)
    spool.release()
    Spool(tmp_path / "spool", 0, KEY).release()


@pytest.mark.parametrize(
    ("party", "key", "told"), [(1, KEY, "belongs to party 0, not to 1"), (0, bytes(32), "another sealing key")]
)
def test_a_folder_of_another_server_is_refused(take, party, key, told):
    take()
    with pytest.raises(ConfigError, match=told):
        take(party, key)


def test_a_folder_with_other_things_is_refused_and_left_alone(tmp_path):
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "thesis.tex").write_text("chapter")
    with pytest.raises(ConfigError, match=r"other things \(thesis\.tex\)"):
        Spool(tmp_path / "spool", 0, KEY)
    assert (tmp_path / "spool" / "thesis.tex").read_text() == "chapter"


@pytest.mark.parametrize("name", ["round", "closed"])
def test_a_damaged_round_is_told_and_can_be_given_up(take, tmp_path, name):
    spool = take()
    spool.open(RUN, 1, b"one", b"table")
    if name == "closed":
        spool.close_round(CLIENTS, b"partial")
    path = tmp_path / "spool" / RUN.hex() / "1" / name
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match="to give this round up"):
        take()
    path.parent.rename(tmp_path / "elsewhere")
    assert take().current is None


def test_a_damaged_ledger_is_told(take, tmp_path):
    take().open(RUN, 1, b"", b"")
    (tmp_path / "spool" / "ledger.json").write_text('{"current": 3}')
    with pytest.raises(RunError, match=r"ledger\.json is damaged"):
        take()
