"""Items of each user as a pair (indptr, items): user u has ``items[indptr[u]:indptr[u + 1]]``.

What the data layer calls `UserItems`, here as plain arrays so that metrics need not know the data layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedrec_unlearn.errors import DataError

IndexArray = NDArray[np.int64] | torch.Tensor
ItemLists = tuple[IndexArray, IndexArray]
"""(indptr, items), shapes (n_users + 1,) and (n,), integers, numpy or torch; items distinct within a user."""


class Csr(NamedTuple):
    """Checked `ItemLists` on one device, items ascending within a user."""

    indptr: torch.Tensor
    """int64, shape (n_users + 1,)."""
    items: torch.Tensor
    """int64, shape (n,)."""
    keys: torch.Tensor
    """int64, shape (n,): user * n_items + item, strictly ascending; answers membership by binary search."""
    n_items: int
    """Size of the catalogue."""

    @property
    def n_users(self) -> int:
        """Number of users, with or without items."""
        return len(self.indptr) - 1

    @property
    def counts(self) -> torch.Tensor:
        """int64, shape (n_users,): number of items of each user."""
        return self.indptr.diff()

    def contains(self, keys: torch.Tensor) -> torch.Tensor:
        """Whether each key (user * n_items + item, any shape) is in the lists."""
        if len(self.keys) == 0:
            return torch.zeros_like(keys, dtype=torch.bool)
        # the tensor has to be contiguous, or searchsorted copies it with a warning
        place = torch.searchsorted(self.keys, keys.contiguous()).clamp_(max=len(self.keys) - 1)
        return self.keys[place] == keys


def as_csr(name: str, lists: ItemLists, n_items: int, device: str | torch.device = "cpu") -> Csr:
    """Check and sort lists of items.

    Args:
        name: what the lists are, for messages (``seen``, ``relevant``).
        lists: (indptr, items).
        n_items: size of the catalogue; ids lie in 0 .. n_items - 1.
        device: where the result lives.

    Raises:
        DataError: indptr does not fit items, an id is out of range, or an item occurs twice for a user.
    """
    indptr, items = (_as_int64(name, array) for array in lists)
    if indptr.dim() != 1 or items.dim() != 1 or len(indptr) == 0:
        raise DataError(f"{name}: indptr and items must be one-dimensional, indptr with n_users + 1 entries")
    if int(indptr[0]) != 0 or int(indptr[-1]) != len(items) or bool((indptr.diff() < 0).any()):
        raise DataError(
            f"{name}: indptr must start at 0, never fall and end at the number of items ({len(items)}); "
            f"it runs from {int(indptr[0])} to {int(indptr[-1])}"
        )
    if len(items) and (int(items.min()) < 0 or int(items.max()) >= n_items):
        raise DataError(f"{name}: item ids run from {int(items.min())} to {int(items.max())}, outside 0..{n_items - 1}")
    users = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    keys = users * n_items + items
    if bool((keys[1:] < keys[:-1]).any()):
        keys = keys.sort().values
    if bool((keys[1:] == keys[:-1]).any()):
        twice = int(keys[:-1][keys[1:] == keys[:-1]][0])
        raise DataError(f"{name}: user {twice // n_items} has item {twice % n_items} twice; drop duplicates first")
    return Csr(indptr.to(device), (keys - users * n_items).to(device), keys.to(device), n_items)


def union(name: str, parts: Sequence[ItemLists], n_items: int) -> Csr:
    """Items that are in any of several lists of the same users (an item may be in more than one).

    Raises:
        DataError: as `as_csr`, or the lists are of different numbers of users.
    """
    checked = [as_csr(name, part, n_items) for part in parts]
    if len({part.n_users for part in checked}) != 1:
        raise DataError(f"{name}: lists are of different numbers of users: {[part.n_users for part in checked]}")
    keys = torch.cat([part.keys for part in checked]).sort().values
    keys = keys[torch.cat([torch.ones(min(len(keys), 1), dtype=torch.bool), keys[1:] != keys[:-1]])]
    users = keys // n_items
    indptr = torch.zeros(checked[0].n_users + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(users, minlength=checked[0].n_users).cumsum(0)
    return Csr(indptr, keys - users * n_items, keys, n_items)


def rows_of(csr: Csr, users: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Items of some users, flattened.

    Args:
        csr: lists on the device of `users`.
        users: int64, shape (m,), any order.

    Returns:
        (row, item), int64, same length: ``item[j]`` belongs to ``users[row[j]]``.
    """
    starts = csr.indptr[users]
    counts = csr.indptr[users + 1] - starts
    row = torch.repeat_interleave(torch.arange(len(users), device=users.device), counts)
    first = counts.cumsum(0) - counts
    place = torch.arange(len(row), device=users.device) + (starts - first)[row]
    return row, csr.items[place]


def _as_int64(name: str, array: Any) -> torch.Tensor:
    if isinstance(array, torch.Tensor):
        if array.is_floating_point() or array.is_complex() or array.dtype == torch.bool:
            raise DataError(f"{name}: indptr and items must be integers, not {array.dtype}")
        return array.detach().to("cpu", torch.int64)
    values = np.asarray(array)
    if values.dtype.kind not in "iu" and values.size:
        raise DataError(f"{name}: indptr and items must be integers, not {values.dtype}")
    # a copy, because torch warns about sharing memory with read-only arrays
    return torch.from_numpy(np.array(values, dtype=np.int64))
