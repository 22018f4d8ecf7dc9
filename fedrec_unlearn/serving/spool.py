"""What a server keeps on disk, so that a restart loses nothing that was acknowledged.

::

    spool/
      lock          held by the process that uses the folder
      owner         party and sealing key the contents belong to
      ledger.json   the round that is open or was closed last, and the highest round of every run
      <run>/<number>/
        round       the round and its table
        messages    every accepted message, as the client sealed it (`log_file`)
        closed      after closing, instead of both: the round, who was in the sum, this server's part of it

One round is kept: opening a later one removes the one before, closed or given up. Closing removes the messages and
the table; what is left stays until the next round is opened, so that closing can be repeated after a lost answer.
The ledger keeps one line per run for good: a round of a run is opened once, and never again after a later one.

Guarantee: a client's seeds lie here only under the server's sealing key, which is not in this folder, and for no
longer than the round is open. Files have mode 0600, folders 0700.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fedrec_unlearn.errors import ConfigError, RunError
from fedrec_unlearn.serving.log_file import LogFile
from fedrec_unlearn.serving.private_files import sync_folder, write_private
from fedrec_unlearn.serving.refused import RefusedError

_LENGTH = struct.Struct("<Q")
_ROUND_MAGIC = b"fedrec round 1\n"
_CLOSED_MAGIC = b"fedrec closed 1\n"


@dataclass(frozen=True)
class OpenRound:
    """A round that receives."""

    description: bytes
    """`secemb.Round.to_bytes`."""
    table: bytes
    """Little-endian int64, row by row."""
    log: LogFile
    """Its messages; at start `replay` it."""


@dataclass(frozen=True)
class ClosedRound:
    """A round whose sum is made."""

    description: bytes
    """`secemb.Round.to_bytes`."""
    accepted: frozenset[bytes]
    """Ids of the clients in the sum."""
    partial: bytes
    """This server's part of it."""


class Spool:
    """The folder of one server, held by one process."""

    def __init__(self, folder: Path, party: int, public_key: bytes) -> None:
        """Take the folder, making it if need be, and read what is in it.

        Args:
            folder: nothing outside it is written.
            party: 0 or 1.
            public_key: of this server, 32 bytes.

        Raises:
            ConfigError: the folder is another party's, holds other things, or is in use.
            RunError: its contents are damaged.
            OSError: it cannot be read or written.
        """
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(f"spool {self.folder} is a file; name a folder")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = self._take_lock()
        try:
            self._check_owner(party, public_key)
            self._opened: dict[str, int] = {}
            self._current: tuple[str, int] | None = None
            self._read_ledger()
            self._remove_others()
            self.current: OpenRound | ClosedRound | None = self._read_current()
            """The round that is open or was closed last."""
        except BaseException:
            self._lock.close()
            raise

    def may_open(self, run: bytes, number: int) -> None:
        """See whether a round may be opened.

        Raises:
            RefusedError: it or a later one of its run was opened before.
        """
        highest = self._opened.get(run.hex(), -1)
        if number <= highest:
            raise RefusedError(
                409,
                f"round {number} of this run cannot be opened: round {highest} was; "
                "a round is opened once, so go on with a later one or take a new run id",
            )

    def open(self, run: bytes, number: int, description: bytes, table: bytes) -> OpenRound:
        """Write a new round, then remove the one before.

        Args:
            run: identifier of the run, 16 bytes.
            number: of the round.
            description: `secemb.Round.to_bytes`.
            table: little-endian int64, row by row.

        Raises:
            RefusedError: as `may_open`.
            OSError: it cannot be written; the round before is still the current one.
        """
        self.may_open(run, number)
        place = self._place((run.hex(), number))
        shutil.rmtree(place, ignore_errors=True)  # of an attempt that was cut short
        place.parent.mkdir(mode=0o700, exist_ok=True)
        place.mkdir(mode=0o700)
        write_private(place / "round", _pack(_ROUND_MAGIC, [description, table]))
        log = LogFile(place / "messages")
        try:
            for _ in log.replay():
                raise AssertionError("a new log is empty")
            for made in (place, place.parent, self.folder):
                sync_folder(made)
            self._write_ledger((run.hex(), number))  # from here on it is the current round
        except BaseException:
            log.close()
            raise
        if isinstance(self.current, OpenRound):
            self.current.log.close()
        self.current = OpenRound(description, table, log)
        self._remove_others()
        return self.current

    def close_round(self, accepted: frozenset[bytes], partial: bytes) -> ClosedRound:
        """Write who was in the sum and this server's part of it, then remove the round's messages and table.

        Raises:
            OSError: it cannot be written; the round is still open.
        """
        current = self.current
        if not isinstance(current, OpenRound) or self._current is None:
            raise AssertionError("no round is open")
        closed = ClosedRound(current.description, accepted, partial)
        place = self._place(self._current)
        parts = [closed.description, b"".join(sorted(accepted)), partial]
        write_private(place / "closed", _pack(_CLOSED_MAGIC, parts))
        self.current = closed
        with contextlib.suppress(OSError):  # the round is closed all the same; the next start tries again
            current.log.close()
            _remove_messages(place)
        return closed

    def release(self) -> None:
        """Close the files and let another process have the folder."""
        if isinstance(self.current, OpenRound):
            self.current.log.close()
        self._lock.close()

    def _take_lock(self) -> IO[bytes]:
        path = self.folder / "lock"
        lock = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise ConfigError(
                f"spool {self.folder} is in use by another process; stop that server or name another folder"
            ) from error
        return lock

    def _check_owner(self, party: int, public_key: bytes) -> None:
        path = self.folder / "owner"
        mine = {"party": party, "sealing_key": hashlib.sha256(public_key).hexdigest()}
        if not path.exists():
            others = sorted(entry.name for entry in self.folder.iterdir() if entry.name != "lock")
            if others:
                raise ConfigError(f"spool {self.folder} holds other things ({others[0]}); name a new or empty folder")
            write_private(path, (json.dumps(mine) + "\n").encode())
            return
        theirs = _read_json(path)
        if theirs.get("party") != party:
            raise ConfigError(
                f"spool {self.folder} belongs to party {theirs.get('party')}, not to {party}; "
                "each server has a folder of its own"
            )
        if theirs != mine:
            raise ConfigError(
                f"spool {self.folder} was written under another sealing key, its messages cannot be read with this "
                "one; give --certs the set it was made with, or name a new folder"
            )

    def _read_ledger(self) -> None:
        path = self.folder / "ledger.json"
        if not path.exists():
            return
        content = _read_json(path)
        try:
            self._opened = {str(run): int(number) for run, number in content["opened"].items()}
            run, number = content["current"]
            self._current = (str(run), int(number))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"{path} is damaged; restore it, or move the spool folder away and start anew") from error

    def _write_ledger(self, current: tuple[str, int]) -> None:
        opened = self._opened | {current[0]: current[1]}
        content = json.dumps({"current": current, "opened": opened}, indent=0) + "\n"
        write_private(self.folder / "ledger.json", content.encode())
        self._opened, self._current = opened, current

    def _read_current(self) -> OpenRound | ClosedRound | None:
        if self._current is None:
            return None
        place = self._place(self._current)
        if not place.exists():  # moved away by hand, to give the round up
            return None
        if (place / "closed").exists():
            description, ids, partial = _unpack(place / "closed", _CLOSED_MAGIC, 3)
            _remove_messages(place)
            return ClosedRound(description, frozenset(ids[i : i + 16] for i in range(0, len(ids), 16)), partial)
        description, table = _unpack(place / "round", _ROUND_MAGIC, 2)
        return OpenRound(description, table, LogFile(place / "messages"))

    def _place(self, current: tuple[str, int]) -> Path:
        return self.folder / current[0] / str(current[1])

    def _remove_others(self) -> None:
        """Remove every round but the current one, also what a crash while opening left."""
        current = None if self._current is None else self._place(self._current)
        for run in self.folder.iterdir():
            if not run.is_dir():
                continue
            for place in run.iterdir():
                if place != current:
                    shutil.rmtree(place, ignore_errors=True)  # the next start and the next round try again
            with contextlib.suppress(OSError):  # not empty: it holds the current round
                run.rmdir()


def _remove_messages(place: Path) -> None:
    for name in ("messages", "round"):
        (place / name).unlink(missing_ok=True)
    sync_folder(place)


def _pack(magic: bytes, parts: Sequence[bytes]) -> bytes:
    body = magic + b"".join(_LENGTH.pack(len(part)) + part for part in parts)
    return body + hashlib.sha256(body).digest()


def _unpack(path: Path, magic: bytes, count: int) -> list[bytes]:
    """The parts of a file that `_pack` made.

    Raises:
        RunError: it is missing or not what was written.
    """
    damaged = f"{path} is missing or damaged; restore it, or move {path.parent} away to give this round up"
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise RunError(damaged) from error
    body, checksum = content[:-32], content[-32:]
    if not body.startswith(magic) or hashlib.sha256(body).digest() != checksum:
        raise RunError(damaged)
    parts, position = [], len(magic)
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(body, position)
        position += _LENGTH.size
        parts.append(body[position : position + length])
        position += length
    return parts


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise RunError(f"{path} is damaged; restore it, or move the spool folder away and start anew") from error
    if not isinstance(content, dict):
        raise RunError(f"{path} is damaged; restore it, or move the spool folder away and start anew")
    return content
