"""Linear erasure: what predicts the class linearly is projected out of the rows, a rival of moment transport.

With Σ the covariance of the rows and D the deviations of the class means from the common mean, rows lose their part
in the column space of W D, taken in white coordinates (W = Σ^-1/2): x ↦ x − W⁺ P W (x − μ), P the projection on that
space. Among affine maps after which no linear classifier does better than a constant it moves rows least.

Everyone gets the same map, whatever its class: nobody needs to know its class to apply it, and what differs between the
classes beyond their means stays.

Source: Belrose et al. 2023 (LEACE), theorem 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedrec_unlearn.config_unlearn import UnlearnConfig
from fedrec_unlearn.data.types import Attribute
from fedrec_unlearn.unlearning.moment_sums import moments_of
from fedrec_unlearn.unlearning.moments import FloatArray


def erasing_map(means: FloatArray, weights: FloatArray, covariance: FloatArray) -> FloatArray:
    """The matrix that rows less the common mean are multiplied with from the left, (d, d).

    Args:
        means: of the classes, (K, d).
        weights: shares of the classes, (K,).
        covariance: of all rows, (d, d).
    """
    values, vectors = np.linalg.eigh(covariance)
    used = values > 1e-10 * values[-1]
    basis, spread = vectors[:, used], np.sqrt(values[used])
    white = (means - weights @ means) @ basis / spread
    left, size, _ = np.linalg.svd(white.T * np.sqrt(weights), full_matrices=False)
    erased = left[:, size > 1e-10 * max(float(size.max()), 1e-300)]
    kept: FloatArray = np.eye(len(covariance)) - (basis * spread) @ erased @ erased.T @ (basis / spread).T
    return kept


def erase_linear(
    rows: Tensor, attributes: Sequence[Attribute], config: UnlearnConfig, *, seed: int
) -> tuple[Tensor, int, int]:
    """Erase what predicts the attributes' joint classes linearly.

    Args:
        rows: private rows, (n, width).
        attributes: with the labels of those users.
        config: `moment_share`.
        seed: of the draw of users whose moments are summed.

    Returns:
        the rows, those of users without a class too; bytes sent and bytes received by all clients together.

    Raises:
        ConfigError: fewer than two classes with enough users.

    Warns:
        UnlearnWarning: a class has too few users to be erased.
    """
    known = rows.detach().cpu().to(torch.float64).numpy()
    found = moments_of(known, attributes, config, seed)
    moments = found.moments
    matrix = erasing_map(moments.means, moments.weights, moments.covariance)
    moved = moments.mean + (known - moments.mean) @ matrix.T
    return torch.from_numpy(moved).to(rows), found.bytes_up * len(known), found.bytes_down * len(known)
