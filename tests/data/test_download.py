import hashlib
import json
import os
import re
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedrec_unlearn.data import download as download_module
from fedrec_unlearn.data.cards import Card, RemoteFile, Sizes, datasets_folder
from fedrec_unlearn.data.download import RECORD, cache_folder, download, download_card
from fedrec_unlearn.errors import DataError

CONTENT = bytes(range(256)) * 4000  # about 1 MB, several blocks of a transfer


def remote(url: str, content: bytes = CONTENT, **changes) -> RemoteFile:
    file = RemoteFile(
        name="data.txt",
        urls=(url,),
        bytes=len(content),
        md5=None,
        sha256=hashlib.sha256(content).hexdigest(),
        checksum_source="this test",
        archive_root=None,
        members=(),
    )
    return replace(file, **changes)


def card_of(*files: RemoteFile) -> Card:
    sizes = Sizes(1, 1, 1)
    return Card("made-up", "t", "https://h/", "l", False, "c", "csv", files, {}, {}, {}, sizes, "n")


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT; the path says how: /range, /plain (ignores Range), /cut (drops the line in the middle)."""

    def __init__(self, log, *args):
        self.log = log
        super().__init__(*args)

    def log_message(self, *args):
        pass

    def do_GET(self):
        asked = self.headers.get("Range")
        self.log.append((self.path, asked))
        if self.path in ("/away", "/to-file"):
            self.send_response(302)
            self.send_header("Location", "http://example.invalid/x" if self.path == "/away" else "file:///etc/hostname")
            self.end_headers()
            return
        if self.path == "/missing":
            self.send_error(404)
            return
        start = int(re.match(r"bytes=(\d+)-", asked).group(1)) if asked and self.path != "/plain" else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        if self.path != "/endless":
            self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        body = CONTENT[start:]
        if self.path == "/endless":
            body = body * 3
        self.wfile.write(body[: len(body) // 2] if self.path == "/cut" else body)


@pytest.fixture
def server():
    log: list[tuple[str, str | None]] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, log)) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", log
        running.shutdown()
        thread.join()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def leave_half(folder: Path, half: bytes) -> None:
    staging = folder.with_name(folder.name + ".part")
    staging.mkdir(parents=True)
    (staging / "data.txt.part").write_bytes(half)


# ---------------------------------------------------------------- the plain way


@pytest.mark.parametrize("path", ["/range", "/plain"])
def test_a_file_arrives_whole_with_a_record_and_nothing_else_is_left(server, tmp_path, path):
    url, log = server
    told = []
    target = tmp_path / "made-up"
    found = download_card(card_of(remote(url + path)), target, progress=lambda *news: told.append(news))
    assert found == target
    assert (target / "data.txt").read_bytes() == CONTENT
    assert names_in(tmp_path) == ["made-up"]
    record = json.loads((target / RECORD).read_text())
    assert record["files"] == [
        {
            "name": "data.txt",
            "url": url + path,
            "bytes": len(CONTENT),
            "md5": hashlib.md5(CONTENT).hexdigest(),
            "sha256": hashlib.sha256(CONTENT).hexdigest(),
            "verified": True,
        }
    ]
    assert told[-1] == ("data.txt", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    download_card(card_of(remote(url + path)), target)
    assert len(log) == 1, "a finished download must not ask the server again"


def test_local_files_can_be_the_source(tmp_path):
    source = tmp_path / "source.txt"
    source.write_bytes(CONTENT)
    target = download_card(card_of(remote(source.as_uri())), tmp_path / "made-up")
    assert (target / "data.txt").read_bytes() == CONTENT


# ---------------------------------------------------------------- resuming


def test_a_broken_transfer_keeps_what_came_and_goes_on_from_there(server, tmp_path):
    url, log = server
    target = tmp_path / "made-up"
    with pytest.raises(DataError, match=r"the connection ended after 512000 of 1024000 bytes[\s\S]*same command again"):
        download_card(card_of(remote(url + "/cut")), target)
    assert not target.exists()
    download_card(card_of(remote(url + "/range")), target)
    assert (target / "data.txt").read_bytes() == CONTENT
    assert log == [("/cut", None), ("/range", "bytes=512000-")]


def test_a_server_that_ignores_ranges_is_read_from_the_start(server, tmp_path):
    url, log = server
    target = tmp_path / "made-up"
    leave_half(target, CONTENT[:300_001])
    download_card(card_of(remote(url + "/plain")), target)
    assert (target / "data.txt").read_bytes() == CONTENT
    assert log == [("/plain", "bytes=300001-")]


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_a_complete_part_is_taken_and_an_oversized_one_is_started_over(server, tmp_path, size):
    url, log = server
    target = tmp_path / "made-up"
    leave_half(target, CONTENT if size else CONTENT + b"more")
    download_card(card_of(remote(url + "/range", bytes=size)), target)
    assert (target / "data.txt").read_bytes() == CONTENT
    assert len(log) == (0 if size else 2)


def test_without_a_checksum_nothing_is_continued(server, tmp_path):
    url, log = server
    target = tmp_path / "made-up"
    leave_half(target, b"x" * 1000)
    file = remote(url + "/range", sha256=None)
    download_card(card_of(file), target, accept_unverified=True)
    assert (target / "data.txt").read_bytes() == CONTENT
    assert log == [("/range", None)]


# ---------------------------------------------------------------- what must be refused


def test_a_wrong_checksum_deletes_the_file_and_names_both_sums(server, tmp_path):
    url, _ = server
    target = tmp_path / "made-up"
    found = hashlib.sha256(CONTENT).hexdigest()
    with pytest.raises(DataError, match=f"sha256 is {found}, expected {'0' * 64}"):
        download_card(card_of(remote(url + "/range", sha256="0" * 64)), target)
    assert not target.exists()
    assert list(target.with_name("made-up.part").iterdir()) == []


def test_the_next_address_is_tried_when_one_fails_or_sends_something_else(server, tmp_path):
    url, log = server
    other = tmp_path / "other.txt"
    other.write_bytes(b"y" * len(CONTENT))
    urls = (url + "/missing", other.as_uri(), url + "/range")
    target = download_card(card_of(remote(url, urls=urls)), tmp_path / "made-up")
    assert (target / "data.txt").read_bytes() == CONTENT
    assert [path for path, _ in log] == ["/missing", "/range"]


def test_an_unverifiable_file_needs_consent_and_is_recorded_as_such(server, tmp_path):
    url, log = server
    card = card_of(remote(url + "/plain", sha256=None, bytes=None))
    with pytest.raises(DataError, match="pass --accept-unverified"):
        download_card(card, tmp_path / "made-up")
    assert log == []
    target = download_card(card, tmp_path / "made-up", accept_unverified=True)
    (record,) = json.loads((target / RECORD).read_text())["files"]
    assert record["verified"] is False
    assert record["sha256"] == hashlib.sha256(CONTENT).hexdigest()


def test_more_bytes_than_expected_are_stopped_and_deleted(server, tmp_path):
    url, _ = server
    target = tmp_path / "made-up"
    with pytest.raises(DataError, match=f"more than the expected {len(CONTENT)} bytes"):
        download_card(card_of(remote(url + "/endless")), target)
    assert list(target.with_name("made-up.part").iterdir()) == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/away", "http://example.invalid/x is refused"),
        ("/to-file", "file:///etc/hostname' is not allowed"),
        ("/missing", "404"),
    ],
)
def test_bad_answers_of_a_server_are_told(server, tmp_path, path, words):
    url, _ = server
    with pytest.raises(DataError, match=words):
        download_card(card_of(remote(url + path)), tmp_path / "made-up")


def test_unencrypted_addresses_are_refused(tmp_path):
    with pytest.raises(DataError, match="only https is used"):
        download_card(card_of(remote("http://example.invalid/data.txt")), tmp_path / "made-up")


def test_without_a_network_the_message_says_how_to_get_all_files_by_hand(tmp_path):
    # a port nobody listens on
    first = remote("http://127.0.0.1:9/data.txt")
    second = remote("http://127.0.0.1:9/x.zip", name="x.zip", archive_root="x", members=("a.csv", "b.csv"))
    with pytest.raises(DataError) as told:
        download_card(card_of(first, second), tmp_path / "made-up")
    message = str(told.value)
    assert "no connection" in message
    by_hand = message.split("To do it by hand")[1]
    assert "http://127.0.0.1:9/data.txt\n  http://127.0.0.1:9/x.zip\n" in by_hand
    assert f"put data.txt, a.csv, b.csv into {tmp_path / 'made-up'}," in by_hand


def test_a_folder_with_something_else_in_it_is_left_alone(server, tmp_path):
    url, log = server
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DataError, match="is not empty"):
        download_card(card_of(remote(url + "/range")), tmp_path)
    assert names_in(tmp_path) == ["mine.txt"]
    assert log == []


def test_a_full_disk_is_foreseen_before_anything_is_fetched(server, tmp_path, monkeypatch):
    url, log = server
    usage = download_module.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(download_module.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(DataError, match=r"MB are needed.*make room"):
        download_card(card_of(remote(url + "/range")), tmp_path / "made-up")
    assert log == []


def test_a_disk_that_fills_up_on_the_way_is_told_and_leaves_no_target(server, tmp_path, monkeypatch):
    url, _ = server

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"No space left on device.*make room"):
        download_card(card_of(remote(url + "/range")), tmp_path / "made-up")
    assert not (tmp_path / "made-up").exists()


# ---------------------------------------------------------------- archives


def archive_of(folder: Path, members: dict[str, bytes], root: str = "inner") -> RemoteFile:
    path = folder / "made-up.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return remote(
        path.as_uri(), path.read_bytes(), name="made-up.zip", archive_root=root, members=("a.txt", "sub/b.txt")
    )


WHOLE = {"inner/a.txt": b"A" * 50, "inner/sub/b.txt": b"B", "inner/script.sh": b"rm -rf"}


def test_an_archive_gives_its_members_and_nothing_else(tmp_path):
    target = download_card(card_of(archive_of(tmp_path, WHOLE)), tmp_path / "out")
    files = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert files == {"a.txt", "sub/b.txt", RECORD}
    assert (target / "a.txt").read_bytes() == b"A" * 50


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (WHOLE | {"../evil.txt": b"x"}, "outside the folder"),
        (WHOLE | {"/tmp/evil.txt": b"x"}, "outside the folder"),
        (WHOLE | {"inner\\..\\..\\evil.txt": b"x"}, "outside the folder"),
        (WHOLE | {"C:/evil.txt": b"x"}, "outside the folder"),
        ({"inner/a.txt": b"A"}, "holds no inner/sub/b.txt"),
        (WHOLE | {"inner/a.txt": bytes(10**6)}, "100 times its size"),
    ],
)
def test_a_hostile_or_foreign_archive_is_refused(tmp_path, members, words):
    with pytest.raises(DataError, match=words):
        download_card(card_of(archive_of(tmp_path, members)), tmp_path / "deep" / "out")
    assert not (tmp_path / "deep" / "out").exists()
    assert not list(tmp_path.rglob("evil.txt"))


def test_a_damaged_archive_is_refused(tmp_path):
    file = archive_of(tmp_path, WHOLE)
    path = tmp_path / "made-up.zip"
    content = bytearray(path.read_bytes())
    content[len("inner/a.txt") + 32] ^= 0xFF  # inside the first member's data
    path.write_bytes(content)
    file = replace(file, sha256=hashlib.sha256(content).hexdigest())
    with pytest.raises(DataError, match="not a zip archive that can be unpacked"):
        download_card(card_of(file), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_interrupted_unzip_leaves_nothing_usable_and_the_next_call_finishes(tmp_path, monkeypatch):
    card = card_of(archive_of(tmp_path, WHOLE))
    copy, calls = download_module._copy, []

    def interrupted(read, target):
        calls.append(target)
        if len(calls) == 2:
            raise KeyboardInterrupt
        copy(read, target)

    monkeypatch.setattr(download_module, "_copy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        download_card(card, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(download_module, "_copy", copy)
    target = download_card(card, tmp_path / "out")
    assert (target / "sub" / "b.txt").read_bytes() == b"B"
    assert not (tmp_path / "out.part").exists()


# ---------------------------------------------------------------- names and places


def test_the_cache_can_be_moved(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDREC_CACHE", str(tmp_path))
    assert cache_folder("ml-1m") == tmp_path / "ml-1m"
    monkeypatch.delenv("FEDREC_CACHE")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder("ml-1m") == Path("/home/someone/.cache/fedrec-unlearn/ml-1m")


def test_the_synthetic_set_needs_no_download(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDREC_CACHE", str(tmp_path))
    assert download("synthetic") == datasets_folder() / "synthetic"
    assert names_in(tmp_path) == []


def test_an_unknown_name_is_refused_with_a_suggestion():
    with pytest.raises(DataError, match="did you mean 'ml-25m'"):
        download("ml25m")
