"""The folder of a study, which one process at a time works in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrec_unlearn.errors import RunError
from fedrec_unlearn.federation.run_folder import write_error


@contextmanager
def study_folder(output: Path, name: str) -> Iterator[Path]:
    """A study's folder, made if need be, for this process alone.

    The system lifts the lock when the process ends, however it does.

    Args:
        output: folder of studies.
        name: of the study's.

    Raises:
        RunError: it cannot be written, or another process works in it.
    """
    folder = Path(output) / name
    try:
        (folder / "results").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    with _alone(folder):
        yield folder


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # a system without file locks
        yield
        return
    try:
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise write_error(folder / ".lock", error) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"{folder} is in use by another fedrec bench; wait for it, or choose another --output"
            ) from None
        yield
    finally:
        os.close(handle)
