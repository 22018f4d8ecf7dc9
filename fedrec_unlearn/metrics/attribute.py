"""How well an attacker infers a categorical attribute: pure functions on class ids and scores.

Labels are 0 .. K-1. A missing label (-1) is refused, not ignored: who is left out is the caller's decision
and belongs in its tables. Every function names what guessing reaches, because that is what a reader of an
audit compares with.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrec_unlearn.errors import DataError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def accuracy(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Share of users whose class is named right.

    Args:
        predicted: class ids, shape (n,).
        actual: class ids, shape (n,).

    Returns:
        A value in [0, 1]; always naming the largest class reaches `majority_share`.

    Raises:
        DataError: shapes differ, nothing is given, or a label is missing or not an integer.
    """
    guess, truth = _labels(predicted, actual)
    return float(np.mean(guess == truth))


def balanced_accuracy(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Mean of per-class recall over the classes present in `actual`.

    Args:
        predicted: class ids, shape (n,).
        actual: class ids, shape (n,), at least two classes present.

    Returns:
        A value in [0, 1]; with K classes present, a constant guess reaches 1/K exactly and a random guess
        1/K on average (`chance_level`).

    Raises:
        DataError: as `accuracy`, or `actual` holds a single class.

    Source: Brodersen et al. 2010 for two classes; the mean over K is what scikit-learn computes.
    """
    guess, truth = _labels(predicted, actual)
    classes, index, counts = _classes(truth)
    right = np.bincount(index, weights=guess == truth, minlength=len(classes))
    return float(np.mean(right / counts))


def macro_f1(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Mean of per-class F1 over the classes that occur in `predicted` or `actual`.

    F1 of a class = 2 TP / (2 TP + FP + FN); a class that is never named right has 0.

    Args:
        predicted: class ids, shape (n,).
        actual: class ids, shape (n,), at least two classes present.

    Returns:
        A value in [0, 1]. A constant guess of a class with share p reaches 2p / (1 + p) / K.

    Raises:
        DataError: as `balanced_accuracy`.

    Source: Opitz and Burst 2019, "averaged F1", which is also scikit-learn's macro average.
    """
    guess, truth = _labels(predicted, actual)
    _classes(truth)
    classes, index = np.unique(np.concatenate([guess, truth]), return_inverse=True)
    named, present = (np.bincount(part, minlength=len(classes)) for part in np.split(index, 2))
    right = np.bincount(index[: len(guess)], weights=guess == truth, minlength=len(classes))
    return float(np.mean(2.0 * right / (named + present)))


def auc(scores: ArrayLike, actual: ArrayLike) -> float:
    """Area under the ROC curve: the chance that a member of a class scores above a non-member, ties half.

    Args:
        scores: shape (n,) with two classes, larger for class 1; or shape (n, K), column c larger for class c.
            With K = 2 columns, column 1 is used.
        actual: class ids, shape (n,), at least two classes present; 0 .. K-1.

    Returns:
        A value in [0, 1]; uninformative scores reach 0.5 whatever the class shares. With more than two classes,
        the mean of one-versus-rest areas over the classes present in `actual`.

    Raises:
        DataError: shapes do not fit, a single class is present, a label lies outside 0 .. K-1, or a score is
            NaN.

    Source: Hanley and McNeil 1982 (rank statistic); Provost and Domingos 2000 (one versus rest), unweighted.
    """
    values, truth = np.asarray(scores, dtype=np.float64), _integers("actual", actual)
    columns = 2 if values.ndim == 1 else values.shape[-1]
    if values.ndim not in (1, 2) or values.shape[0] != len(truth) or columns < 2:
        raise DataError(f"auc: scores must be (n,) or (n, K), not {values.shape}, for {len(truth)} labels")
    classes, _, _ = _classes(truth)
    if classes[-1] >= columns:
        raise DataError(f"auc: class {classes[-1]} occurs, but the scores are of {columns} classes")
    if np.isnan(values).any():
        raise DataError("auc: a score is NaN")
    if columns == 2:
        return _binary_auc(values if values.ndim == 1 else values[:, 1], truth == 1)
    return float(np.mean([_binary_auc(values[:, c], truth == c) for c in classes]))


def majority_share(actual: ArrayLike) -> float:
    """Share of the largest class: the accuracy of always naming it.

    Args:
        actual: class ids, shape (n,).

    Raises:
        DataError: nothing is given, or a label is missing or not an integer.
    """
    truth = _integers("actual", actual)
    return float(np.bincount(truth).max() / len(truth))


def chance_level(actual: ArrayLike) -> float:
    """Balanced accuracy of guessing: 1 / number of classes present.

    Args:
        actual: class ids, shape (n,), at least two classes present.

    Raises:
        DataError: as `majority_share`, or a single class.
    """
    classes, _, _ = _classes(_integers("actual", actual))
    return 1.0 / len(classes)


def _binary_auc(scores: FloatArray, member: NDArray[np.bool_]) -> float:
    # mean rank of each group of equal scores, so that a tie counts half
    _, group, size = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(size)
    rank = (last - (size - 1) / 2.0)[group]
    n, m = int(member.sum()), int((~member).sum())
    return float((rank[member].sum() - n * (n + 1) / 2.0) / (n * m))


def _integers(name: str, labels: ArrayLike) -> IntArray:
    array = np.asarray(labels)
    if array.ndim != 1 or array.size == 0:
        raise DataError(f"{name}: labels must be a non-empty array of shape (n,), not {array.shape}")
    if array.dtype.kind not in "iub":
        raise DataError(f"{name}: labels must be integers, not {array.dtype}")
    result = array.astype(np.int64)
    if result.min() < 0:
        raise DataError(f"{name}: {int((result < 0).sum())} labels are missing (negative); leave these users out first")
    return result


def _labels(predicted: ArrayLike, actual: ArrayLike) -> tuple[IntArray, IntArray]:
    guess, truth = _integers("predicted", predicted), _integers("actual", actual)
    if guess.shape != truth.shape:
        raise DataError(f"predicted has {len(guess)} labels, actual has {len(truth)}; they must be of the same users")
    return guess, truth


def _classes(truth: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    classes, index, counts = np.unique(truth, return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise DataError(f"actual: all {len(truth)} users are of class {classes[0]}; two classes are needed")
    return classes, index, counts
