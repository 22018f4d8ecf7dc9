"""Files that only their owner may read, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 atomically and durably.

    Args:
        path: the file; its folder exists.
        content: all of it.

    Raises:
        OSError: the file cannot be written; what was there before stands.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):  # left by a process of the same number that was killed
        temporary.unlink()
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as sink:
            sink.write(content)
            sink.flush()
            os.fsync(sink.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names created in, renamed in or removed from a folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
