"""From a configuration to a data set: find the files, read them, leave out what is not wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedrec_unlearn.config import DataConfig
from fedrec_unlearn.data.adjacency import read_adjacency
from fedrec_unlearn.data.atomic import read_atomic
from fedrec_unlearn.data.attributes import present_classes
from fedrec_unlearn.data.item_features import check_asked_for
from fedrec_unlearn.data.kcore import k_core
from fedrec_unlearn.data.movielens import read_movielens
from fedrec_unlearn.data.numbering import keep_interactions
from fedrec_unlearn.data.places import find_files
from fedrec_unlearn.data.table import read_table
from fedrec_unlearn.data.types import Dataset
from fedrec_unlearn.errors import DataError

_READERS = {
    "atomic": read_atomic,
    "movielens": read_movielens,
    "adjacency": read_adjacency,
    "csv": read_table,
}


def load_dataset(config: DataConfig, attributes: Sequence[str] = ()) -> Dataset:
    """Find, read and filter a data set.

    First interactions rated below ``config.min_rating`` go, then the k-core is taken. Users and items are numbered
    by first appearance among what is left; attribute classes that no user is left in are dropped.

    Args:
        config: what to read.
        attributes: user attributes that must be there, also where a column looks like an identifier (more classes
            than half the users) or is the same for all users; such columns are left out otherwise.

    Raises:
        DataError: the files are not found or malformed, a column asked for is missing, or nothing is left.

    Warns:
        DataWarning: something was left out or is unknown, with a count.
    """
    found = find_files(config)
    dataset = _READERS[found.layout](found.files, config, attributes)
    for name in attributes:
        if name not in dataset.attributes:
            known = ", ".join(sorted(dataset.attributes)) or "none at all"
            raise DataError(f"{found.place}: data set {config.name!r} has no user attribute {name!r}; it has {known}")
    check_asked_for(dataset.item_features, config.item_features, config.name)
    if config.min_rating is not None:
        if dataset.rating is None:
            remedy = "set data.rating_column" if found.layout == "csv" else "unset it"
            raise DataError(f"data.min_rating: data set {config.name!r} was read without ratings; {remedy}")
        keep = dataset.rating >= config.min_rating
        if not keep.any():
            raise DataError(
                f"data.min_rating: no interaction is rated {config.min_rating:g} or more; "
                f"the highest rating is {dataset.rating.max():g}"
            )
        if not keep.all():
            dataset = keep_interactions(dataset, keep)
    dataset = k_core(dataset, config.min_user_interactions, config.min_item_interactions)
    present = {name: present_classes(attribute) for name, attribute in dataset.attributes.items()}
    return replace(dataset, attributes=present)
