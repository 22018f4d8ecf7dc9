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
    points_before: NDArray[np.float64] | None = None
    """The same users before unlearning, shape (n_shown, 2); the axes are then those of the state before."""
    explained_variance_before: tuple[float, float] | None = None
    """Share of the variance before along each axis; `explained_variance` is that after, on the same axes."""


@dataclass(frozen=True)
class Axes:
    """Two directions through the mean of a table."""

    centre: NDArray[np.float64]
    """Shape (width,)."""
    directions: NDArray[np.float64]
    """Shape (2, width), of length 1 and at right angles; 0 where a direction does not exist."""

    def scores(self, table: NDArray[np.floating]) -> NDArray[np.float64]:
        """Coordinates of rows, shape (n, width), on the axes: shape (n, 2)."""
        return (np.asarray(table, dtype=np.float64) - self.centre) @ self.directions.T

    def share(self, table: NDArray[np.floating]) -> tuple[float, float]:
        """Share of the variance of a table, shape (n, width), along each axis; 0 where it has none."""
        centred = np.asarray(table, dtype=np.float64)
        centred = centred - centred.mean(axis=0)
        scale = float(np.abs(centred).max())
        if scale == 0.0:
            return (0.0, 0.0)
        # dividing by the scale keeps the squares of tiny or huge embeddings in range
        centred /= scale
        along = ((centred @ self.directions.T) ** 2).sum(axis=0) / (centred**2).sum()
        return (float(along[0]), float(along[1]))


def principal_axes(representation: NDArray[np.floating]) -> Axes:
    """The two directions in which a table of shape (n, width), finite, varies most.

    A direction's sign is chosen so that its largest loading (by size, the first of equals) is positive. With width
    1, or without any variance, a direction that does not exist is 0.

    Source: Jolliffe 2002, section 3.5 (singular value decomposition of the centred matrix).
    """
    table = np.asarray(representation, dtype=np.float64)
    centre = table.mean(axis=0)
    centred = table - centre
    scale = float(np.abs(centred).max())
    directions = np.zeros((2, table.shape[1]))
    if scale == 0.0:
        return Axes(centre, directions)
    _, _, loadings = np.linalg.svd(centred / scale, full_matrices=False)
    for k in range(min(2, len(loadings))):
        sign = 1.0 if loadings[k][int(np.argmax(np.abs(loadings[k])))] > 0 else -1.0
        directions[k] = sign * loadings[k]
    return Axes(centre, directions)


def principal_components(representation: NDArray[np.floating]) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Scores of a table, shape (n, width), on its `principal_axes`: shape (n, 2); and the share of variance of each."""
    axes = principal_axes(representation)
    return axes.scores(representation), axes.share(representation)


def sample_users(n_users: int, limit: int = MAX_POINTS) -> NDArray[np.int64]:
    """Which users to draw: all, or `limit` of them, the same in every run with as many users.

    Returns:
        Ascending user numbers, shape (min(n_users, limit),).
    """
    if n_users <= limit:
        return np.arange(n_users)
    words = hash_counters(stream_key(0, Purpose.EVALUATION, n_users), np.arange(n_users))
    return np.sort(np.argsort(words, kind="stable")[:limit])


def project(users: Users, before: Users | None = None) -> Projection:
    """Project the users; components come from all of them, points from at most `MAX_POINTS`.

    Args:
        users: as they are now.
        before: the same users in the same order before unlearning. The components are then theirs, so that both
            states lie on the same axes and what has moved is seen to have moved.
    """
    axes = principal_axes((before or users).representation)
    shown = sample_users(len(users.representation))

    def points(table: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.array([[float(f"{value:.6g}") for value in row] for row in axes.scores(table[shown])])

    attributes = {
        printable(name): (tuple(printable(label) for label in classes), labels[shown])
        for name, (classes, labels) in users.attributes.items()
    }
    return Projection(
        len(users.representation),
        users.representation.shape[1],
        axes.share(users.representation),
        points(users.representation),
        attributes,
        None if before is None else points(before.representation),
        None if before is None else axes.share(before.representation),
    )
