"""Errors of predicted ratings."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrec_unlearn.errors import DataError


def rmse(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Root mean squared error, in the units of the ratings.

    Args:
        predicted: shape (n,), n at least 1.
        actual: shape (n,).

    Returns:
        0 or more. Predicting the mean rating reaches the ratings' standard deviation.

    Raises:
        DataError: shapes differ, nothing is given, or a value is not finite.

    Source: Herlocker et al. 2004.
    """
    return float(np.sqrt(np.mean(_errors(predicted, actual) ** 2)))


def mae(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Mean absolute error, in the units of the ratings.

    Args, Raises: as `rmse`.

    Returns:
        0 or more, never above `rmse`.

    Source: Herlocker et al. 2004.
    """
    return float(np.mean(np.abs(_errors(predicted, actual))))


def _errors(predicted: ArrayLike, actual: ArrayLike) -> NDArray[np.float64]:
    left, right = np.asarray(predicted, dtype=np.float64), np.asarray(actual, dtype=np.float64)
    if left.ndim != 1 or left.shape != right.shape:
        raise DataError(f"ratings: predicted and actual must both be (n,), not {left.shape} and {right.shape}")
    if left.size == 0:
        raise DataError("ratings: there is nothing to compare; is the held-out part empty?")
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise DataError("ratings: a value is NaN or infinite; has training diverged?")
    return left - right
