"""The log of accepted messages: what survives which accident."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrec_unlearn.errors import RunError
from fedrec_unlearn.serving.log_file import LogFile

FRAMES = [[(1, b"first"), (2, b"")], [(1, b"x" * 100)], [(3, b"last"), (1, b"of all")]]
RECORDS = [record for frame in FRAMES for record in frame]


def _written(path, frames=FRAMES):
    """Write frames; the file's size after each."""
    log, sizes = LogFile(path), []
    assert list(log.replay()) == []
    for frame in frames:
        log.append(frame)
        sizes.append(path.stat().st_size)
    log.close()
    return sizes


def _read(path):
    log = LogFile(path)
    try:
        return list(log.replay()), log.cut
    finally:
        log.close()


@given(st.lists(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=50)), min_size=1, max_size=4), max_size=5))
@settings(max_examples=30, deadline=None)
def test_what_is_appended_comes_back_in_order(tmp_path_factory, frames):
    path = tmp_path_factory.mktemp("log") / "log"
    _written(path, frames)
    assert _read(path) == ([record for frame in frames for record in frame], 0)


def test_a_torn_last_frame_is_cut_off_wherever_it_ends(tmp_path):
    path = tmp_path / "log"
    sizes = _written(path)
    content = path.read_bytes()
    for size in range(sizes[1] + 1, sizes[2]):
        path.write_bytes(content[:size])
        records, cut = _read(path)
        assert records == RECORDS[:3]
        assert cut == size - sizes[1]
        assert path.stat().st_size == sizes[1]


def test_after_a_cut_the_log_goes_on(tmp_path):
    path = tmp_path / "log"
    sizes = _written(path)
    os.truncate(path, sizes[2] - 1)
    log = LogFile(path)
    assert len(list(log.replay())) == 3
    log.append([(9, b"after")])
    log.close()
    assert _read(path)[0] == [*RECORDS[:3], (9, b"after")]


@pytest.mark.parametrize("tail", [bytes(7), bytes(8), bytes(5000)])
def test_zeros_that_a_crash_left_behind_are_cut_off(tmp_path, tail):
    path = tmp_path / "log"
    _written(path)
    with path.open("ab") as file:
        file.write(tail)
    assert _read(path) == (RECORDS, len(tail))


def test_a_last_frame_whose_bytes_did_not_all_arrive_is_cut_off(tmp_path):
    path = tmp_path / "log"
    sizes = _written(path)
    content = bytearray(path.read_bytes())
    content[sizes[1] + 8 : sizes[1] + 12] = bytes(4)
    path.write_bytes(content)
    assert _read(path) == (RECORDS[:3], sizes[2] - sizes[1])


@pytest.mark.parametrize("position", [9, 30])
def test_damage_before_the_last_frame_is_told_and_nothing_is_cut(tmp_path, position):
    path = tmp_path / "log"
    _written(path)
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match="damaged at byte"):
        _read(path)
    assert path.read_bytes() == content


def test_a_write_that_fails_leaves_the_log_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "log"
    _written(path)
    before, real = path.read_bytes(), os.fsync
    log = LogFile(path)
    assert list(log.replay()) == RECORDS
    failures = iter([OSError(28, "No space left on device")])

    def fsync(descriptor):
        for error in failures:
            raise error
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space"):
        log.append([(1, b"too much")])
    assert path.read_bytes() == before
    log.append([(1, b"fits")])
    log.close()
    assert _read(path)[0] == [*RECORDS, (1, b"fits")]


def test_append_returns_only_after_the_disk_has_it(tmp_path, monkeypatch):
    path = tmp_path / "log"
    log, seen, real = LogFile(path), [], os.fsync
    list(log.replay())
    monkeypatch.setattr(os, "fsync", lambda descriptor: (seen.append(path.read_bytes()), real(descriptor)))
    log.append([(1, b"content")])
    log.close()
    assert seen == [path.read_bytes()]
    assert b"content" in seen[0]
