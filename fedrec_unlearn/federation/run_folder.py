"""The run folder: files that are whole or absent, and an event log that can be cut back to a checkpoint.

The files and their fields are described in docs/run-folder.md.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrec_unlearn.errors import RunError

if TYPE_CHECKING:
    from torch import Tensor

_REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EACCES: "permission denied; choose another folder with --output",
    errno.EPERM: "permission denied; choose another folder with --output",
    errno.EROFS: "the file system is read-only; choose another folder with --output",
    errno.ENOTDIR: "a part of the path is a file; choose another folder with --output",
}

_TEMPORARY = ".part"
"""Ending of a file that is still being written."""


def write_error(path: Path, error: OSError) -> RunError:
    """The error to raise when `path` cannot be written, with the remedy."""
    remedy = _REMEDIES.get(error.errno or 0, error.strerror or str(error))
    return RunError(f"{path} could not be written: {remedy}. Nothing written before is lost.")


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file beside its name, sync it and rename it, so that no reader ever sees half of it.

    The file gets the permissions the user's umask gives new files: it may hold the clients' private rows.

    Raises:
        RunError: the disk is full, the folder is read-only or cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_TEMPORARY}")
    try:
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            # the folder may have become unwritable meanwhile; what is told is why the writing failed
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise write_error(path, error) from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """`write_atomic` of JSON; NaN, which JSON does not have, becomes null."""
    write_atomic(path, (json.dumps(_finite(content), indent=1) + "\n").encode())


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        RunError: missing or damaged.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing; is {path.parent} a run folder of fedrec train?") from error
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}); restore it or train again") from error
    if not isinstance(content, dict):
        raise RunError(f"{path} does not hold a JSON object; restore it or train again")
    return content


class RunFolder:
    """Paths and writers of one run.

    Args:
        path: an existing folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.run = path / "run.json"
        self.events = path / "events.jsonl"
        self.latest = path / "latest.safetensors"
        self.best = path / "best.safetensors"
        self.before = path / "before.safetensors"
        self.trained = path / "trained.safetensors"
        self.snapshots = path / "snapshots"
        self.metrics = path / "metrics.json"
        self.attack = path / "attack.json"

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """Make a new run folder and see that it can be written.

        run.json is the last file a new run writes, and an empty events.jsonl the first; a folder that holds only
        these and what comes between was left by a run killed while starting, and is used again.

        Raises:
            RunError: the folder exists and is not empty, or cannot be made or written.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            names = {entry.name for entry in path.iterdir()}
        except FileExistsError as error:
            raise RunError(f"{path} is a file; choose another folder with --output") from error
        except OSError as error:
            raise write_error(path, error) from error
        folder = cls(path)
        first = {folder.events.name, folder.config.name, folder.latest.name}
        whole = {name for name in names if not (name.endswith(_TEMPORARY) and name.startswith("."))}
        started = folder.events.is_file() and folder.events.stat().st_size == 0 and whole <= first
        if whole and not started:
            hint = f", or go on with it: fedrec train --resume {path}" if folder.run.name in names else ""
            raise RunError(f"{path} exists and is not empty; choose another folder with --output{hint}")
        folder.sweep()
        write_atomic(folder.events, b"")
        return folder

    @classmethod
    def next_in(cls, parent: Path, stem: str) -> RunFolder:
        """Make `<parent>/<stem>-<number>` with the first free number."""
        for number in range(1, 100_000):
            path = parent / f"{stem}-{number:03d}"
            if path.exists():
                continue
            try:
                path.mkdir(parents=True)
            except FileExistsError:  # another run took it just now
                continue
            except OSError as error:
                raise write_error(path, error) from error
            return cls.create(path)
        raise RunError(f"{parent} holds 99,999 runs named {stem}; name a folder with --output")

    def append_event(self, event: Mapping[str, Any]) -> None:
        """Add one line to the event log.

        Raises:
            RunError: the log cannot be written.
        """
        line = json.dumps(_finite(event), separators=(", ", ": ")) + "\n"
        try:
            with self.events.open("ab") as file:
                file.write(line.encode())
        except OSError as error:
            raise write_error(self.events, error) from error

    def events_size(self) -> int:
        """Bytes in the event log, all on disk when this returns."""
        try:
            with self.events.open("rb") as file:
                os.fsync(file.fileno())
            return self.events.stat().st_size
        except OSError as error:
            raise write_error(self.events, error) from error

    def cut_events(self, size: int) -> None:
        """Drop what was logged after a checkpoint.

        Args:
            size: bytes the log had then.

        Raises:
            RunError: the log has fewer bytes than that, or cannot be written.
        """
        found = self.events.stat().st_size if self.events.is_file() else 0
        if found < size:
            raise RunError(
                f"{self.events} has {found} bytes, the checkpoint was written after {size}; restore it or train again"
            )
        try:
            with self.events.open("ab") as file:
                file.truncate(size)
        except OSError as error:
            raise write_error(self.events, error) from error

    def sweep(self) -> None:
        """Remove what a killed process left half written."""
        states = (self.latest, self.best, self.before, self.trained)
        left = [
            unfinished
            for file in (self.config, self.run, self.events, *states, self.metrics, self.attack)
            for unfinished in self.path.glob(f".{file.name}.*{_TEMPORARY}")
        ]
        left += self.snapshots.glob(f".*{_TEMPORARY}")
        for unfinished in left:
            try:
                unfinished.unlink(missing_ok=True)
            except OSError as error:
                raise write_error(unfinished, error) from error

    def add_snapshot(self, round_number: int, private: Tensor) -> None:
        """Keep the private rows of a round.

        Args:
            round_number: rounds done.
            private: (n_users, width).

        Raises:
            RunError: it cannot be written.
        """
        from safetensors.torch import save

        try:
            self.snapshots.mkdir(exist_ok=True)
        except OSError as error:
            raise write_error(self.snapshots, error) from error
        write_atomic(self._snapshot(round_number), save({"private": private.cpu().contiguous()}))

    def snapshot_rounds(self, up_to: int) -> list[int]:
        """Rounds with a snapshot, ascending, none above `up_to`."""
        names = [path.stem.removeprefix("round-") for path in self.snapshots.glob("round-*.safetensors")]
        return sorted(number for number in map(int, filter(str.isdigit, names)) if number <= up_to)

    def read_snapshot(self, round_number: int) -> Tensor:
        """Private rows of a round, (n_users, width).

        Raises:
            RunError: missing or damaged.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self._snapshot(round_number)
        try:
            return load_file(str(path))["private"]
        except (SafetensorError, OSError, KeyError) as error:
            raise RunError(f"{path} cannot be read ({error}); train again") from error

    def _snapshot(self, round_number: int) -> Path:
        return self.snapshots / f"round-{round_number:06d}.safetensors"

    def update_run(self, **fields: Any) -> None:
        """Change fields of run.json."""
        write_json(self.run, {**read_json(self.run), **fields})
