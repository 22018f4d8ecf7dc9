"""Local differential privacy on private rows: clip a user's row, add Gaussian noise; knows of no attribute.

**Guarantee.** What one user releases, the clipped and noised row, is (ε, δ)-differentially private in everything
the user has: for any two rows x, x′ the user might hold and any set S, P[M(x) ∈ S] ≤ e^ε P[M(x′) ∈ S] + δ. It
holds against anybody who sees the released row and the item table, whatever else they know, because each client
adds the noise by itself. It covers this one release and nothing a client sent during training.

| case | what happens |
|---|---|
| two rows at opposite ends of the ball | the distance 2·clip that the noise is made for |
| clip taken from the rows (by default their median length) | the guarantee holds given the clip, not for the median |
| a row released again with fresh noise | ε adds up; releases compose |
| noise whose seed is known | can be subtracted: a simulation repeats its noise, a device must draw it from its system |
| floating point | noise is a rounded Gaussian; the bound is that of exact arithmetic (Mironov 2012 on the difference) |

Source: Balle & Wang 2018 (the analytic Gaussian mechanism), theorem 8.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedrec_unlearn.errors import ConfigError, DataError, ModelError
from fedrec_unlearn.seeds import Purpose, normal, stream_key

_NOISE = 0x6470
"""Sets the noise apart from other draws of `Purpose.UNLEARN`."""


def gaussian_delta(sigma: float, epsilon: float, sensitivity: float) -> float:
    """The least δ for which Gaussian noise of spread σ is (ε, δ)-private.

    Args:
        sigma: standard deviation of the noise on each number.
        epsilon: ε, 0 or more.
        sensitivity: largest Euclidean distance between two inputs.

    Source: Balle & Wang 2018, eq. 6: Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ).
    """
    from scipy.special import log_ndtr, ndtr

    half, shift = sensitivity / (2.0 * sigma), epsilon * sigma / sensitivity
    # as one exponent, for e^ε alone leaves the floats at ε = 710
    return float(ndtr(half - shift) - math.exp(epsilon + float(log_ndtr(-half - shift))))


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """The least spread of Gaussian noise that is (ε, δ)-private, to 12 digits and never below.

    Args:
        epsilon: ε, positive.
        delta: δ, in (0, 1).
        sensitivity: largest Euclidean distance between two inputs, positive.

    Raises:
        ConfigError: a value out of range.

    Source: Balle & Wang 2018, theorem 8; found by bisection, since δ falls as σ rises.
    """
    for option, value, fits, needed in (
        ("unlearn.dp_epsilon", epsilon, 0 < epsilon < math.inf, "positive"),
        ("unlearn.dp_delta", delta, 0 < delta < 1, "between 0 and 1"),
        ("sensitivity", sensitivity, 0 < sensitivity < math.inf, "positive"),
    ):
        if not fits:
            raise ConfigError(f"{option}: must be {needed}, not {value:g}")
    low, high = 0.0, 1.0
    while gaussian_delta(high, epsilon, 1.0) > delta:
        low, high = high, 2.0 * high
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        if gaussian_delta(middle, epsilon, 1.0) > delta:
            low = middle
        else:
            high = middle
    return high * sensitivity


def privatise_rows(rows: Tensor, *, epsilon: float, delta: float, seed: int, clip: float | None = None) -> Tensor:
    """Every user's row, clipped and noised; see the module's guarantee.

    Args:
        rows: private rows, shape (n, width), finite.
        epsilon, delta: of one user's release. Noise grows with the clip and hardly with anything else: at ε = 8 and
            δ = 1e-5 its spread is 1.2·clip on each number, for a row of length at most clip.
        seed: of the noise; user u's depends on (seed, u) and the width alone.
        clip: length a row is shortened to where it is longer. None: the median length of the rows, computed here with
            all rows in one place; a deployment names a number beforehand or asks for the median privately.

    Returns:
        Shape (n, width), the rows' dtype and device.

    Raises:
        ConfigError: ε, δ or clip out of range.
        DataError: no rows.
        ModelError: a row is NaN or infinite.
    """
    if rows.dim() != 2 or rows.numel() == 0:
        raise DataError(f"local_dp: rows must have shape (n, width) with at least one number, not {tuple(rows.shape)}")
    wide = rows.detach().to(torch.float64)
    lengths = wide.norm(dim=1, keepdim=True)
    if not bool(torch.isfinite(lengths).all()):
        raise ModelError("local_dp: a private row is NaN or infinite; training has diverged, lower the learning rates")
    bound = float(lengths.median()) if clip is None else clip
    if not 0 < bound < math.inf:
        raise ConfigError(f"local_dp: rows cannot be clipped to length {bound:g}; give a positive clip")
    sigma = gaussian_sigma(epsilon, delta, 2.0 * bound)
    clipped = wide * (bound / lengths.clamp_min(bound))
    noise = torch.from_numpy(normal(stream_key(seed, Purpose.UNLEARN, _NOISE), tuple(rows.shape)))
    private: Tensor = clipped + sigma * noise.to(wide.device)
    return private.to(rows.dtype)
