"""Which users an attacker may learn from, and on which it is judged: stratified folds and their limits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.data.types import MISSING
from fedrec_unlearn.seeds import Purpose, generator

IntArray = NDArray[np.int64]

# first counter of the draws made under Purpose.ATTACK, so that no two uses share a stream
OUTER_FOLDS, INNER_FOLDS, ATTACKER_STATE, SHUFFLED_LABELS = range(4)


def smallest_class(folds: int, inner_folds: int) -> int:
    """Users a class needs so that it occurs in every outer fold and, within the rest, in every inner fold.

    Args:
        folds, inner_folds: at least 2 each.

    Returns:
        The smallest n with n >= folds and n - ceil(n / folds) >= inner_folds; 5 for 5 folds and 3 inner ones.
    """
    n = folds
    while n + -n // folds < inner_folds:
        n += 1
    return n


def stratified_folds(labels: IntArray, folds: int, draws: np.random.Generator) -> IntArray:
    """Assign users to folds at random, every class as evenly as its size allows.

    Args:
        labels: class ids, shape (n,), none missing.
        folds: number of folds.
        draws: source of the random order.

    Returns:
        Fold of each user, shape (n,). Per class, and over all users, two folds differ by one user at most.
    """
    fold = np.empty(len(labels), dtype=np.int64)
    order = draws.permutation(len(labels))
    # dealing the users out class by class, without starting afresh, keeps whole folds even too
    dealt = order[np.argsort(labels[order], kind="stable")]
    fold[dealt] = np.arange(len(labels)) % folds
    return fold


def shuffled_labels(labels: IntArray, seed: int) -> IntArray:
    """Labels dealt out anew among the users that have one: a control in which nothing can be inferred.

    An attack on these must stay at 1/K; if it does not, the attack is at fault, not the model.

    Args:
        labels: class ids, shape (n,); `MISSING` stays where it is.
        seed: of the permutation.

    Returns:
        Class ids, shape (n,), every class as often as before.
    """
    shuffled = np.array(labels, dtype=np.int64)
    known = np.flatnonzero(shuffled != MISSING)
    draws = generator(seed, Purpose.ATTACK, SHUFFLED_LABELS)
    shuffled[known] = shuffled[draws.permutation(known)]
    return shuffled
