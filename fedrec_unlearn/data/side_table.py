"""What a file says of users or items, one row each, laid beside their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.data.text import Row, TextFile
from fedrec_unlearn.errors import DataError

MISSING_TEXTS = frozenset({"", "nan", "NaN", "None", "?"})
"""Cells that say "not known". MovieLens has an occupation ``none``, so case counts."""


@dataclass(frozen=True)
class SideTable:
    """Text columns aligned with the tokens of users or items."""

    file: TextFile
    columns: dict[str, list[str]]
    """One text for each token, stripped of blanks; empty where not known."""
    lines: list[int]
    """Line of each token's row; 0 where the file has none."""

    def at(self, position: int) -> str:
        """Where the row of a token stands, for messages."""
        return self.file.at(self.lines[position])


def side_table(
    file: TextFile,
    table_rows: Iterable[Row],
    names: Sequence[str],
    key: str,
    tokens: NDArray[np.str_],
    missing: frozenset[str] = MISSING_TEXTS,
) -> SideTable:
    """Align the rows of a file with tokens; rows of other tokens are checked and then ignored.

    Args:
        file: for messages.
        table_rows: its rows without a header.
        names: of the columns.
        key: the column that holds the token.
        tokens: users or items, in the order of their numbers.
        missing: cells that count as not known.

    Returns:
        The columns other than `key`.

    Raises:
        DataError: a row has another number of fields, an empty token, or a token that had a row before.
    """
    number = {str(token): position for position, token in enumerate(tokens)}
    key_at = list(names).index(key)
    columns = {name: [""] * len(tokens) for name in names if name != key}
    lines = [0] * len(tokens)
    seen: dict[str, int] = {}
    for line, values in table_rows:
        if len(values) != len(names):
            raise DataError(
                f"{file.at(line)}: {len(values)} field{'s' * (len(values) != 1)}, expected {len(names)} "
                f"({', '.join(names)}); complete or remove the line"
            )
        token = values[key_at].strip()
        if not token:
            raise DataError(f"{file.at(line)}: {key} is empty; fill it in or remove the line")
        if token in seen:
            raise DataError(f"{file.at(line)}: {key} {token} already has a row, line {seen[token]}; remove one of them")
        seen[token] = line
        position = number.get(token)
        if position is None:
            continue
        lines[position] = line
        for name, value in zip(names, values, strict=True):
            if name != key and (text := value.strip()) not in missing:
                columns[name][position] = text
    return SideTable(file, columns, lines)
