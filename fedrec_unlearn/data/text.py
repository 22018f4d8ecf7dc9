"""Text files as data sets come: plain, gzipped, or a member of a zip; read line by line with exact locations.

Everything that can be wrong with the bytes of a file (missing, damaged, another encoding, an open quote)
becomes a `DataError` that names file and line here, so that the readers of formats deal with fields only.
"""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedrec_unlearn.errors import DataError

_BOM = b"\xef\xbb\xbf"

Row = tuple[int, list[str]]
"""Number of a line, counted from 1, and its fields."""


class DataWarning(UserWarning):
    """Something in a data set was left out or is not known; the message counts it."""


@dataclass(frozen=True)
class TextFile:
    """A text file; printed as a path that goes through the archive, if it lies in one."""

    path: Path
    member: str | None = None
    """Name inside the zip archive `path`."""

    def __str__(self) -> str:
        """The path, continued inside the archive."""
        return str(self.path) if self.member is None else f"{self.path}/{self.member}"

    def at(self, line: int) -> str:
        """The location ``file:line`` of messages."""
        return f"{self}:{line}"

    @contextmanager
    def open(self) -> Iterator[io.BufferedIOBase]:
        """The unpacked bytes, without a byte order mark.

        Raises:
            DataError: the file cannot be opened, or it is damaged (also found while reading).
        """
        try:
            with self._unpacked() as stream:
                peek = getattr(stream, "peek", None)
                if peek is not None and peek(3)[:3] == _BOM:
                    stream.read(3)
                yield stream
        except (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise DataError(f"{self}: the archive is damaged or cut off ({error}); get the file again") from error
        except OSError as error:
            raise DataError(f"{self}: cannot be read ({error.strerror or error})") from error

    @contextmanager
    def _unpacked(self) -> Iterator[io.BufferedIOBase]:
        if self.member is not None:
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as stream:
                yield stream  # type: ignore[misc]  # IO[bytes] in the stubs, a BufferedIOBase in fact
        elif self.path.suffix == ".gz":
            with gzip.open(self.path, "rb") as stream:
                yield stream
        else:
            with self.path.open("rb") as stream:
                yield stream


def text_files(place: Path, name: str) -> dict[str, TextFile]:
    """Files of a folder or a zip archive by their base name, ``.gz`` taken off.

    A folder's archives are looked into as well: those named after the data set, or else the only one there.
    A plain file hides a gzipped one of that name, and both hide a member of an archive.

    Args:
        place: a folder or a ``.zip`` file.
        name: the data set's name.

    Returns:
        Base name to file; empty where `place` is neither.

    Raises:
        DataError: an archive cannot be read.
    """
    if place.is_file() and place.suffix == ".zip":
        return _members(place)
    if not place.is_dir():
        return {}
    try:
        paths = sorted(path for path in place.iterdir() if path.is_file() and not path.name.startswith("."))
    except OSError as error:
        raise DataError(f"{place}: the folder cannot be read ({error.strerror or error})") from error
    archives = [path for path in paths if path.suffix == ".zip"]
    named = [path for path in archives if path.name.startswith(name)]
    found: dict[str, TextFile] = {}
    for path in named or (archives if len(archives) == 1 else []):
        found.update(_members(path))
    found.update({path.name.removesuffix(".gz"): TextFile(path) for path in paths if path.suffix == ".gz"})
    found.update({path.name: TextFile(path) for path in paths if path.suffix not in (".gz", ".zip")})
    return found


def _members(archive: Path) -> dict[str, TextFile]:
    try:
        with zipfile.ZipFile(archive) as opened:
            names = [info.filename for info in opened.infolist() if not info.is_dir()]
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{archive}: not a readable zip archive ({error}); get the file again") from error
    # the shallowest member wins, so a copy in a subfolder cannot hide the real file
    names.sort(key=lambda member: member.count("/"), reverse=True)
    return {member.rsplit("/", 1)[-1]: TextFile(archive, member) for member in names if "__MACOSX" not in member}


def lines(file: TextFile, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """The lines that are not blank, numbered from 1, without line ends.

    Raises:
        DataError: the file cannot be read, or a line is not text in `encoding`.
    """
    with file.open() as stream:
        for number, raw in enumerate(stream, 1):
            try:
                text = raw.decode(encoding)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{file.at(number)}: byte 0x{raw[error.start]:02x} at position {error.start + 1} of the line "
                    f"is not {encoding.upper()} text; save the file as UTF-8, for example with "
                    "`iconv -f ISO-8859-1 -t UTF-8 OLD > NEW`"
                ) from error
            text = text.rstrip("\r\n")
            if text.strip(" "):
                yield number, text


def rows(file: TextFile, separator: str | None, *, encoding: str = "utf-8", quoted: bool = False) -> Iterator[Row]:
    """The fields of each line that is not blank.

    Args:
        file: what to read.
        separator: between two fields, one or more characters; None: any run of blanks.
        encoding: of the file.
        quoted: CSV: a field may stand in double quotes and then hold separators and line ends;
            blanks after a separator do not count.

    Raises:
        DataError: the file cannot be read, is in another encoding, or a quote is never closed.
    """
    if not quoted:
        for number, text in lines(file, encoding):
            yield number, text.split(separator)
        return
    start = number = 0

    def physical() -> Iterator[str]:
        nonlocal start, number
        for number, text in lines(file, encoding):
            start = start or number
            yield text + "\n"

    reader = csv.reader(physical(), delimiter=separator or ",", skipinitialspace=True, strict=True)
    while True:
        start = 0
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(
                f"{file.at(start or number)}: the row cannot be split into fields ({error}); "
                'write a double quote inside a quoted field as ""'
            ) from error
        yield start, fields


def header(file: TextFile, separator: str, *, quoted: bool = False) -> Row:
    """The first line that is not blank, its fields stripped of blanks.

    Raises:
        DataError: the file is empty, or a name is empty or occurs twice.
    """
    for line, fields in rows(file, separator, quoted=quoted):
        names = [field.strip() for field in fields]
        for name in names:
            if not name:
                raise DataError(f"{file.at(line)}: a column of the header has no name; name every column")
            if names.count(name) > 1:
                raise DataError(f"{file.at(line)}: column {name!r} occurs twice in the header; rename one of them")
        return line, names
    raise DataError(f"{file}: the file is empty; its first line must name the columns")
