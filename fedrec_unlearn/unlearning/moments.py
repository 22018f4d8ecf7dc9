"""Class-wise means of what clients know of themselves, from sums in which nobody's class can be seen.

A client knows its private row x and its class y. It sends one vector: K slots, one a class, each with a count and some
values of the row. In slot y it writes 1 and the values, in the others zeros. Summed over clients, slot k holds the
number of users of class k and the sum of their values. With the values x and x xᵀ that is enough for the mean and the
covariance of every class (`ClassMoments`).

**Guarantee.** The vectors are integers in fixed point and all of one length, so they can be summed as additive shares
by two servers (`federation.secure_sum`). Servers that follow the protocol and do not collude then learn, per class, the
number of users that took part and the sum of their values; of a single user neither row nor class nor whether its
class is known, provided that all clients send, those that take no part zeros alone.

| case | what happens |
|---|---|
| a user without a known class, or one not drawn | sends zeros, like a class slot that is not its own |
| a class with one user | its slot of the sum *is* that user's row: merge such classes before |
| two sums over users that differ by one | their difference is that user's vector: take part in all or none |
| the servers collude | every vector can be read |
| noise on the sums | is not part of this; the sums are exact and promise no differential privacy |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.data.types import MISSING
from fedrec_unlearn.errors import DataError, ModelError, TransportError
from fedrec_unlearn.seeds import Purpose, stream_key, uniform

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

LARGEST_NUMBER = 1 << 42
"""Bound of a number in fixed point, so that a million of them add up within int64."""

_SHARE_DRAW = 1
"""First counter of the draw of users under Purpose.UNLEARN."""


@dataclass(frozen=True)
class ClassMoments:
    """Sizes, means and covariances of K classes of rows."""

    counts: FloatArray
    """Shape (K,): users of each class in the sums."""
    means: FloatArray
    """Shape (K, d)."""
    covariances: FloatArray
    """Shape (K, d, d), divided by the count (not by the count less one)."""

    @property
    def weights(self) -> FloatArray:
        """Shape (K,): shares of the classes, summing to 1."""
        weights: FloatArray = self.counts / self.counts.sum()
        return weights

    @property
    def mean(self) -> FloatArray:
        """Shape (d,): mean over the users of all classes."""
        mean: FloatArray = self.weights @ self.means
        return mean

    @property
    def within(self) -> FloatArray:
        """Shape (d, d): mean covariance within classes."""
        within: FloatArray = np.einsum("k,kij->ij", self.weights, self.covariances)
        return within

    @property
    def covariance(self) -> FloatArray:
        """Shape (d, d): covariance of all users, within and between classes."""
        centred = self.means - self.mean
        covariance: FloatArray = self.within + np.einsum("k,ki,kj->ij", self.weights, centred, centred)
        return covariance


def draw_share(seed: int, n_users: int, share: float) -> BoolArray:
    """Which users take part: each by a coin of its own.

    Args:
        seed: of the run.
        n_users: number of users.
        share: chance of each, in (0, 1].

    Returns:
        Shape (n_users,); entry u depends on the seed and u alone.
    """
    drawn: BoolArray = uniform(stream_key(seed, Purpose.UNLEARN, _SHARE_DRAW), (n_users,)) < share
    return drawn


def joint_labels(labels: Sequence[IntArray], n_classes: Sequence[int]) -> tuple[IntArray, int]:
    """Several attributes as one: a class for every combination of classes that occurs.

    Args:
        labels: class of each user in each attribute, shape (n_users,) each, or `MISSING`.
        n_classes: number of classes of each.

    Returns:
        Joint labels of shape (n_users,), numbered in the order of the combinations, `MISSING` where any of a user's
        labels is; and the number of joint classes.
    """
    joint = np.zeros(len(labels[0]), dtype=np.int64)
    known = np.ones(len(joint), dtype=bool)
    for of_attribute, size in zip(labels, n_classes, strict=True):
        known &= of_attribute != MISSING
        joint = joint * size + of_attribute
    joint[~known] = MISSING
    present, numbered = np.unique(joint[known], return_inverse=True)
    joint[known] = numbered
    return joint, len(present)


def products(rows: FloatArray) -> FloatArray:
    """The distinct products of a row's entries.

    Args:
        rows: shape (n, d).

    Returns:
        Shape (n, d(d+1)/2): x_i x_j for i <= j, row by row of the upper triangle.
    """
    upper = np.triu_indices(rows.shape[1])
    return rows[:, upper[0]] * rows[:, upper[1]]


def message_length(n_classes: int, n_values: int) -> int:
    """Numbers in a client's vector of `class_message`."""
    return n_classes * (1 + n_values)


def class_message(values: FloatArray, labels: IntArray, n_classes: int, fraction_bits: int) -> IntArray:
    """What each client of a block sends so that class-wise means of `values` can be taken.

    Args:
        values: what to average, shape (C, D); of clients without a class they are not read.
        labels: class of each client, shape (C,), or `MISSING`.
        n_classes: K.
        fraction_bits: binary digits after the point, 0 to 40.

    Returns:
        int64 (C, K (1 + D)): per class a count and D values, zeros in the slots that are not the client's.

    Raises:
        TransportError: a value is not finite, or too large for the fixed point.
        DataError: a label is out of range.
    """
    taking_part = np.flatnonzero(_known(labels, n_classes))
    scaled = np.rint(values[taking_part] * float(1 << fraction_bits))
    if scaled.size and not bool((np.abs(scaled) < LARGEST_NUMBER).all()):
        raise TransportError(
            f"unlearning: a private row has values that are not finite or too large for {fraction_bits} fraction bits; "
            "training has diverged, lower the learning rates and train again"
        )
    message = np.zeros((len(labels), n_classes, 1 + values.shape[1]), dtype=np.int64)
    message[taking_part, labels[taking_part], 0] = 1
    message[taking_part, labels[taking_part], 1:] = scaled.astype(np.int64)
    return message.reshape(len(labels), message_length(n_classes, values.shape[1]))


def class_means_from_sum(total: IntArray, n_classes: int, fraction_bits: int) -> tuple[FloatArray, FloatArray]:
    """Counts and class-wise means from the sum of `class_message` over clients.

    Args:
        total: int64 (K (1 + D),).
        n_classes: K.
        fraction_bits: as in the messages.

    Returns:
        counts (K,) and means (K, D), float64; the means of an empty class are 0.

    Raises:
        TransportError: the sum's length does not fit, or a count is negative.
    """
    if total.ndim != 1 or len(total) % n_classes or len(total) == 0:
        raise TransportError(f"unlearning: a sum of shape {total.shape} has no {n_classes} equal slots")
    slots = np.asarray(total, dtype=np.int64).reshape(n_classes, -1)
    counts = slots[:, 0].astype(np.float64)
    if (counts < 0).any():
        raise TransportError("unlearning: a class has a negative count; a client's shares do not fit together")
    return counts, slots[:, 1:] / float(1 << fraction_bits) / np.maximum(counts, 1.0)[:, None]


def client_message(rows: FloatArray, labels: IntArray, n_classes: int, fraction_bits: int) -> IntArray:
    """What each client of a block sends for the moments of its class.

    Args:
        rows: private rows, shape (C, d).
        labels: class of each client, shape (C,), or `MISSING` (also of those not drawn).
        n_classes: K.
        fraction_bits: binary digits after the point.

    Returns:
        int64 (C, K (1 + d + d (d + 1) / 2)).

    Raises:
        TransportError: a value is not finite, or too large for the fixed point.
        DataError: a label is out of range.
    """
    return class_message(np.concatenate([rows, products(rows)], axis=1), labels, n_classes, fraction_bits)


def moments_from_sum(total: IntArray, n_classes: int, width: int, fraction_bits: int) -> ClassMoments:
    """Moments of the classes from the sum of `client_message` over clients.

    Args:
        total: int64 (K (1 + d + d (d + 1) / 2),).
        n_classes: K.
        width: d.
        fraction_bits: as in the messages.

    Raises:
        TransportError: the sum's length does not fit.
    """
    if len(total) != message_length(n_classes, width + width * (width + 1) // 2):
        raise TransportError(f"unlearning: a sum of {len(total)} numbers is not one of {n_classes} classes of {width}")
    counts, means = class_means_from_sum(total, n_classes, fraction_bits)
    second = np.empty((n_classes, width, width))
    upper = np.triu_indices(width)
    second[:, upper[0], upper[1]] = means[:, width:]
    second[:, upper[1], upper[0]] = means[:, width:]
    first = means[:, :width]
    return ClassMoments(counts, first, second - first[:, :, None] * first[:, None, :])


def class_moments(rows: FloatArray, labels: IntArray, n_classes: int) -> ClassMoments:
    """The same moments taken directly, for who holds all rows.

    Args:
        rows: shape (n, d).
        labels: shape (n,), or `MISSING`.
        n_classes: K.

    Returns:
        Moments in float64; an empty class has count, mean and covariance 0.

    Raises:
        DataError: a label is out of range.
    """
    _known(labels, n_classes)
    width = rows.shape[1]
    counts, means, covariances = np.zeros(n_classes), np.zeros((n_classes, width)), np.zeros((n_classes, width, width))
    for k in range(n_classes):
        members = rows[labels == k]
        counts[k] = len(members)
        if len(members):
            means[k] = members.mean(axis=0)
            centred = members - means[k]
            covariances[k] = centred.T @ centred / len(members)
    return ClassMoments(counts, means, covariances)


def _known(labels: IntArray, n_classes: int) -> BoolArray:
    if n_classes < 1:
        raise ModelError(f"unlearning needs at least one class, not {n_classes}")
    known: BoolArray = labels != MISSING
    wrong = np.flatnonzero(known & ((labels < 0) | (labels >= n_classes)))
    if len(wrong):
        raise DataError(
            f"user {wrong[0]} (counted from 0) has class {labels[wrong[0]]}; there are {n_classes}, "
            f"0 to {n_classes - 1}, and {MISSING} for a missing one"
        )
    return known
