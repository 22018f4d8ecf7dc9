"""Large tables of interactions, read fast; a second, careful pass finds the line of whatever was wrong.

The fast pass is pandas' C parser in pieces of bounded size. It tells only that a piece does not parse, so the
careful pass goes through the file again, row by row, up to the first row that breaks a rule.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.data.text import Row, TextFile, rows
from fedrec_unlearn.data.types import FloatArray, IntArray
from fedrec_unlearn.errors import DataError

Kind = Literal["token", "whole", "number", "optional", "skip"]

CHUNK_ROWS = 2_000_000
"""Rows parsed at once; bounds the memory above that of the result."""

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Field:
    """One column of a file."""

    name: str
    kind: Kind
    """token: text that names something, not empty; whole: a token that is a whole number; number: finite;
    optional: a finite number or nothing (NaN); skip: not read."""


@dataclass(frozen=True)
class Tokens:
    """A column of names as numbers."""

    codes: IntArray
    """Shape (n,): row's token, numbered in the order of first appearance."""
    values: NDArray[np.str_]
    """Shape (number of distinct tokens,)."""


@dataclass(frozen=True)
class Layout:
    """How the rows of a file are written."""

    fields: tuple[Field, ...]
    separator: str
    """One character, or ``::``."""
    has_header: bool = False
    """The first line that is not blank holds no data."""
    quoted: bool = False
    """CSV rules of quoting apply."""

    def data_rows(self, file: TextFile) -> Iterator[Row]:
        """Rows after the header, with their line numbers."""
        return islice(rows(file, self.separator, quoted=self.quoted), int(self.has_header), None)


@dataclass(frozen=True)
class Columns:
    """What was read of a file, by column name."""

    tokens: dict[str, Tokens]
    numbers: dict[str, FloatArray]
    n_rows: int


def read_columns(file: TextFile, layout: Layout) -> Columns:
    """Read a table.

    Args:
        file: UTF-8 text; blank lines do not count.
        layout: its columns.

    Returns:
        Token columns as codes, number columns as float64.

    Raises:
        DataError: the file cannot be read or holds no row, or a row breaks a rule of its fields; names file and line.
    """
    try:
        columns = _fast(file, layout)
    except (ValueError, OverflowError) as error:  # pandas' ParserError and UnicodeDecodeError are ValueErrors
        _explain(file, layout)
        raise DataError(f"{file}: cannot be parsed ({error}); look for stray quotes, tabs or control bytes") from error
    if not _acceptable(columns, layout):
        _explain(file, layout)
        raise DataError(f"{file}: a row holds an empty or non-finite value, hidden by control bytes; clean the file")
    return columns


def line_numbers(file: TextFile, layout: Layout, wanted: Sequence[int]) -> list[int]:
    """Lines of the rows `wanted` (numbered from 0, without header and blank lines)."""
    line_of: dict[int, int] = {}
    for row, (line, _) in enumerate(layout.data_rows(file)):
        if row in wanted:
            line_of[row] = line
            if len(line_of) == len(set(wanted)):
                break
    return [line_of[row] for row in wanted]


def _fast(file: TextFile, layout: Layout) -> Columns:
    import pandas as pd  # takes a third of a second, which `fedrec --help` must not pay

    names = [str(k) for k in range(len(layout.fields))]
    types = {name: float if field.kind in ("number", "optional") else object
             for name, field in zip(names, layout.fields, strict=True)}  # fmt: skip
    known: dict[str, dict[str, int]] = {name: {} for name in names}
    pieces: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    n_rows = 0
    # the parser takes its number of columns from the first row, so that one is checked here
    first = next(layout.data_rows(file), None)
    if first is None:
        raise DataError(f"{file}: holds no rows; expected lines of {_expected(layout)}")
    if len(first[1]) != len(layout.fields):
        _explain(file, layout)
    with file.open() as stream:
        if layout.has_header:
            while not stream.readline().strip(b" \r\n"):
                pass
        counted = _Counted(stream, layout.separator)
        chunks = pd.read_csv(
            io.BufferedReader(counted, _BLOCK),
            sep=layout.separator if len(layout.separator) == 1 else "\t",
            header=None,
            names=names,
            dtype=types,
            index_col=False,
            keep_default_na=False,
            na_values={n: [""] for n, field in zip(names, layout.fields, strict=True) if field.kind == "optional"},
            quoting=csv.QUOTE_MINIMAL if layout.quoted else csv.QUOTE_NONE,
            skipinitialspace=layout.quoted,
            encoding="utf-8",
            engine="c",
            low_memory=False,
            chunksize=CHUNK_ROWS,
        )
        for chunk in chunks:
            n_rows += len(chunk)
            for name, field in zip(names, layout.fields, strict=True):
                if field.kind in ("number", "optional"):
                    pieces[name].append(chunk[name].to_numpy(dtype=np.float64))
                elif field.kind != "skip":
                    codes, values = pd.factorize(chunk[name].to_numpy())
                    seen = known[name]
                    renumber = np.array([seen.setdefault(value, len(seen)) for value in values], dtype=np.int64)
                    pieces[name].append(renumber[codes])
    # the parser fills up short lines, which shows only where the last field must not be empty;
    # in CSV a separator may also stand within quotes, so there a wrong count proves nothing
    if counted.n_separators != n_rows * (len(layout.fields) - 1):
        _explain(file, layout)
    tokens: dict[str, Tokens] = {}
    numbers: dict[str, FloatArray] = {}
    for name, field in zip(names, layout.fields, strict=True):
        if field.kind == "skip":
            continue
        joined = np.concatenate(pieces.pop(name))
        if field.kind in ("number", "optional"):
            numbers[field.name] = joined
        else:
            tokens[field.name] = Tokens(joined, np.array(list(known[name]), dtype=np.str_))
    return Columns(tokens, numbers, n_rows)


def _acceptable(columns: Columns, layout: Layout) -> bool:
    for field in layout.fields:
        if field.kind == "token" and not np.all(np.strings.str_len(columns.tokens[field.name].values) > 0):
            return False
        if field.kind == "whole" and not all(map(_is_whole, columns.tokens[field.name].values.tolist())):
            return False
        if field.kind == "number" and not np.isfinite(columns.numbers[field.name]).all():
            return False
        if field.kind == "optional" and np.isinf(columns.numbers[field.name]).any():
            return False
    return True


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def _expected(layout: Layout) -> str:
    shown = {"\t": "tabs", ",": "commas", " ": "spaces"}.get(layout.separator, repr(layout.separator))
    return f"{len(layout.fields)} fields separated by {shown} ({', '.join(f.name for f in layout.fields)})"


def _explain(file: TextFile, layout: Layout) -> None:
    """Raise for the first row that breaks a rule; return if none does."""
    for line, values in layout.data_rows(file):
        if len(values) != len(layout.fields):
            raise DataError(
                f"{file.at(line)}: {len(values)} field{'s' * (len(values) != 1)}, expected {_expected(layout)}; "
                "complete or remove the line"
            )
        for field, value in zip(layout.fields, values, strict=True):
            problem = _problem(field.kind, value)
            if problem:
                raise DataError(f"{file.at(line)}: {field.name} {problem}; correct or remove the line")


def _problem(kind: Kind, value: str) -> str:
    if kind in ("token", "whole", "number") and not value:
        return "is empty"
    if kind == "whole" and not _is_whole(value):
        return f"is {value!r}, not a whole number"
    if (kind == "number" or (kind == "optional" and value)) and not _is_number(value):
        return f"is {value!r}, not a finite number"
    return ""


class _Counted(io.RawIOBase):
    """A stream whose separators are counted; a two-character one becomes a tab, since the C parser takes one."""

    def __init__(self, stream: io.BufferedIOBase, separator: str) -> None:
        super().__init__()
        self.n_separators = 0
        self._stream = stream
        self._separator = separator.encode()
        self._held = b""
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            block = self._stream.read(_BLOCK)
            self._ready = self._converted(block, at_end=not block)
            if not block:
                break
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _converted(self, block: bytes, *, at_end: bool) -> bytes:
        if len(self._separator) == 1:
            self.n_separators += block.count(self._separator)
            return block
        data = self._held + block
        # half a separator at the end of a block waits for the next one
        run = len(data) - len(data.rstrip(self._separator[:1]))
        cut = len(data) if at_end else len(data) - run % 2
        self._held = data[cut:]
        self.n_separators += data[:cut].count(self._separator)
        return data[:cut].replace(self._separator, b"\t")
