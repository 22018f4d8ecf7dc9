"""What the readers produce and everything else consumes: interactions, attributes, splits.

All arrays are numpy and read-only by convention. Users and items are numbered 0..n-1 in the order in which
they first appear in the interactions; the original tokens are kept beside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.errors import DataError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

MISSING = -1
"""Label of a user whose attribute is not known: masked in training and attacks, never a class."""


@dataclass(frozen=True)
class Attribute:
    """A categorical attribute of users."""

    name: str
    classes: tuple[str, ...]
    """Names of the classes in the order of their labels."""
    labels: IntArray
    """Shape (n_users,): class of each user, or `MISSING`."""


@dataclass(frozen=True)
class ItemFeature:
    """A categorical feature of items; an item may have none, one or several values (genres)."""

    name: str
    values: tuple[str, ...]
    """Names of the values in the order of their ids."""
    indptr: IntArray
    """Shape (n_items + 1,): item i has the value ids `indices[indptr[i]:indptr[i + 1]]`."""
    indices: IntArray


@dataclass(frozen=True)
class Dataset:
    """Interactions in file order with what is known of users and items."""

    name: str
    user_tokens: NDArray[np.str_]
    """Shape (n_users,): the users' names in the files."""
    item_tokens: NDArray[np.str_]
    """Shape (n_items,): the items' names in the files."""
    user: IntArray
    """Shape (n,): user of each interaction."""
    item: IntArray
    """Shape (n,): item of each interaction."""
    rating: FloatArray | None = None
    """Shape (n,), or None where the files have no ratings."""
    timestamp: FloatArray | None = None
    """Shape (n,), seconds; NaN where unknown; None where the files have none."""
    attributes: dict[str, Attribute] = field(default_factory=dict)
    item_features: dict[str, ItemFeature] = field(default_factory=dict)
    given_part: NDArray[np.int8] | None = None
    """Shape (n,): 0 train, 1 validation, 2 test, where the files come already split."""

    @property
    def n_users(self) -> int:
        return len(self.user_tokens)

    @property
    def n_items(self) -> int:
        return len(self.item_tokens)

    @property
    def n_interactions(self) -> int:
        return len(self.user)


@dataclass(frozen=True)
class UserItems:
    """Items of each user as a ragged array (CSR), items ascending within a user and distinct."""

    n_items: int
    indptr: IntArray
    """Shape (n_users + 1,)."""
    items: IntArray
    """Shape (n,)."""
    ratings: FloatArray | None = None
    """Shape (n,), aligned with `items`."""

    def __post_init__(self) -> None:
        if len(self.indptr) < 1 or self.indptr[-1] != len(self.items):
            raise DataError("UserItems: indptr does not match items; build it with UserItems.from_pairs")

    @property
    def n_users(self) -> int:
        return len(self.indptr) - 1

    @property
    def counts(self) -> IntArray:
        """Shape (n_users,): number of items of each user."""
        return np.diff(self.indptr)

    def of(self, user: int) -> IntArray:
        """Items of one user, ascending."""
        return self.items[self.indptr[user] : self.indptr[user + 1]]

    @classmethod
    def from_pairs(
        cls, user: IntArray, item: IntArray, n_users: int, n_items: int, rating: FloatArray | None = None
    ) -> UserItems:
        """Group (user, item) pairs by user.

        Args:
            user, item: shape (n,), ids in range; pairs distinct.
            n_users, n_items: sizes of the two id spaces.
            rating: shape (n,), optional.

        Raises:
            DataError: an id out of range, or a pair twice.
        """
        if len(user) and (user.min() < 0 or user.max() >= n_users or item.min() < 0 or item.max() >= n_items):
            raise DataError("UserItems: a user or item id is out of range")
        order = np.lexsort((item, user))
        keys = user[order].astype(np.int64) * n_items + item[order]
        if np.any(keys[1:] == keys[:-1]):
            raise DataError("UserItems: a (user, item) pair occurs twice")
        indptr = np.zeros(n_users + 1, dtype=np.int64)
        np.cumsum(np.bincount(user, minlength=n_users), out=indptr[1:])
        ratings = None if rating is None else np.asarray(rating, dtype=np.float64)[order]
        return cls(n_items, indptr, np.ascontiguousarray(item[order], dtype=np.int64), ratings)


@dataclass(frozen=True)
class Split:
    """Train, validation and test items of each user; the three are disjoint per user."""

    train: UserItems
    valid: UserItems
    test: UserItems
