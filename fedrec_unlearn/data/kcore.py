"""The k-core of a data set: users and items with enough interactions among each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.data.types import Attribute, Dataset, IntArray, ItemFeature
from fedrec_unlearn.errors import DataError


def k_core(dataset: Dataset, min_user: int, min_item: int) -> Dataset:
    """Drop users and items with too few interactions until none is left to drop.

    The result is the largest subset in which every user has at least `min_user` and every item at least
    `min_item` interactions; it does not depend on the order of dropping. Interactions are counted over all
    parts where the files come already split.

    Args:
        dataset: interactions with attributes, features and given parts, all of which are carried along.
        min_user: fewest interactions of a user, 0 or 1 to keep every user.
        min_item: fewest interactions of an item, 0 or 1 to keep every item.

    Returns:
        The data set itself where nothing is to drop; otherwise a new one, interactions in their old order, users
        and items numbered anew by first appearance. Names of classes and feature values stay as they were, also
        where none of the remaining users or items has them.

    Raises:
        DataError: nothing would be left.

    Source: Batagelj and Zaversnik 2003, here on a bipartite graph with a bound for each side.
    """
    user, item = dataset.user, dataset.item
    kept = np.arange(dataset.n_interactions, dtype=np.int64)
    while True:
        few_user = np.bincount(user[kept], minlength=dataset.n_users) < min_user
        few_item = np.bincount(item[kept], minlength=dataset.n_items) < min_item
        stays = ~(few_user[user[kept]] | few_item[item[kept]])
        if stays.all():
            break
        kept = kept[stays]
    if len(kept) == 0:
        raise DataError(
            f"{dataset.name}: no interaction is left with at least {min_user} per user and {min_item} per item "
            f"({dataset.n_users} users, {dataset.n_items} items, {dataset.n_interactions} interactions before); "
            "lower data.min_user_interactions or data.min_item_interactions"
        )
    if len(kept) == dataset.n_interactions:
        return dataset
    return _subset(dataset, kept)


def _subset(dataset: Dataset, rows: IntArray) -> Dataset:
    users, user = _renumber(dataset.user[rows])
    items, item = _renumber(dataset.item[rows])
    return replace(
        dataset,
        user_tokens=dataset.user_tokens[users],
        item_tokens=dataset.item_tokens[items],
        user=user,
        item=item,
        rating=None if dataset.rating is None else dataset.rating[rows],
        timestamp=None if dataset.timestamp is None else dataset.timestamp[rows],
        attributes={name: Attribute(a.name, a.classes, a.labels[users]) for name, a in dataset.attributes.items()},
        item_features={name: _feature_of(f, items) for name, f in dataset.item_features.items()},
        given_part=None if dataset.given_part is None else dataset.given_part[rows],
    )


def _renumber(ids: IntArray) -> tuple[IntArray, IntArray]:
    """Old ids in order of first appearance, and the ids as positions in that list."""
    old, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    appearance = np.argsort(first)
    rank = np.empty(len(old), dtype=np.int64)
    rank[appearance] = np.arange(len(old))
    return old[appearance], rank[inverse]


def _feature_of(feature: ItemFeature, items: NDArray[np.int64]) -> ItemFeature:
    counts = np.diff(feature.indptr)[items]
    indptr = np.zeros(len(items) + 1, dtype=np.int64)
    np.cumsum(counts, out=indptr[1:])
    source = np.repeat(feature.indptr[:-1][items] - indptr[:-1], counts) + np.arange(indptr[-1])
    return ItemFeature(feature.name, feature.values, indptr, feature.indices[source])
