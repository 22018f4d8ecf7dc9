"""Your own data: a CSV file with named columns, and beside it a row for each user or item if there is one.

``NAME.csv`` holds the interactions; ``NAME.users.csv`` or ``users.csv`` attributes of users; ``NAME.items.csv`` or
``items.csv`` features of items, several values of one item separated by ``|``. ``.tsv`` will do as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.config import DataConfig
from fedrec_unlearn.data.attributes import user_attributes
from fedrec_unlearn.data.columns import Field, Layout, read_columns
from fedrec_unlearn.data.item_features import item_feature, with_genre
from fedrec_unlearn.data.numbering import dataset_of_columns
from fedrec_unlearn.data.side_table import SideTable, side_table
from fedrec_unlearn.data.text import TextFile, header, rows
from fedrec_unlearn.data.types import Attribute, Dataset, ItemFeature
from fedrec_unlearn.errors import DataError

_ENDINGS = (".csv", ".tsv")


def interactions_file(files: Mapping[str, TextFile], name: str) -> str | None:
    """Base name of the CSV file with the interactions: ``NAME.csv``, or else the only one not of users or items.

    Args:
        files: of the folder, by base name.
        name: of the data set.

    Returns:
        None where no file, or more than one, could be meant.
    """
    for ending in _ENDINGS:
        if name + ending in files:
            return name + ending
    meant = [
        file for file in sorted(files) if file.endswith(_ENDINGS) and file.split(".")[-2] not in ("users", "items")
    ]
    return meant[0] if len(meant) == 1 else None


def read_table(files: Mapping[str, TextFile], config: DataConfig, asked_for: Sequence[str] = ()) -> Dataset:
    """Read interactions from a CSV file.

    Args:
        files: of the data set's folder, by base name (`text.text_files`).
        config: names of the columns and the separator.
        asked_for: user attributes to keep in any case.

    Raises:
        DataError: a file is missing or malformed, or a named column does not exist; names file, line and remedy.
    """
    chosen = interactions_file(files, config.name)
    if chosen is None:
        folder = next(iter(files.values())).path.parent
        raise DataError(
            f"{folder}: no {config.name}.csv, and not exactly one other CSV file to take for the interactions "
            f"(there are: {', '.join(sorted(files))}); name the file {config.name}.csv"
        )
    file = files[chosen]
    separator = _separator(file, config)
    line, names = header(file, separator, quoted=True)
    role: dict[str, Field] = {}
    for option, column, field in (
        ("user_column", config.user_column, Field("user", "token")),
        ("item_column", config.item_column, Field("item", "token")),
        ("rating_column", config.rating_column, Field("rating", "number")),
        ("timestamp_column", config.timestamp_column, Field("timestamp", "optional")),
    ):
        if column is None:
            continue
        _need_column(file, line, names, option, column)
        if column in role:
            raise DataError(f"data.{option}: column {column!r} already serves as {role[column].name}; name another one")
        role[column] = field
    layout = Layout(
        tuple(role.get(name, Field(name, "skip")) for name in names), separator, has_header=True, quoted=True
    )
    dataset = dataset_of_columns(config.name, file, layout, read_columns(file, layout))
    stem = chosen.rsplit(".", 1)[0]
    attributes: dict[str, Attribute] = {}
    if (users := _beside(files, stem, "users")) is not None:
        table = _side_file(users, config, "user_column", config.user_column, dataset.user_tokens)
        attributes = user_attributes(table, config.age_bounds, asked_for)
    features: dict[str, ItemFeature] = {}
    if (items := _beside(files, stem, "items")) is not None:
        table = _side_file(items, config, "item_column", config.item_column, dataset.item_tokens)
        features = {
            name: item_feature(name, [[value.strip() for value in text.split("|")] for text in texts])
            for name, texts in table.columns.items()
        }
    return replace(dataset, attributes=attributes, item_features=with_genre(features, "genres"))


def _need_column(file: TextFile, line: int, names: Sequence[str], option: str, column: str) -> None:
    if column in names:
        return
    hint = "; the header has a single field, so check data.separator as well" if len(names) == 1 else ""
    raise DataError(f"{file.at(line)}: no column {column!r}, only {', '.join(names)}; set data.{option}{hint}")


def _beside(files: Mapping[str, TextFile], stem: str, what: str) -> TextFile | None:
    for base in (f"{stem}.{what}", what):
        for ending in _ENDINGS:
            if base + ending in files:
                return files[base + ending]
    return None


def _separator(file: TextFile, config: DataConfig) -> str:
    # the option's default is for CSV; a file called .tsv says itself that tabs separate
    name = (file.member or file.path.name).removesuffix(".gz")
    return "\t" if name.endswith(".tsv") and config.separator == "," else config.separator


def _side_file(file: TextFile, config: DataConfig, option: str, key: str, tokens: NDArray[np.str_]) -> SideTable:
    separator = _separator(file, config)
    line, names = header(file, separator, quoted=True)
    _need_column(file, line, names, option, key)
    return side_table(file, islice(rows(file, separator, quoted=True), 1, None), names, key, tokens)
