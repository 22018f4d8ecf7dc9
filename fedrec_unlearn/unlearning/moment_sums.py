"""The secure sums behind moment transport and linear erasure: first how many users a class has, then its moments.

Counts come first so that no sum over a few users is ever opened: whose class turns out to have fewer than
`SMALLEST_CLASS` users that send takes no part in the second sum.

**Guarantee.** As `moments`: two servers that do not collude learn the size of every class and the moments of those with
at least `SMALLEST_CLASS` users, and of a single user nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrec_unlearn.config_unlearn import UnlearnConfig, UnlearnWarning
from fedrec_unlearn.data.types import MISSING, Attribute
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.federation.secure_sum import message_bytes
from fedrec_unlearn.unlearning.moments import (
    BoolArray,
    ClassMoments,
    FloatArray,
    IntArray,
    class_means_from_sum,
    class_message,
    client_message,
    draw_share,
    joint_labels,
    message_length,
    moments_from_sum,
)

FRACTION_BITS = 24
"""Binary digits of a moment on the wire."""
_BLOCK = 4096
"""Clients whose messages are added at once; results do not depend on it."""
SMALLEST_CLASS = 5
"""Users of a class below which its moments say too much of one user and too little of the class."""


@dataclass(frozen=True)
class FoundMoments:
    """Moments of the classes that are large enough."""

    moments: ClassMoments
    labels: IntArray
    """(n,): class of each user in `moments`, or `MISSING`: not known, or in a class that is too small."""
    bytes_up: int
    """Sent by one client."""
    bytes_down: int
    """Received by one client."""


def moments_of(rows: FloatArray, attributes: Sequence[Attribute], config: UnlearnConfig, seed: int) -> FoundMoments:
    """The moments of the attributes' joint classes, over the users drawn to send.

    Args:
        rows: (n, d).
        attributes: with the labels of those users; several are one whose classes are the combinations that occur.
        config: `moment_share` and `secure_sums`.
        seed: of the draw.

    Raises:
        ConfigError: fewer than two classes are large enough.

    Warns:
        UnlearnWarning: a class is left out.
    """
    labels, n_classes = joint_labels([a.labels for a in attributes], [len(a.classes) for a in attributes])
    sends = draw_share(seed, len(rows), config.moment_share)
    labels = without_small_classes(labels, secure_counts(labels, n_classes, sends), attributes)
    kept, width = int(labels.max()) + 1, rows.shape[1]
    lengths = n_classes, message_length(kept, width + width * (width + 1) // 2)
    up = sum(message_bytes(n) if config.secure_sums else 8 * n for n in lengths)
    return FoundMoments(secure_moments(rows, labels, kept, sends), labels, up, 8 * sum(lengths))


def secure_moments(rows: FloatArray, labels: IntArray, n_classes: int, sends: BoolArray) -> ClassMoments:
    """The moments of the classes as the two servers open them.

    The shares are not made here: they cancel in the sum bit for bit (`federation.secure_sum`), so the sum of the
    messages is the sum the servers open.

    Args:
        rows: (n, d).
        labels: (n,), or `MISSING`.
        n_classes: K.
        sends: bool (n,): who sends moments; the others send zeros.
    """
    labels = np.where(sends, labels, MISSING)
    width = rows.shape[1]
    total = np.zeros(n_classes * (1 + width + width * (width + 1) // 2), dtype=np.int64)
    for start in range(0, len(rows), _BLOCK):
        cut = slice(start, start + _BLOCK)
        total += client_message(rows[cut], labels[cut], n_classes, FRACTION_BITS).sum(axis=0)
    return moments_from_sum(total, n_classes, width, FRACTION_BITS)


def secure_counts(labels: IntArray, n_classes: int, sends: BoolArray) -> IntArray:
    """Users of each class that will send moments, (K,): a secure sum of its own, before any row is part of one.

    Args:
        labels: (n,), or `MISSING`.
        n_classes: K.
        sends: bool (n,).
    """
    nothing = np.zeros((len(labels), 0))
    total = class_message(nothing, np.where(sends, labels, MISSING), n_classes, 0).sum(axis=0)
    counts: IntArray = class_means_from_sum(total, n_classes, 0)[0].astype(np.int64)
    return counts


def without_small_classes(labels: IntArray, counts: IntArray, attributes: Sequence[Attribute]) -> IntArray:
    """Labels without the classes that are too small: a sum over a few users says too much of one.

    The other classes are numbered anew.

    Args:
        labels: joint classes, (n,), or `MISSING`.
        counts: users of each that would send.
        attributes: for their names in messages.

    Raises:
        ConfigError: fewer than two classes are left.

    Warns:
        UnlearnWarning: a class is left out.
    """
    small = np.flatnonzero(counts < SMALLEST_CLASS)
    told = []
    for k in small.tolist():
        user = int(np.flatnonzero(labels == k)[0])
        told.append(" and ".join(f"{a.name} {a.classes[a.labels[user]]!r}" for a in attributes) + f" ({counts[k]})")
    remedy = "raise unlearn.moment_share, merge classes, or unlearn fewer attributes"
    if len(counts) - len(small) < 2:
        raise ConfigError(
            f"unlearn.attributes: {SMALLEST_CLASS} of the users drawn are needed in two classes at least; "
            f"too few have {', '.join(told)}: {remedy}"
        )
    if told:
        warnings.warn(
            f"no moments are taken of classes with fewer than {SMALLEST_CLASS} users that send: "
            f"{', '.join(told)}; {remedy}",
            UnlearnWarning,
            stacklevel=3,
        )
    number = np.full(len(counts) + 1, MISSING, dtype=np.int64)  # the last one stands for MISSING itself
    kept = np.flatnonzero(counts >= SMALLEST_CLASS)
    number[kept] = np.arange(len(kept))
    renumbered: IntArray = number[labels]
    return renumbered
