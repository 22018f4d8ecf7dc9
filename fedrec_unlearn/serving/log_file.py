"""An append-only file of records that survives a crash at any instant.

A frame is what one call of `append` wrote: its length and CRC-32, little-endian uint32 each, then its records, each a
length (uint32), a kind (one byte) and the payload. A frame is on the disk before `append` returns, so at most the last
one can be torn; it belongs to messages nobody was told were kept, and is cut off when the file is opened again.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedrec_unlearn.errors import RunError

Record = tuple[int, bytes]
"""Kind, 0 .. 255, and payload."""

_FRAME = struct.Struct("<II")
_RECORD = struct.Struct("<IB")


class LogFile:
    """The file, open for appending. Not for several threads at once."""

    def __init__(self, path: Path) -> None:
        """Open or create it; `replay` must run to its end before the first `append`.

        Args:
            path: the file, mode 0600 when it is created.
        """
        self.path = path
        self.cut = 0
        """Bytes of a torn frame that `replay` removed."""
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0)
        self._end: int | None = None

    def replay(self) -> Iterator[Record]:
        """All records, in the order they were appended.

        Raises:
            RunError: a frame before the last one is damaged.
        """
        size, start = os.fstat(self._file.fileno()).st_size, 0
        while start < size:
            frame = self._frame(start, size)
            if frame is None:
                self.cut = size - start
                self._truncate(start)
                break
            yield from _records(frame)
            start += _FRAME.size + len(frame)
        self._end = start

    def append(self, records: Sequence[Record]) -> None:
        """Write records and wait until the disk has them.

        Raises:
            OSError: they could not be written; the file is as it was before if even that could be arranged.
        """
        if self._end is None:
            raise AssertionError("replay comes first")
        if not records:
            return
        body = b"".join(_RECORD.pack(len(payload), kind) + payload for kind, payload in records)
        frame = memoryview(_FRAME.pack(len(body), zlib.crc32(body)) + body)
        try:
            self._file.seek(self._end)
            written = 0
            while written < len(frame):
                written += self._file.write(frame[written:])
            os.fsync(self._file.fileno())
        except OSError:
            self._truncate(self._end)
            raise
        self._end += len(frame)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _frame(self, start: int, size: int) -> bytes | None:
        """The frame at `start`, or None if it is torn and the last."""
        self._file.seek(start)
        head = self._read(min(_FRAME.size, size - start))
        if len(head) < _FRAME.size:
            return None
        length, checksum = _FRAME.unpack(head)
        end = start + _FRAME.size + length
        body = self._read(min(length, size - start - _FRAME.size))
        if length and len(body) == length and zlib.crc32(body) == checksum:
            return body
        # a crash can leave the length of a file on the disk before its contents: zeros, or parts of the last frame
        if end >= size or (not any(head) and not any(self._read(size - start - _FRAME.size))):
            return None
        raise RunError(
            f"{self.path} is damaged at byte {start}, before its end, so what was accepted is not all there; "
            f"check the disk, then move {self.path.parent} away to give this round up"
        )

    def _read(self, count: int) -> bytes:
        parts = []
        while count > 0 and (part := self._file.read(count)):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _truncate(self, end: int) -> None:
        self._file.truncate(end)
        os.fsync(self._file.fileno())


def _records(body: bytes) -> Iterator[Record]:
    position = 0
    while position < len(body):
        length, kind = _RECORD.unpack_from(body, position)
        position += _RECORD.size
        yield kind, body[position : position + length]
        position += length
