"""A client's choice of a bin for each of its items: matching by augmenting paths, on the client alone."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.secemb.batch_code import Code


def match(code: Code, items: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give each item a tree of its own, as far as possible.

    Earlier items keep what they have: an item is left over only if no rearrangement of those before it makes room.
    So the first two items always get a tree (where an item has a choice of two), and the number placed is the
    largest possible.

    Args:
        code: the batch code.
        items: int64 (n,), distinct.

    Returns:
        int64 (n,): the tree of each item, −1 where there is none.

    Source: Kuhn 1955 (augmenting paths), breadth first.
    """
    n = len(items)
    if code.paper:
        places = np.arange(n)
        return np.where(places < code.parameters.trees, places, -1)
    options: list[list[int]] = code.bin_of[:, items].T.tolist()
    holder = [-1] * code.parameters.trees
    tree_of = [-1] * n
    for item in range(n):
        for tree in options[item]:
            if holder[tree] < 0:
                holder[tree], tree_of[item] = item, tree
                break
        else:
            # at once: an item that comes later must not take the tree that a path would have led to
            _augment(options, holder, tree_of, item)
    return np.array(tree_of, dtype=np.int64)


def _augment(options: list[list[int]], holder: list[int], tree_of: list[int], item: int) -> None:
    """Find a path from an item without a tree to a free one and move the items along it; lists change in place."""
    came_from: dict[int, int] = {}
    queue = deque([item])
    free = -1
    while queue and free < 0:
        current = queue.popleft()
        for tree in options[current]:
            if tree in came_from:
                continue
            came_from[tree] = current
            if holder[tree] < 0:
                free = tree
                break
            queue.append(holder[tree])
    while free >= 0:  # hand each tree on to the item that asked for it
        mover = came_from[free]
        given_up = tree_of[mover]
        tree_of[mover], holder[free] = free, mover
        free = given_up
