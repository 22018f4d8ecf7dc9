"""What a user's row tells while it is trained: several moments of it, and the directions it moves in.

Unlearning is judged at the end of training, but a device holds its row all the time, and whoever has access to it
now and then (a backup, a synchronised device, a server that reads item gradients) sees it move. Gradient reversal
pushes a row away from what an adversary sees *of this user's label*, so the push itself is a function of the
label: the end may be unreadable where the way there is not. These are features for `infer_attribute`; without
unlearning they are the baseline that tells how much of it the unlearning adds.

| surface | who sees it |
|---|---|
| `trajectory_features` | someone with access to the row at T moments |
| `direction_features` | the same, without the row's place and without how far it moved |
| `one_step_direction` | a server that reads the rows before and after a step, or their direction out of an upload |

After one local step of MF every item row a user uploads is a multiple of the user's row (`update_values`), so two
uploads show two directions of it, under every transport that lets the server see a single user's upload.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrec_unlearn.errors import AttackError

FloatArray = NDArray[np.float64]


def trajectory_features(snapshots: ArrayLike) -> FloatArray:
    """The rows of all moments side by side.

    Args:
        snapshots: (T, n, width), the rows of n users at T moments, T at least 1; finite.

    Returns:
        (n, T * width), float64, the first moment first.

    Raises:
        AttackError: the shape is another, or a value is NaN or infinite.
    """
    moments = _moments(snapshots, at_least=1)
    return np.ascontiguousarray(moments.transpose(1, 0, 2)).reshape(moments.shape[1], -1)


def direction_features(snapshots: ArrayLike) -> FloatArray:
    """The direction of the way from each moment to the next, as unit vectors side by side.

    Args:
        snapshots: (T, n, width), the rows of n users at T moments, T at least 2; finite.

    Returns:
        (n, (T - 1) * width), float64; zeros where a row did not move.

    Raises:
        AttackError: the shape is another, or a value is NaN or infinite.
    """
    moments = _moments(snapshots, at_least=2)
    return trajectory_features(_unit(np.diff(moments, axis=0)))


def one_step_direction(before: ArrayLike, after: ArrayLike) -> FloatArray:
    """The direction of a single step.

    Args:
        before, after: (n, width), the rows of n users before and after a step; finite.

    Returns:
        (n, width), float64, unit vectors; zeros where a row did not move.

    Raises:
        AttackError: the shapes differ, or a value is NaN or infinite.
    """
    first, second = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if first.shape != second.shape:
        raise AttackError(f"one_step_direction: rows before have shape {first.shape}, after {second.shape}")
    return direction_features(np.stack([first, second]))


def _moments(snapshots: ArrayLike, at_least: int) -> FloatArray:
    moments = np.asarray(snapshots, dtype=np.float64)
    if moments.ndim != 3 or len(moments) < at_least or moments.shape[2] == 0:
        raise AttackError(
            f"trajectory: snapshots must have shape (T, n, width) with T at least {at_least}, not {moments.shape}; "
            "federation.snapshot_every keeps the rows of several moments of a run"
        )
    if not np.isfinite(moments).all():
        moment, user = (int(i[0]) for i in np.nonzero(~np.isfinite(moments).all(axis=2)))
        raise AttackError(f"trajectory: the row of user {user} is NaN or infinite at moment {moment}")
    return moments


def _unit(vectors: FloatArray) -> FloatArray:
    # scaled by the largest component first: squares of tiny steps would vanish
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    scaled = vectors / np.where(largest == 0.0, 1.0, largest)
    length = np.linalg.norm(scaled, axis=-1, keepdims=True)
    return np.asarray(scaled / np.where(length == 0.0, 1.0, length), dtype=np.float64)
