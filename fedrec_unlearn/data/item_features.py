"""Features of items (genre, year of release) as ragged lists of value ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedrec_unlearn.data.attributes import natural_order
from fedrec_unlearn.data.types import ItemFeature
from fedrec_unlearn.errors import DataError

_YEAR = re.compile(r"\((\d{4})\)\s*$")


def item_feature(name: str, values_of: Sequence[Sequence[str]]) -> ItemFeature:
    """A feature from each item's values.

    Args:
        name: of the feature.
        values_of: for each item its values; empty texts and repetitions do not count.

    Returns:
        Values sorted; an item's ids ascending.
    """
    distinct = [{value for value in values if value} for values in values_of]
    names = natural_order(set().union(*distinct))
    number = {value: k for k, value in enumerate(names)}
    indptr = np.zeros(len(distinct) + 1, dtype=np.int64)
    np.cumsum([len(values) for values in distinct], out=indptr[1:])
    indices = [k for values in distinct for k in sorted(number[value] for value in values)]
    return ItemFeature(name, tuple(names), indptr, np.array(indices, dtype=np.int64))


def year_of_title(title: str) -> str:
    """The year that ends a MovieLens title, ``Heat (1995)``; empty where there is none."""
    match = _YEAR.search(title)
    return match.group(1) if match else ""


def with_genre(features: dict[str, ItemFeature], column: str) -> dict[str, ItemFeature]:
    """The features with ``genre`` as a second name of `column`, unless there is a ``genre`` or no such column."""
    if "genre" in features or column not in features:
        return features
    return features | {"genre": replace(features[column], name="genre")}


def check_asked_for(features: dict[str, ItemFeature], asked_for: Sequence[str], data: str) -> None:
    """Raise `DataError` where an item feature of the configuration does not exist."""
    for name in asked_for:
        if name not in features:
            known = ", ".join(sorted(features)) or "no item feature at all"
            raise DataError(f"data.item_features: data set {data!r} has no {name!r}; it has {known}")
