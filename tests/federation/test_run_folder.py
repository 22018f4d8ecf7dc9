from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn.errors import RunError
from fedrec_unlearn.federation.run_folder import RunFolder, read_json, write_atomic, write_json


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    yield from mounted(tmp_path / "disk", "size=64k")


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that holds `file` and cannot be written."""
    for place in mounted(tmp_path / "disk", "size=64k"):
        (place / "file").write_bytes(b"old")
        remounted = subprocess.run(["mount", "-o", "remount,ro", str(place)], capture_output=True, text=True)
        if remounted.returncode:
            pytest.skip(f"this machine lets nobody remount a file system: {remounted.stderr.strip()}")
        yield place


def mounted(place: Path, options: str) -> Iterator[Path]:
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("mounting a file system takes root")
    place.mkdir()
    try:
        tried = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if tried.returncode:
        pytest.skip(f"this machine lets nobody mount: {tried.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_file_is_written_whole_with_nothing_beside_it(tmp_path: Path) -> None:
    write_atomic(tmp_path / "file", b"first")
    write_atomic(tmp_path / "file", b"second")
    assert (tmp_path / "file").read_bytes() == b"second"
    assert names(tmp_path) == ["file"]


def test_a_file_has_the_permissions_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_atomic(tmp_path / "private", b"rows")
        os.umask(0o022)
        write_atomic(tmp_path / "open", b"rows")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o644


REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only; choose another folder with --output",
    errno.EACCES: "permission denied; choose another folder with --output",
}


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
@pytest.mark.parametrize("number", REMEDIES, ids=errno.errorcode.get)
def test_a_failure_at_any_step_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    write_atomic(tmp_path / "file", b"old")

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        if step == "write":
            unwritable = type("Unwritable", (io.FileIO,), {"write": fail})
            patched.setattr(Path, "open", lambda path, mode: unwritable(path, mode))
        else:
            patched.setattr(os, step, fail)
        with pytest.raises(RunError, match=REMEDIES[number]) as told:
            write_atomic(tmp_path / "file", b"new")
    assert str(tmp_path / "file") in str(told.value)
    assert "Nothing written before is lost" in str(told.value)
    assert (tmp_path / "file").read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_an_interruption_while_writing_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "file", b"new")
    assert names(tmp_path) == []


def test_trouble_with_tidying_up_does_not_hide_why_the_writing_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def read_only(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(RunError, match="the disk is full"):
        write_atomic(tmp_path / "file", b"new")


def test_a_full_disk_is_told_and_the_old_file_stays(small_disk: Path) -> None:
    write_atomic(small_disk / "file", b"old")
    with pytest.raises(RunError, match="the disk is full; free some space"):
        write_atomic(small_disk / "file", b"x" * 100_000)
    assert (small_disk / "file").read_bytes() == b"old"
    assert names(small_disk) == ["file"]
    write_atomic(small_disk / "file", b"y" * 1000)


def append_many(folder: RunFolder, event: dict[str, Any]) -> None:
    for _ in range(200):
        folder.append_event(event)


def test_events_on_a_full_disk_are_told_and_can_be_cut_back(small_disk: Path) -> None:
    folder = RunFolder.create(small_disk / "run")
    event = {"event": "round", "text": "x" * 900}
    folder.append_event(event)
    size = folder.events_size()
    with pytest.raises(RunError, match=r"events\.jsonl could not be written: the disk is full"):
        append_many(folder, event)
    folder.cut_events(size)
    assert [json.loads(line) for line in folder.events.read_text().splitlines()] == [event]


def test_a_read_only_disk_is_told_with_the_option_that_helps(read_only_disk: Path) -> None:
    for attempt in (
        lambda: write_atomic(read_only_disk / "file", b"new"),
        lambda: RunFolder.create(read_only_disk / "run"),
        lambda: RunFolder.next_in(read_only_disk / "runs", "demo"),
    ):
        with pytest.raises(RunError, match="read-only; choose another folder with --output"):
            attempt()
    assert (read_only_disk / "file").read_bytes() == b"old"


def test_a_folder_without_write_permission_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:  # root may write anywhere
        opened = Path.open

        def deny(path: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
            if "r" not in mode:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return opened(path, mode, *args, **options)

        monkeypatch.setattr(Path, "open", deny)
    else:
        tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="permission denied; choose another folder with --output"):
        write_atomic(tmp_path / "file", b"new")


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"a" * 50_000)
    stop = threading.Event()
    seen: set[bytes] = set()

    def read() -> None:
        while not stop.is_set():
            content = path.read_bytes()
            seen.add(content[:1] * (len(content) == 50_000 and len(set(content)) == 1))

    reader = threading.Thread(target=read)
    reader.start()
    for letter in (b"b", b"a") * 20:
        write_atomic(path, letter * 50_000)
    stop.set()
    reader.join()
    assert seen <= {b"a", b"b"}


def test_json_has_no_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "f.json", {"a": float("nan"), "b": [1.5, float("inf")], "c": {"d": float("-inf")}, "e": (1,)})
    assert read_json(tmp_path / "f.json") == {"a": None, "b": [1.5, None], "c": {"d": None}, "e": [1]}
    assert "NaN" not in (tmp_path / "f.json").read_text()


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b'{"a": ', "cannot be read"), (b"\xff\xfe", "cannot be read"), (b"[1]", "does not hold a JSON object")],
)
def test_a_damaged_json_file_is_told(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunError, match=problem) as told:
        read_json(tmp_path / "run.json")
    assert str(tmp_path / "run.json") in str(told.value)


def test_a_missing_run_json_asks_whether_this_is_a_run_folder(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"run\.json is missing; is .* a run folder"):
        read_json(tmp_path / "run.json")


def test_a_new_folder_is_made_and_an_empty_one_taken(tmp_path: Path) -> None:
    assert RunFolder.create(tmp_path / "a" / "b").path.is_dir()
    (tmp_path / "empty").mkdir()
    folder = RunFolder.create(tmp_path / "empty")
    assert names(folder.path) == ["events.jsonl"]


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RunError, match=r"exists and is not empty; choose another folder with --output$"):
        RunFolder.create(tmp_path)
    with pytest.raises(RunError, match=r"is a file; choose another folder with --output"):
        RunFolder.create(tmp_path / "thesis.txt")
    with pytest.raises(RunError, match=r"a part of the path is a file"):
        RunFolder.create(tmp_path / "thesis.txt" / "run")
    assert names(tmp_path) == ["thesis.txt"]


def test_a_folder_left_by_a_run_killed_while_starting_is_used_again(tmp_path: Path) -> None:
    for left in ([], ["events.jsonl"], ["events.jsonl", "config.yaml"], ["events.jsonl", "latest.safetensors"]):
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        path.mkdir()
        for name in left:
            (path / name).write_bytes(b"" if name == "events.jsonl" else b"old")
        (path / ".config.yaml.0123456789abcdef.part").write_bytes(b"half")
        RunFolder.create(path)
        assert names(path) == sorted({*left, "events.jsonl"})


@pytest.mark.parametrize(
    "content",
    [
        {"config.yaml": b"a configuration of one's own"},
        {"events.jsonl": b"{}\n", "config.yaml": b"x", "latest.safetensors": b"a run whose run.json was lost"},
        {"events.jsonl": b"", "notes.txt": b"x"},
        {".hidden": b"x"},
    ],
)
def test_a_folder_with_anything_of_value_is_not_taken_for_a_killed_start(
    tmp_path: Path, content: dict[str, bytes]
) -> None:
    for name, value in content.items():
        (tmp_path / name).write_bytes(value)
    with pytest.raises(RunError, match="exists and is not empty"):
        RunFolder.create(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == content


def test_numbered_folders_take_the_first_free_number(tmp_path: Path) -> None:
    for expected in ("demo-001", "demo-002", "demo-003"):
        assert RunFolder.next_in(tmp_path, "demo").path.name == expected
    (tmp_path / "demo-002" / "events.jsonl").unlink()
    (tmp_path / "demo-002").rmdir()
    assert RunFolder.next_in(tmp_path, "demo").path.name == "demo-002"
    assert RunFolder.next_in(tmp_path, "other").path.name == "other-001"


def test_runs_started_at_once_get_folders_of_their_own(tmp_path: Path) -> None:
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(RunFolder.next_in(tmp_path, "demo").path)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 8


def test_events_are_one_json_object_a_line_and_can_be_cut_back(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    sizes = []
    for number in range(4):
        folder.append_event({"event": "round", "round": number, "loss": float("nan") if number == 1 else 0.5})
        sizes.append(folder.events_size())
    lines = folder.events.read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [0, 1, 2, 3]
    assert json.loads(lines[1])["loss"] is None
    folder.cut_events(sizes[1])
    assert folder.events.read_text().splitlines() == lines[:2]
    folder.append_event({"event": "round", "round": 2})
    assert len(folder.events.read_text().splitlines()) == 3


@pytest.mark.parametrize("lost", ["all", "some"])
def test_a_log_shorter_than_its_checkpoint_is_not_padded(tmp_path: Path, lost: str) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.append_event({"event": "round", "round": 1})
    size = folder.events_size()
    if lost == "all":
        folder.events.unlink()
    else:
        folder.events.write_bytes(folder.events.read_bytes()[:10])
    with pytest.raises(RunError, match=rf"events\.jsonl has \d+ bytes, the checkpoint was written after {size}"):
        folder.cut_events(size)


def test_fields_of_run_json_change_one_by_one(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    write_json(folder.run, {"status": "running", "seed": 3})
    folder.update_run(status="finished", rounds_done=9)
    assert read_json(folder.run) == {"status": "finished", "seed": 3, "rounds_done": 9}


def test_what_a_killed_process_left_half_written_is_swept_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path / "run")
    write_atomic(folder.latest, b"state")
    (folder.path / ".latest.safetensors.mine").write_bytes(b"a user's own file")
    with monkeypatch.context() as patched, contextlib.suppress(RuntimeError):
        # a kill runs no clean-up: the half-written file stays
        patched.setattr(Path, "unlink", lambda *_, **__: None)

        def killed(_: int) -> None:
            raise RuntimeError

        patched.setattr(os, "fsync", killed)
        write_atomic(folder.latest, b"newer state")
    assert len(names(folder.path)) == 4
    folder.sweep()
    assert names(folder.path) == [".latest.safetensors.mine", "events.jsonl", "latest.safetensors"]
    assert folder.latest.read_bytes() == b"state"
