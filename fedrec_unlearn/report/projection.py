"""User embeddings in two dimensions: principal components, and a fixed sample where there are too many users."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.report.record import Users
from fedrec_unlearn.report.wording import printable
from fedrec_unlearn.seeds import Purpose, hash_counters, stream_key

MAX_POINTS = 3000
"""Users drawn at most; more would hide each other and make the page heavy."""


@dataclass(frozen=True)
class Projection:
    """Users on the two directions in which their embeddings vary most."""

    n_users: int
    width: int
    """Length of an embedding."""
    explained_variance: tuple[float, float]
    """Share of the variance along each axis, of all users; 0 where there is no variance."""
    points: NDArray[np.float64]
    """Shape (n_shown, 2), six significant digits."""
    attributes: dict[str, tuple[tuple[str, ...], NDArray[np.int64]]]
    """Attribute name -> (names of the classes, labels of shape (n_shown,); -1 = not known)."""


def principal_components(representation: NDArray[np.floating]) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Scores on the first two principal components.

    Args:
        representation: shape (n, width), finite.

    Returns:
        Scores of shape (n, 2), and the share of the variance each explains. A component's sign is chosen so
        that its largest loading (by size, the first of equals) is positive. With width 1, or without any
        variance, the scores of what does not exist are 0, and so is its share.

    Source: Jolliffe 2002, section 3.5 (singular value decomposition of the centred matrix).
    """
    centred = np.asarray(representation, dtype=np.float64)
    centred = centred - centred.mean(axis=0)
    scale = float(np.abs(centred).max())
    scores = np.zeros((len(centred), 2))
    share = [0.0, 0.0]
    if scale == 0.0:
        return scores, (0.0, 0.0)
    # dividing by the scale keeps the squares of tiny or huge embeddings in range
    _, singular, loadings = np.linalg.svd(centred / scale, full_matrices=False)
    total = float((singular**2).sum())
    for k in range(min(2, len(singular))):
        loading = loadings[k]
        sign = 1.0 if loading[int(np.argmax(np.abs(loading)))] > 0 else -1.0
        scores[:, k] = centred @ (sign * loading)
        share[k] = float(singular[k] ** 2) / total
    return scores, (share[0], share[1])


def sample_users(n_users: int, limit: int = MAX_POINTS) -> NDArray[np.int64]:
    """Which users to draw: all, or `limit` of them, the same in every run with as many users.

    Returns:
        Ascending user numbers, shape (min(n_users, limit),).
    """
    if n_users <= limit:
        return np.arange(n_users)
    words = hash_counters(stream_key(0, Purpose.EVALUATION, n_users), np.arange(n_users))
    return np.sort(np.argsort(words, kind="stable")[:limit])


def project(users: Users) -> Projection:
    """Project the users; components come from all of them, points from at most `MAX_POINTS`."""
    scores, share = principal_components(users.representation)
    shown = sample_users(len(scores))
    rounded = np.array([[float(f"{value:.6g}") for value in row] for row in scores[shown]])
    attributes = {
        printable(name): (tuple(printable(label) for label in classes), labels[shown])
        for name, (classes, labels) in users.attributes.items()
    }
    return Projection(len(scores), users.representation.shape[1], share, rounded, attributes)
