"""RecBole's atomic files: ``NAME.inter``, ``NAME.user`` and ``NAME.item``, tab separated, with typed headers.

A header field is ``name:type``; types are ``token`` (a name), ``token_seq`` (names separated by spaces), ``float``
and ``float_seq``. Source: https://recbole.io/docs/user_guide/data/atomic_files.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.config import DataConfig
from fedrec_unlearn.data.attributes import check_movielens_1m_bounds, user_attributes
from fedrec_unlearn.data.columns import Field, Layout, read_columns
from fedrec_unlearn.data.item_features import item_feature, with_genre
from fedrec_unlearn.data.numbering import dataset_of_columns
from fedrec_unlearn.data.side_table import SideTable, side_table
from fedrec_unlearn.data.text import TextFile, header, rows
from fedrec_unlearn.data.types import Attribute, Dataset, ItemFeature
from fedrec_unlearn.errors import DataError

TYPES = ("token", "token_seq", "float", "float_seq")


def is_atomic(files: Mapping[str, TextFile]) -> bool:
    """Whether a folder holds atomic files."""
    return any(name.endswith(".inter") for name in files)


def read_atomic(files: Mapping[str, TextFile], config: DataConfig, asked_for: Sequence[str] = ()) -> Dataset:
    """Read a data set of atomic files.

    The columns with user and item are ``config.user_column`` and ``config.item_column``; rating and timestamp are
    the columns named so unless the configuration names others. Attributes are the token columns of the user file
    and its age; item features are the token and token_seq columns of the item file. ``genre`` also names the
    column ``class`` of ml-100k and ``genres`` of later MovieLens sets.

    Args:
        files: of the data set's folder, by base name (`text.text_files`).
        config: names of data set and columns.
        asked_for: user attributes to keep in any case.

    Raises:
        DataError: a file is missing or malformed; names file, line and remedy.
    """
    inter = files.get(f"{config.name}.inter")
    if inter is None:
        others = sorted(name.removesuffix(".inter") for name in files if name.endswith(".inter"))
        one = next(iter(files.values())).path.parent
        raise DataError(
            f"{one}: no {config.name}.inter, but {', '.join(f'{name}.inter' for name in others) or 'no .inter file'}; "
            + (f"set data.name to {others[0]!r}" if others else "give the folder that holds it")
        )
    layout = _interactions_layout(inter, config)
    dataset = dataset_of_columns(config.name, inter, layout, read_columns(inter, layout))
    attributes: dict[str, Attribute] = {}
    if (users := files.get(f"{config.name}.user")) is not None:
        types, table = _side_file(users, "data.user_column", config.user_column, dataset.user_tokens)
        if config.name == "ml-1m":
            check_movielens_1m_bounds(config.age_bounds)
        # floats are measurements, not classes; age is the one that is grouped
        kept = {name: texts for name, texts in table.columns.items() if types[name] == "token" or name == "age"}
        attributes = user_attributes(replace(table, columns=kept), config.age_bounds, asked_for)
    features: dict[str, ItemFeature] = {}
    if (items := files.get(f"{config.name}.item")) is not None:
        types, table = _side_file(items, "data.item_column", config.item_column, dataset.item_tokens)
        for name, texts in table.columns.items():
            if types[name] == "token":
                features[name] = item_feature(name, [(text,) for text in texts])
            elif types[name] == "token_seq":
                features[name] = item_feature(name, [text.split(" ") for text in texts])
        features = with_genre(features, "class" if config.name == "ml-100k" else "genres")
    return replace(dataset, attributes=attributes, item_features=features)


def typed_header(file: TextFile) -> dict[str, str]:
    """Column names of an atomic file with their types.

    Raises:
        DataError: a field is not ``name:type``.
    """
    line, fields = header(file, "\t")
    types = {}
    for field in fields:
        name, _, kind = field.partition(":")
        if not name or kind not in TYPES:
            raise DataError(
                f"{file.at(line)}: header field {field!r} is not name:type with a type of {', '.join(TYPES)}; "
                "write for example user_id:token, fields separated by tabs"
            )
        if name in types:
            raise DataError(f"{file.at(line)}: column {name!r} occurs twice in the header; rename one of them")
        types[name] = kind
    return types


def _interactions_layout(file: TextFile, config: DataConfig) -> Layout:
    types = typed_header(file)
    role = {
        _column(file, types, "data.user_column", config.user_column, "token"): Field("user", "token"),
        _column(file, types, "data.item_column", config.item_column, "token"): Field("item", "token"),
    }
    if len(role) == 1:
        raise DataError(f"data.user_column and data.item_column are both {config.user_column!r}; they must differ")
    if config.rating_column is not None or "rating" in types:
        name = _column(file, types, "data.rating_column", config.rating_column or "rating", "float")
        role[name] = Field("rating", "number")
    if config.timestamp_column is not None or "timestamp" in types:
        name = _column(file, types, "data.timestamp_column", config.timestamp_column or "timestamp", "float")
        role[name] = Field("timestamp", "optional")
    fields = tuple(role.get(name, Field(name, "skip")) for name in types)
    return Layout(fields, "\t", has_header=True)


def _column(file: TextFile, types: Mapping[str, str], option: str, name: str, kind: str) -> str:
    if name not in types:
        raise DataError(f"{file.at(1)}: no column {name!r}, only {', '.join(types)}; set {option}")
    if types[name] != kind:
        raise DataError(f"{file.at(1)}: column {name!r} has the type {types[name]}, {option} needs {kind}")
    return name


def _side_file(file: TextFile, option: str, key: str, tokens: NDArray[np.str_]) -> tuple[dict[str, str], SideTable]:
    types = typed_header(file)
    _column(file, types, option, key, "token")
    return types, side_table(file, islice(rows(file, "\t"), 1, None), list(types), key, tokens)
