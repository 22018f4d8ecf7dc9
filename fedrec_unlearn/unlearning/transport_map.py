"""Affine maps that make the moments of all classes alike, moving scores as little as possible.

Each class k gets one map x ↦ μ + T_k (x − μ) + b_k after which its mean and covariance are nearly those of all
users. It is found on the moments alone, by a few damped Gauss-Newton steps on the differences in E[z] and E[z zᵀ],
with z the row in coordinates in which all users together are white. Of the many small moves of the rows that reduce a
difference, a step takes the one that changes scores least: the cost of a move δ is δᵀ G δ, with G the second moments
of what a row is multiplied with. A ridge leaves alone what could be evened out only by large moves; those differences
are mostly sampling error.

Why not optimal transport in closed form: its map from one Gaussian to another evens out all of a difference, so it
pays in scores for the sampling error of every entry of the covariances. On MovieLens that costs several times as much
for the same worst attack (`order: optimal` keeps it, to compare).

Source: Gelbrich 1990 for the optimal map between Gaussians; Sun, Feng & Saenko 2016 (CORAL) for alignment of second
moments; the damped map is this package's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.errors import ModelError
from fedrec_unlearn.unlearning.moments import ClassMoments

FloatArray = NDArray[np.float64]

STEPS = 10
"""Gauss-Newton steps; later ones change what the ridge holds back."""
DAMPING = 0.7
"""Share of each step that is taken."""
FLOOR = 1e-2
"""Share of the mean cost that is added to every direction's, so that none is free."""


@dataclass(frozen=True)
class ClassMaps:
    """One affine map a class."""

    centre: FloatArray
    """Shape (d,)."""
    matrices: FloatArray
    """Shape (K, d, d)."""
    offsets: FloatArray
    """Shape (K, d)."""

    def apply(self, rows: FloatArray, labels: NDArray[np.int64]) -> FloatArray:
        """Each client's own step: its row under the map of its class.

        Args:
            rows: shape (n, d).
            labels: shape (n,); rows of users without a class (negative) come back as they are.
        """
        moved = rows.copy()
        for k, (matrix, offset) in enumerate(zip(self.matrices, self.offsets, strict=True)):
            members = labels == k
            moved[members] = self.centre + (rows[members] - self.centre) @ matrix.T + offset
        return moved


def shrunk(moments: ClassMoments, shrinkage: float) -> ClassMoments:
    """Covariances pulled towards the mean covariance within classes, the smaller the class the more.

    Args:
        moments: of the classes.
        shrinkage: 0 leaves them; a class of n users keeps n / (n + shrinkage · d) of its own covariance.
    """
    width = moments.means.shape[1]
    own = moments.counts / np.maximum(moments.counts + shrinkage * width, 1e-300)
    within = moments.within
    mixed = own[:, None, None] * moments.covariances + (1.0 - own[:, None, None]) * within
    return ClassMoments(moments.counts, moments.means, mixed)


def mean_maps(moments: ClassMoments) -> ClassMaps:
    """Maps that even out the means alone: every class is shifted to the mean of all."""
    count, width = moments.means.shape
    identity = np.broadcast_to(np.eye(width), (count, width, width)).copy()
    return ClassMaps(moments.mean, identity, -(moments.means - moments.mean))


def optimal_maps(moments: ClassMoments) -> ClassMaps:
    """The optimal transport from each class's Gaussian to that of all users.

    Raises:
        ModelError: the rows of a class do not vary.
    """
    target = moments.covariance
    matrices, offsets = [], []
    for mean, covariance in zip(moments.means, moments.covariances, strict=True):
        root, inverse = _root(covariance, 0.5), _root(covariance, -0.5)
        matrix = inverse @ _root(root @ target @ root, 0.5) @ inverse
        matrices.append(matrix)
        offsets.append(-matrix @ (mean - moments.mean))
    return ClassMaps(moments.mean, np.array(matrices), np.array(offsets))


def damped_maps(moments: ClassMoments, cost: FloatArray | None, ridge: float) -> ClassMaps:
    """Maps that even out means and covariances as far as it is cheap.

    Args:
        moments: of the classes.
        cost: G, shape (d, d), what a move costs; None: the identity.
        ridge: λ, relative to the mean curvature; larger moves less.

    Raises:
        ModelError: all rows are the same.
    """
    count, width = moments.means.shape
    root, inverse = _root(moments.covariance, 0.5), _root(moments.covariance, -0.5)
    in_white = root @ (np.eye(width) if cost is None else cost) @ root
    scale = np.trace(in_white) / width
    cheap = np.linalg.inv(in_white / scale + FLOOR * np.eye(width))  # moves by their cost's inverse

    # the curvature of E[z zᵀ] under moves with metric C = `cheap`, expected for white Gaussian z, takes a symmetric X
    # to CX + XC; in the eigenvectors of C it is diagonal, with the sum of two eigenvalues for each entry
    values, vectors = np.linalg.eigh((cheap + cheap.T) / 2.0)
    n_moments = width + width * (width + 1) // 2
    held = ridge * values.sum() * (width + 2) / n_moments  # mean curvature of first and second moments
    same = np.eye(width)
    first = np.linalg.inv(cheap + held * same)
    curvature = values[:, None] + values[None, :] + held

    matrices, offsets = np.empty((count, width, width)), np.empty((count, width))
    for k in range(count):
        mean = inverse @ (moments.means[k] - moments.mean)
        covariance = inverse @ moments.covariances[k] @ inverse
        matrix, offset = np.eye(width), np.zeros(width)
        for _ in range(STEPS):
            difference = vectors.T @ (covariance + np.outer(mean, mean) - same) @ vectors
            turn = same - DAMPING * cheap @ (vectors @ (difference / curvature) @ vectors.T)
            shift = -DAMPING * cheap @ (first @ mean)
            mean, covariance = turn @ mean + shift, turn @ covariance @ turn.T
            matrix, offset = turn @ matrix, turn @ offset + shift
        matrices[k], offsets[k] = root @ matrix @ inverse, root @ offset
    if not (np.isfinite(matrices).all() and np.isfinite(offsets).all()):
        raise ModelError(f"moment transport found no finite map at ridge {ridge:g}; raise unlearn.transport_ridge")
    return ClassMaps(moments.mean, matrices, offsets)


def _root(matrix: FloatArray, power: float) -> FloatArray:
    """Power of a symmetric matrix with non-negative eigenvalues; directions of no spread at all stay where they are."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    largest = float(values[-1])
    if not largest > 0.0:
        raise ModelError("moment transport: the rows of a class are all the same; there is nothing to even out")
    powered = np.maximum(values, 1e-12 * largest) ** power
    result: FloatArray = (vectors * powered) @ vectors.T
    return result
