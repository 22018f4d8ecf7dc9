"""RecBole's training data as clients hold them: items of each user, numbered from 0."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from fedrec_unlearn.data.types import Attribute, Dataset, UserItems
from fedrec_unlearn.errors import DataError


def training_items(dataset: Any, label_field: str | None = None) -> UserItems:
    """Items each user trains on.

    Args:
        dataset: RecBole's training data set (`train_data.dataset`).
        label_field: field with labels 0 and 1 that come with the data; None where every interaction counts as
            positive.

    Returns:
        RecBole's ids less one. A pair that occurs more than once counts once, with its last label.

    Raises:
        DataError: no interactions, or no labels where they are needed.
    """
    feat = dataset.inter_feat
    if not len(feat):
        raise DataError("the training data hold no interaction")
    user = np.asarray(feat[dataset.uid_field], dtype=np.int64) - 1
    item = np.asarray(feat[dataset.iid_field], dtype=np.int64) - 1
    labels = None
    if label_field is not None:
        if label_field not in feat:
            raise DataError(
                f"the data have no field {label_field!r} and nothing is sampled: give a threshold, for example "
                "threshold: {rating: 4}, or draw negatives: train_neg_sample_args: {distribution: uniform, "
                "sample_num: 1}"
            )
        labels = np.asarray(feat[label_field], dtype=np.float64)
    keys = user * dataset.item_num + item
    _, last = np.unique(keys[::-1], return_index=True)
    kept = np.sort(len(keys) - 1 - last)
    return UserItems.from_pairs(
        user[kept], item[kept], dataset.user_num - 1, dataset.item_num - 1, None if labels is None else labels[kept]
    )


def as_dataset(name: str, dataset: Any, items: UserItems, attributes: list[Attribute]) -> Dataset:
    """What this package's functions ask of a data set: names, training interactions and attributes."""
    tokens = {
        field: np.asarray(dataset.field2id_token[field])[1:].astype(str)
        for field in (dataset.uid_field, dataset.iid_field)
    }
    users = np.repeat(np.arange(items.n_users), items.counts)
    return Dataset(
        name,
        tokens[dataset.uid_field],
        tokens[dataset.iid_field],
        users,
        items.items,
        attributes={attribute.name: attribute for attribute in attributes},
    )


def fingerprint(items: UserItems) -> str:
    """Hash of who has which item, and of labels: tells whether a run goes on with the data it began with."""
    digest = hashlib.sha256()
    for values in (items.indptr, items.items, *([] if items.ratings is None else [items.ratings.view(np.int64)])):
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:16]
