"""Moment transport: after training, secure sums of counts and moments by class, then every client moves its own row.

No adversary, no gradient an attacker could invert and no further round. What the clients send is
`moments.client_message`; what comes back is the sum, from which every client works out the map of its class
(`transport_map`).

Only a random part of the users send (`unlearn.moment_share`), the others send zeros. With everyone's moments the
classes would be evened out *in the sample an attacker judges*: whoever learns from some of the users then finds the
opposite in the others. The part is a knob between that and the sampling error of the moments.

**Guarantee.** As `moments`: the two servers learn the moments of the classes and nothing of one user, as long as they
do not collude. All clients learn the moments too. What is evened out are moments up to the second, as far as the ridge
lets them: an attacker may still find what lies in others, and a snapshot of a row from before the transport tells what
it told then. The map of a class is public, so a row's value before *and* after shows the class: a client shows one.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

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
    moments_from_sum,
)
from fedrec_unlearn.unlearning.transport_map import ClassMaps, damped_maps, mean_maps, optimal_maps, shrunk

FRACTION_BITS = 24
"""Binary digits of a moment on the wire."""
_BLOCK = 4096
"""Clients whose messages are added at once; results do not depend on it."""
SMALLEST_CLASS = 5
"""Users of a class below which its moments say too much of one user and too little of the class."""


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


def transport_rows(
    rows: Tensor, attributes: Sequence[Attribute], config: UnlearnConfig, *, items: Tensor | None, seed: int
) -> tuple[Tensor, int, int]:
    """Move the private rows so that classes are alike in mean and covariance.

    Several attributes are unlearned as one whose classes are the combinations that occur.

    Args:
        rows: private rows, (n, width).
        attributes: with the labels of those users; rows of users who do not know one of them stay.
        config: `moment_share`, `moment_order`, `transport_ridge` and `shrinkage`.
        items: what a row is multiplied with to score items, (m, width), or None where scores are not linear in it.
        seed: of the draw of users.

    Returns:
        the rows, (n, width) as given; bytes sent and bytes received by all clients together.

    Raises:
        ConfigError: fewer than two classes, or combinations of classes, with enough users among those drawn.
        ModelError: rows that do not vary.

    Warns:
        UnlearnWarning: a class has too few users; their rows stay.
    """
    known = rows.detach().cpu().to(torch.float64).numpy()
    labels, n_classes = joint_labels([a.labels for a in attributes], [len(a.classes) for a in attributes])
    sends = draw_share(seed, len(known), config.moment_share)
    counts = secure_counts(labels, n_classes, sends)
    labels = without_small_classes(labels, counts, attributes)
    kept = int(labels.max()) + 1
    moments = secure_moments(known, labels, kept, sends)
    maps = make_maps(shrunk(moments, config.shrinkage), config, items)
    moved = torch.from_numpy(maps.apply(known, labels)).to(rows)
    length = kept * (1 + known.shape[1] + known.shape[1] * (known.shape[1] + 1) // 2)
    lengths = (n_classes, length)
    up = sum(message_bytes(n) if config.secure_sums else 8 * n for n in lengths)
    return moved, up * len(known), 8 * sum(lengths) * len(known)


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
            f"unlearn.attributes: moment transport needs {SMALLEST_CLASS} of the users drawn in two classes at least; "
            f"too few have {', '.join(told)}: {remedy}"
        )
    if told:
        warnings.warn(
            f"moment transport leaves users as they are whose class has fewer than {SMALLEST_CLASS} users that send: "
            f"{', '.join(told)}; {remedy}",
            UnlearnWarning,
            stacklevel=3,
        )
    number = np.full(len(counts) + 1, MISSING, dtype=np.int64)  # the last one stands for MISSING itself
    kept = np.flatnonzero(counts >= SMALLEST_CLASS)
    number[kept] = np.arange(len(kept))
    renumbered: IntArray = number[labels]
    return renumbered


def make_maps(moments: ClassMoments, config: UnlearnConfig, items: Tensor | None) -> ClassMaps:
    """The maps a configuration asks for.

    Args:
        moments: of the classes.
        config: `moment_order` and `transport_ridge`.
        items: as for `transport_rows`.
    """
    if config.moment_order == "mean":
        return mean_maps(moments)
    if config.moment_order == "optimal":
        return optimal_maps(moments)
    cost = None
    if items is not None:
        factors = items.detach().cpu().to(torch.float64).numpy()
        centred = factors - factors.mean(axis=0)  # what moves all scores alike changes no ranking
        cost = centred.T @ centred / len(centred)
    return damped_maps(moments, cost, config.transport_ridge)
