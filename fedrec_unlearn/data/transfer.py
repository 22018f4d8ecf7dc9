"""One file over the network: resumable, bounded in size, from addresses that may be used."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

MAX_BYTES = 8 << 30
"""Largest file that is taken where the expected size is not known."""

_CHUNK = 1 << 18
_TIMEOUT_SECONDS = 60


class TransferError(Exception):
    """A file did not arrive from one address; `download` tries the next one or reports it as a `DataError`."""


def fetch(
    url: str,
    part: Path,
    *,
    expected: int | None,
    resume: bool,
    progress: Callable[[int, int | None], None] | None = None,
) -> None:
    """Write the bytes behind an address to a file.

    Args:
        url: https, file, or http on this machine.
        part: the file to write. What an earlier call left there is continued if the server can (HTTP Range) and
            `resume` is set, and written anew otherwise.
        expected: size of the whole file in bytes, or None.
        resume: whether to continue; only sensible where a checksum judges the result.
        progress: called with (bytes so far, bytes in total or None).

    Raises:
        TransferError: the address may not be used or does not deliver, the connection ended early (what arrived is
            kept for the next call), or more bytes came than expected (the file is deleted).
        OSError: the file cannot be written, for example because the disk is full.
    """
    refusal = _refusal(url)
    if refusal:
        raise TransferError(refusal)
    have = part.stat().st_size if resume and part.exists() else 0
    if have and have == expected:
        return
    if expected is not None and have > expected:
        have = 0
    try:
        answer, start = _open(url, have)
    except urllib.error.HTTPError as error:
        raise TransferError(f"the server answered {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise TransferError(f"no connection: {getattr(error, 'reason', error)}") from error
    with answer:
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length is not None and length.isdigit() else expected
        limit = expected if expected is not None else MAX_BYTES
        with part.open("r+b" if start else "wb") as sink:
            sink.seek(start)
            sink.truncate()
            done = _pump(answer, sink, start, limit, total, progress)
            sink.flush()
            os.fsync(sink.fileno())
    if done > limit:
        part.unlink()
        raise TransferError(f"more than the {'expected' if expected is not None else 'allowed'} {limit} bytes arrived")
    if total is not None and done < total:
        raise TransferError(f"the connection ended after {done} of {total} bytes")


def checksums(path: Path) -> tuple[str, str]:
    """md5 and sha256 of a file, in hexadecimal."""
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    with path.open("rb") as source:
        while block := source.read(_CHUNK):
            md5.update(block)
            sha256.update(block)
    return md5.hexdigest(), sha256.hexdigest()


def _pump(
    answer: Any,
    sink: IO[bytes],
    start: int,
    limit: int,
    total: int | None,
    progress: Callable[[int, int | None], None] | None,
) -> int:
    """Copy until the end, at most one byte beyond `limit`; the number of bytes the file has then."""
    done = start
    while done <= limit:
        try:
            block = answer.read(min(_CHUNK, limit + 1 - done))
        except (OSError, http.client.HTTPException) as error:  # of the network: the file is not touched here
            sink.flush()
            raise TransferError(f"the connection broke after {done} bytes: {error!r}") from error
        if not block:
            break
        sink.write(block)
        done += len(block)
        if progress:
            progress(done, total)
    return done


def _open(url: str, have: int) -> tuple[Any, int]:
    """The answer, and the position in the file at which it starts."""
    opener = urllib.request.build_opener(_CheckedRedirects())
    # identity: with a compressed transfer, positions and sizes would not be those of the file
    headers = {"User-Agent": "fedrec-unlearn", "Accept-Encoding": "identity"}
    if have and not url.startswith("file:"):
        ranged = urllib.request.Request(url, headers=headers | {"Range": f"bytes={have}-"})
        try:
            answer = opener.open(ranged, timeout=_TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            if error.code != 416:  # 416: what we have is not a beginning of that file
                raise
        else:
            if answer.status != 206:  # the server ignores ranges and sends the whole file
                return answer, 0
            begins = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
            if begins and int(begins.group(1)) == have:
                return answer, have
            answer.close()
    return opener.open(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_SECONDS), 0


def _refusal(url: str) -> str | None:
    parts = urllib.parse.urlsplit(url)
    local = parts.hostname in ("127.0.0.1", "::1", "localhost")
    if parts.scheme in ("https", "file") or (parts.scheme == "http" and local):
        return None
    return f"address {url} is refused: only https is used (http on this machine, file)"


class _CheckedRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to an address that may be used (urllib itself never follows one to a file)."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        refusal = _refusal(newurl)
        if refusal:
            raise urllib.error.URLError(refusal)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
