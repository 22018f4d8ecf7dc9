"""Fetch the files a data card names, check them, and put them into place all at once.

Everything happens in a folder beside the target (`<target>.part`); the target appears by one rename when every
file is complete, checked and unpacked. So a target folder is whole or it is not there, whatever interrupts. A
broken transfer is continued by the next call, if a checksum is known that will judge the result.

**Guarantee.** Against a server or a network that sends wrong bytes: with a checksum in the card nothing but the
published bytes is unpacked or put into place (md5 alone, used where no sha256 is known, does not hold against
someone who crafts a file on purpose). Without one the caller must say `accept_unverified`, and what arrived is
recorded. In either case nothing is written outside the folders asked for.

| case | behaviour |
|---|---|
| address neither https nor file, and not http on this machine | refused, also after a redirect |
| more bytes than the card says | stopped at the first byte too many, part deleted |
| wrong checksum | part deleted, next address tried, then an error with both sums |
| archive names an absolute path or `..`, or lacks a member | refused before anything is unpacked |
| archive would unpack to more than 100 times its size | refused before anything is unpacked |
| target folder holds something else | refused before anything is fetched |
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from fedrec_unlearn.data.cards import Card, RemoteFile, datasets_folder, read_card
from fedrec_unlearn.data.transfer import TransferError, checksums, fetch
from fedrec_unlearn.errors import DataError

RECORD = "download.json"
"""File in a downloaded folder that says what was fetched; its presence marks the folder as complete."""

_MAX_RATIO = 100
_CHUNK = 1 << 20

Progress = Callable[[str, int, int | None], None]
"""Called with (file name, bytes so far, bytes in total or None) while a file arrives."""


@dataclass(frozen=True)
class Fetched:
    """What arrived for one file of a card."""

    name: str
    url: str
    bytes: int
    md5: str
    sha256: str
    verified: bool


def cache_folder(name: str) -> Path:
    """Where `download` puts a data set: ``$FEDREC_CACHE/<name>``, else ``~/.cache/fedrec-unlearn/<name>``."""
    root = os.environ.get("FEDREC_CACHE")
    return (Path(root).expanduser() if root else Path.home() / ".cache" / "fedrec-unlearn") / name


def download(
    name: str, folder: Path | None = None, *, progress: Progress | None = None, accept_unverified: bool = False
) -> Path:
    """Fetch a data set that has a card, unless it is there already.

    Args:
        name: the data set, for example ml-1m.
        folder: target folder, absent or empty; `cache_folder(name)` if not given.
        progress: told about each file while it arrives.
        accept_unverified: take files for which the card has no checksum.

    Returns:
        The folder with the files. For the synthetic set, which is part of the package, the folder it lies in.

    Raises:
        DataError: no such card; no network; a wrong size or checksum; no checksum known and not accepted; disk full;
            a malformed archive; the target folder is in use. The message says what to do.
    """
    card = read_card(name)
    if not card.files:
        return datasets_folder() / name
    return download_card(card, folder or cache_folder(name), progress=progress, accept_unverified=accept_unverified)


def download_card(
    card: Card, folder: Path, *, progress: Progress | None = None, accept_unverified: bool = False
) -> Path:
    """`download` for a card that need not be one of ours."""
    folder = Path(folder)
    if (folder / RECORD).is_file():
        return folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(
            f"{folder} is not empty and was not made by a finished download of {card.name}; "
            "choose another folder, or remove it if it is left over"
        )
    unknown = [file.name for file in card.files if not file.verifiable]
    if unknown and not accept_unverified:
        raise DataError(
            f"{card.name}: no checksum is known for {', '.join(unknown)}, so a wrong file could not be told from the "
            f"right one; pass --accept-unverified to take what arrives (its sha256 is recorded in {RECORD})"
        )
    staging = folder.with_name(folder.name + ".part")
    try:
        staging.mkdir(parents=True, exist_ok=True)
        _check_space(card, staging)
        fetched = [_fetch_file(card, file, folder, staging, progress) for file in card.files]
        ready = _assemble(card, fetched, staging)
        if folder.exists():
            folder.rmdir()
        ready.replace(folder)
    except OSError as error:
        raise DataError(
            f"{card.name}: cannot write to {error.filename or staging}: {error.strerror or error}. What arrived so far "
            "is kept: make room or give write access and run the same command again, or choose another folder "
            "(FEDREC_CACHE moves the cache)"
        ) from error
    shutil.rmtree(staging, ignore_errors=True)
    return folder


def _check_space(card: Card, staging: Path) -> None:
    there = sum(path.stat().st_size for path in staging.iterdir() if path.is_file())
    # an archive and what is in it lie side by side for a moment; text packs to about a quarter
    needed = sum((file.bytes or 0) * (5 if file.members else 1) for file in card.files) - there
    free = shutil.disk_usage(staging).free
    if free < needed:
        raise DataError(
            f"{card.name}: about {needed / 1e6:.0f} MB are needed in {staging.parent}, {free / 1e6:.0f} MB are free; "
            "make room, or choose another folder (FEDREC_CACHE moves the cache)"
        )


def _fetch_file(card: Card, file: RemoteFile, folder: Path, staging: Path, progress: Progress | None) -> Fetched:
    """The checked file in `staging`, from the first address that delivers it."""
    target, part = staging / file.name, staging / f"{file.name}.part"
    problems = []
    for url in file.urls:
        try:
            if not target.exists():
                report = (lambda done, total: progress(file.name, done, total)) if progress else None
                fetch(url, part, expected=file.bytes, resume=file.verifiable, progress=report)
                part.replace(target)
            return _verified(file, url, target)
        except TransferError as error:
            problems.append(f"  {url}\n    {error}")
    by_hand = [f"  {wanted.urls[0]}" for wanted in card.files]
    used = [member for wanted in card.files for member in (wanted.members or (wanted.name,))]
    raise DataError(
        f"{card.name}: {file.name} could not be fetched:\n"
        + "\n".join(problems)
        + "\nRun the same command again to go on where it stopped. To do it by hand, get\n"
        + "\n".join(by_hand)
        + f"\n(page: {card.home})\nand put {', '.join(used)} into {folder}, or into any folder that data.dir "
        "or FEDREC_DATA then names"
    )


def _verified(file: RemoteFile, url: str, target: Path) -> Fetched:
    size = target.stat().st_size
    md5, sha256 = checksums(target)
    wrong = [
        f"{kind} is {found}, expected {expected}"
        for kind, found, expected in (
            ("size", size, file.bytes),
            ("md5", md5, file.md5),
            ("sha256", sha256, file.sha256),
        )
        if expected is not None and found != expected
    ]
    if wrong:
        target.unlink()
        raise TransferError(
            f"not the expected file, deleted: {'; '.join(wrong)} (expectation: {file.checksum_source}). Either the "
            "transfer went wrong or the publisher changed the file"
        )
    return Fetched(file.name, url, size, md5, sha256, file.verifiable)


def _assemble(card: Card, fetched: list[Fetched], staging: Path) -> Path:
    """A folder inside `staging` with the files as they will lie in the target, everything synced to disk."""
    ready = staging / "ready"
    if ready.exists():  # left by an interrupted call
        shutil.rmtree(ready)
    ready.mkdir()
    for file in card.files:
        if file.members:
            _unpack(card, file, staging / file.name, ready)
        else:
            with (staging / file.name).open("rb") as source:
                _copy(source.read, ready / file.name)
    record = {
        "name": card.name,
        "licence": card.licence,
        "citation": card.citation,
        "files": [asdict(arrived) for arrived in fetched],
    }
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    blocks = iter([text.encode(), b""])
    _copy(lambda _: next(blocks), ready / RECORD)
    return ready


def _unpack(card: Card, file: RemoteFile, archive: Path, ready: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as opened:
            infos = {info.filename: info for info in opened.infolist()}
            for name in infos:
                path = PurePosixPath(name.replace("\\", "/"))
                if path.is_absolute() or ".." in path.parts or ":" in name:
                    raise DataError(
                        f"{card.name}: {archive} names {name!r}, a path outside the folder it is unpacked into; "
                        "do not use this file"
                    )
            wanted = {member: f"{file.archive_root}/{member}" for member in file.members}
            missing = [name for name in wanted.values() if name not in infos]
            if missing:
                raise DataError(
                    f"{card.name}: {archive} holds no {', '.join(missing)}; the publisher changed the archive, or the "
                    "card's archive_root and members are wrong"
                )
            total = sum(infos[name].file_size for name in wanted.values())
            if total > _MAX_RATIO * archive.stat().st_size:
                raise DataError(
                    f"{card.name}: {archive} would unpack to {total / 1e6:.0f} MB, more than {_MAX_RATIO} times its "
                    "size; do not use this file"
                )
            for member, name in wanted.items():
                with opened.open(infos[name]) as source:
                    _copy(source.read, ready / member)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise DataError(
            f"{card.name}: {archive} is not a zip archive that can be unpacked ({error}); remove {archive.parent} and "
            "download again"
        ) from error


def _copy(read: Callable[[int], bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as sink:
        while block := read(_CHUNK):
            sink.write(block)
        sink.flush()
        os.fsync(sink.fileno())
