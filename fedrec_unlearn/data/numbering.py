"""Users and items as numbers 0..n-1 by first appearance, and what keeps them so when interactions are left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.data.columns import Columns, Layout, line_numbers
from fedrec_unlearn.data.text import TextFile
from fedrec_unlearn.data.types import Dataset, IntArray, ItemFeature
from fedrec_unlearn.errors import DataError


def first_appearance(codes: IntArray, size: int) -> IntArray:
    """Codes in the order in which they first occur.

    Args:
        codes: shape (n,), in [0, size).
        size: number of possible codes.

    Returns:
        Shape (number of distinct codes,).
    """
    first = np.full(size, len(codes), dtype=np.int64)
    # of several assignments to one place the last stays, so going backwards leaves the first row
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1, dtype=np.int64)
    order = np.argsort(first, kind="stable")
    return order[: int(np.count_nonzero(first < len(codes)))]


def repeated_pair(user: IntArray, item: IntArray, n_items: int) -> tuple[int, int] | None:
    """Positions of a (user, item) pair and of its first repetition, or None where all pairs are distinct."""
    keys = user * n_items + item
    ordered = np.sort(keys)
    if not np.any(ordered[1:] == ordered[:-1]):
        return None
    order = np.argsort(keys, kind="stable")
    again = order[1:][keys[order[1:]] == keys[order[:-1]]]
    second = int(again.min())
    return int(np.flatnonzero(keys == keys[second])[0]), second


def dataset_of_columns(name: str, file: TextFile, layout: Layout, columns: Columns) -> Dataset:
    """Interactions read from one file; the layout calls its fields user, item, rating, timestamp.

    Args:
        name: of the data set.
        file: where the columns come from.
        layout: how they were read; with tokens ``user`` and ``item``, and numbers ``rating`` and ``timestamp`` or not.
        columns: the content.

    Raises:
        DataError: a (user, item) pair occurs twice; names both lines.
    """
    user, item = columns.tokens["user"], columns.tokens["item"]
    twice = repeated_pair(user.codes, item.codes, len(item.values))
    if twice is not None:
        first, second = line_numbers(file, layout, twice)
        raise DataError(
            f"{file.at(second)}: user {user.values[user.codes[twice[1]]]} and item "
            f"{item.values[item.codes[twice[1]]]} already occur together on line {first}; "
            "keep one line for each pair, for example the latest"
        )
    return Dataset(
        name=name,
        user_tokens=user.values,
        item_tokens=item.values,
        user=user.codes,
        item=item.codes,
        rating=columns.numbers.get("rating"),
        timestamp=columns.numbers.get("timestamp"),
    )


def keep_interactions(dataset: Dataset, keep: NDArray[np.bool_]) -> Dataset:
    """The interactions of a mask, with users and items renumbered by first appearance among them.

    Users and items without an interaction go; classes and feature values keep their numbers.

    Args:
        dataset: as read.
        keep: shape (n,), True for the interactions to keep.

    Raises:
        DataError: nothing is kept.
    """
    if not keep.any():
        raise DataError(f"data set {dataset.name!r}: no interaction is left")
    users = first_appearance(dataset.user[keep], dataset.n_users)
    items = first_appearance(dataset.item[keep], dataset.n_items)
    return replace(
        dataset,
        user_tokens=dataset.user_tokens[users],
        item_tokens=dataset.item_tokens[items],
        user=_inverse(users, dataset.n_users)[dataset.user[keep]],
        item=_inverse(items, dataset.n_items)[dataset.item[keep]],
        rating=None if dataset.rating is None else dataset.rating[keep],
        timestamp=None if dataset.timestamp is None else dataset.timestamp[keep],
        attributes={name: replace(known, labels=known.labels[users]) for name, known in dataset.attributes.items()},
        item_features={name: _feature_of(feature, items) for name, feature in dataset.item_features.items()},
        given_part=None if dataset.given_part is None else dataset.given_part[keep],
    )


def _inverse(chosen: IntArray, size: int) -> IntArray:
    position = np.full(size, -1, dtype=np.int64)
    position[chosen] = np.arange(len(chosen), dtype=np.int64)
    return position


def _feature_of(feature: ItemFeature, items: IntArray) -> ItemFeature:
    counts = np.diff(feature.indptr)[items]
    indptr = np.zeros(len(items) + 1, dtype=np.int64)
    np.cumsum(counts, out=indptr[1:])
    offsets = np.arange(indptr[-1]) - np.repeat(indptr[:-1], counts)
    return ItemFeature(
        feature.name, feature.values, indptr, feature.indices[np.repeat(feature.indptr[items], counts) + offsets]
    )
