"""Adjacency lists in parts (LightGCN): ``train.txt``, ``valid.txt``, ``test.txt``, a line ``user item item ...`` each.

``train.txt`` may also carry more in its name (``train_users0-13454.txt``). Beside it can lie the tables `u.user` and
`u.item` of the NFA data sets: no header, blanks between fields, the user or item first.

Sources: He et al. 2020 (LightGCN) for the lists; github.com/project-NFA/NFA-Pytorch for the tables.
"""

from __future__ import annotations

import re
import warnings
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.config import DataConfig
from fedrec_unlearn.data.attributes import user_attributes
from fedrec_unlearn.data.item_features import item_feature
from fedrec_unlearn.data.numbering import first_appearance
from fedrec_unlearn.data.side_table import SideTable, side_table
from fedrec_unlearn.data.text import DataWarning, Row, TextFile, rows
from fedrec_unlearn.data.types import Attribute, Dataset, IntArray, ItemFeature
from fedrec_unlearn.errors import DataError

USER_COLUMNS = {
    "taobao": (
        "cms_segid", "cms_group_id", "gender", "age_level", "pvalue_level", "shopping_level", "occupation",
        "new_user_class_level",
    ),
    "yelp": ("review_count_level", "useful_level", "elite_length", "fans_level", "average_stars_level"),
}  # fmt: skip
"""Columns of `u.user` after the user, by the first part of the data set's name (NFA's data_process.py)."""

ITEM_COLUMNS = {"yelp": ("city", "state", "review_level", *(f"attribute_{k}" for k in range(1, 15)))}
"""Columns of `u.item` after the item, where they are known."""

_MEANING = {
    ("taobao", "gender"): {"1": "M", "2": "F"},
    ("taobao", "pvalue_level"): {"0": ""},  # 0 stands for an empty cell of the original table
    ("taobao", "new_user_class_level"): {"0": ""},
}
_TRAIN = re.compile(r"train.*\.txt")
_LIST = re.compile(rb"[0-9 \t\r\n]*")
_PARTS = ("train", "validation", "test")


def is_adjacency(files: Mapping[str, TextFile]) -> bool:
    """Whether a folder holds adjacency lists."""
    return any(_TRAIN.fullmatch(name) for name in files) or "test.txt" in files or "valid.txt" in files


@dataclass(frozen=True)
class AdjacencyList:
    """One part: users in file order, their items as a ragged array."""

    file: TextFile
    users: IntArray
    lines: IntArray
    """Line of each user."""
    indptr: IntArray
    items: IntArray
    n_repeated: int
    """Items that a line names again; left out."""


def read_adjacency(files: Mapping[str, TextFile], config: DataConfig, asked_for: Sequence[str] = ()) -> Dataset:
    """Read a data set that comes split.

    Users are those of the train part: validation and test lines of others are left out, with a warning that counts
    them. Items are those of any part. An item that a user has in two parts stays in the earlier one only.

    Args:
        files: of the data set's folder, by base name (`text.text_files`).
        config: for the name and the age groups.
        asked_for: user attributes to keep in any case.

    Returns:
        `Dataset.given_part` is set; no ratings, no timestamps.

    Raises:
        DataError: no train file, or a malformed line; names file, line and remedy.
    """
    parts = [parse_list(file, may_be_empty=k > 0) for k, file in enumerate(_part_files(files)) if file is not None]
    numbers = [k for k, file in enumerate(_part_files(files)) if file is not None]
    for part in parts:
        if part.n_repeated:
            _warn(f"{part.file}: left out {part.n_repeated:,} items that a line names more than once")
    trained = parts[0].users
    rows_of: list[tuple[IntArray, IntArray, IntArray]] = []
    for number, part in zip(numbers, parts, strict=True):
        counts = np.diff(part.indptr)
        known_users = np.isin(part.users, trained)
        known = np.repeat(known_users, counts)
        if not known_users.all():
            users = int(np.count_nonzero(~known_users))
            _warn(
                f"{part.file}: left out {users:,} users ({np.count_nonzero(~known):,} interactions) "
                f"that {parts[0].file} does not have"
            )
        rows_of.append(
            (np.repeat(part.users, counts)[known], part.items[known], np.full(int(known.sum()), number, dtype=np.int64))
        )
    user, item, given = (np.concatenate(arrays) for arrays in zip(*rows_of, strict=True))
    user_ids, user = _numbered(user)
    item_ids, item = _numbered(item)
    earlier = _earliest(user, item)
    if not earlier.all():
        _warn(
            f"{parts[0].file}: left out {np.count_nonzero(~earlier):,} later interactions that an earlier part has too"
        )
        user, item, given = user[earlier], item[earlier], given[earlier]
    user_tokens, item_tokens = user_ids.astype(np.str_), item_ids.astype(np.str_)
    attributes: dict[str, Attribute] = {}
    if (users_file := files.get("u.user")) is not None:
        table = _nfa_table(users_file, config.name, USER_COLUMNS, "attribute", user_tokens)
        attributes = user_attributes(table, config.age_bounds, asked_for)
    features: dict[str, ItemFeature] = {}
    if (items_file := files.get("u.item")) is not None:
        table = _nfa_table(items_file, config.name, ITEM_COLUMNS, "feature", item_tokens)
        features = {name: item_feature(name, [(text,) for text in texts]) for name, texts in table.columns.items()}
    return Dataset(
        config.name, user_tokens, item_tokens, user, item,
        attributes=attributes, item_features=features, given_part=given.astype(np.int8),
    )  # fmt: skip


def parse_list(file: TextFile, *, may_be_empty: bool) -> AdjacencyList:
    """Read one part.

    Args:
        file: lines of whole numbers, first the user; blank lines do not count.
        may_be_empty: whether a user without items is legal (validation and test), such a user is then skipped.

    Raises:
        DataError: a token that is no whole number, a user without items or on two lines, or no line at all.
    """
    users, line_of, items, ends = array("q"), array("q"), array("q"), array("q", [0])
    n_repeated = 0
    with file.open() as stream:
        for line, raw in enumerate(stream, 1):
            if not _LIST.fullmatch(raw):
                wrong = next((word for word in raw.split() if not word.isdigit()), raw.rstrip())
                raise DataError(
                    f"{file.at(line)}: {wrong.decode('utf-8', 'backslashreplace')!r} is not a whole number; "
                    "a line is a user and its items, all numbers from 0"
                )
            numbers = [int(word) for word in raw.split()]
            if len(numbers) < 2:
                if numbers and not may_be_empty:
                    raise DataError(
                        f"{file.at(line)}: user {numbers[0]} has no items; remove the line here and in the other parts"
                    )
                continue
            if len(set(numbers[1:])) < len(numbers) - 1:
                distinct = dict.fromkeys(numbers[1:])
                n_repeated += len(numbers) - 1 - len(distinct)
                numbers[1:] = distinct
            if max(numbers) >= 1 << 63:
                raise DataError(f"{file.at(line)}: {max(numbers)} is too large; ids must fit in 63 bits")
            users.append(numbers[0])
            line_of.append(line)
            items.extend(numbers[1:])
            ends.append(len(items))
    if not users and not may_be_empty:
        raise DataError(f"{file}: holds no user; expected lines `user item item ...`")
    ids, lines_ = np.array(users, dtype=np.int64), np.array(line_of, dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    again = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    if len(again):
        first, second = order[again[0]], order[again[0] + 1]
        raise DataError(
            f"{file.at(int(lines_[second]))}: user {ids[first]} already has line {lines_[first]}; "
            "put all items of a user on one line"
        )
    return AdjacencyList(
        file, ids, lines_, np.array(ends, dtype=np.int64), np.array(items, dtype=np.int64), n_repeated
    )  # fmt: skip


def _part_files(files: Mapping[str, TextFile]) -> tuple[TextFile, TextFile | None, TextFile | None]:
    train = [name for name in sorted(files) if _TRAIN.fullmatch(name)]
    if "train.txt" in files:
        train = ["train.txt"]
    if len(train) != 1:
        folder = next(iter(files.values())).path.parent
        problem = "several files could be the train part" if train else "no train.txt"
        raise DataError(f"{folder}: {problem} (files: {', '.join(sorted(files))}); name the train part train.txt")
    return files[train[0]], files.get("valid.txt"), files.get("test.txt")


def _earliest(user: IntArray, item: IntArray) -> NDArray[np.bool_]:
    """True for the first occurrence of each (user, item) pair."""
    keys = user * (int(item.max(initial=0)) + 1) + item
    first = np.ones(len(keys), dtype=np.bool_)
    ordered = np.sort(keys)
    if not np.any(ordered[1:] == ordered[:-1]):  # sorting alone is much faster than finding the order
        return first
    order = np.argsort(keys, kind="stable")
    first[order[1:]] = keys[order[1:]] != keys[order[:-1]]
    return first


def _numbered(ids: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct ids by first appearance, and each id as its number among them."""
    distinct, codes = np.unique(ids, return_inverse=True)
    order = first_appearance(codes, len(distinct))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order), dtype=np.int64)
    return distinct[order], rank[codes]


def _nfa_table(
    file: TextFile, name: str, known: Mapping[str, tuple[str, ...]], prefix: str, tokens: NDArray[np.str_]
) -> SideTable:
    table_rows: list[Row] = [(line, text) for line, text in rows(file, None)]
    if not table_rows:
        raise DataError(f"{file}: the file is empty; remove it or fill it")
    width = len(table_rows[0][1])
    family = next((family for family in known if name.startswith(family) and len(known[family]) == width - 1), "")
    columns = known.get(family) or tuple(f"{prefix}_{k}" for k in range(1, width))
    table = side_table(file, table_rows, ("id", *columns), "id", tokens)
    for column in columns:
        meaning = _MEANING.get((family, column), {})
        table.columns[column][:] = [meaning.get(text, text) for text in table.columns[column]]
    return table


def _warn(message: str) -> None:
    warnings.warn(message, DataWarning, stacklevel=3)
