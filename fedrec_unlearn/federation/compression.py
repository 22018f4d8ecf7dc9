"""Lossy compression of client updates: what the server makes of what each client of a block sends.

Every function takes the updates of a block of clients, ragged (client c owns rows `ptr[c]:ptr[c + 1]`), and returns
the same rows as the server reads them, each client for itself. What is lost:

| method | a client sends of m rows of w numbers | float32 / sent | error | unbiased |
|---|---|---|---|---|
| `int8` | one byte a number and a scale | 4 | below one step: largest number / 127 | yes |
| `ternary` | −1, 0 or 1 a number and a scale | 16 (8 in four bits) | below the largest number | yes |
| `svd` | r numbers a row and r directions of its own | about w / r | all beyond the r strongest directions | no |
| `colr` | r numbers a row, along r directions common to all | w / r | its square: w/r − 1 times the update's | yes |

A row of zeros stays a row of zeros in all of them, so rows a client did not touch need no mention here. They are sent
all the same: a message has the same size for every client. None of them hides which rows a client touched.

No method keeps what it dropped for the next round (error feedback): most clients take part in few rounds.

The sizes fit the compression ratios Mai et al. 2025 (SecEmb) print for ML25M and Yelp, 62,423 and 93,386 items: 4.0
(int8), 8.0 (ternary in four bits), and 16.2 (svd) and 16.3 (colr) with 4 directions of rows of 65 numbers.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedrec_unlearn.seeds import Purpose, hash_counters_torch, normal, stream_key

FLOAT_BYTES = 4
"""Of a number that is sent as it is."""
INT8_STEPS = 127
"""Steps to either side of zero; −128 is not used, so that the range is symmetric."""
TERNARY_BITS = 4
"""Bits a ternary number travels in. Two would do (16 times less than float32); the SecEmb paper's table has 8.0, which
is four."""
SEED_BYTES = 8
"""What a client is told of `colr`'s common directions: the key they are drawn from."""


def rounding_draws(key: int, counters: Tensor) -> Tensor:
    """Uniform draws in [0, 1) that decide which way a number is rounded.

    Args:
        key: from `seeds.stream_key`.
        counters: int64, any shape; a place of the update that no other client's shares.

    Returns:
        float64, the counters' shape, multiples of 2**-53.
    """
    words = hash_counters_torch(key, counters)
    return ((words >> 11) & ((1 << 53) - 1)).to(torch.float64).mul_(2.0**-53)


def int8(rows: Tensor, ptr: Tensor, draws: Tensor) -> Tensor:
    """Eight bits a number: multiples −127 .. 127 of one scale per client, rounded at random so that the mean is right.

    Lost: each number errs by less than one step, the client's largest number / 127. Numbers far below the largest
    one become 0 or a whole step.

    Args:
        rows: (E, w), any float type.
        ptr: int64 (C + 1,), where each client's rows begin.
        draws: float64 (E, w) in [0, 1), from `rounding_draws`.

    Returns:
        (E, w): what the server reads, of the type of `rows`.

    Source: Alistarh et al. 2017 (QSGD), section 3.1, with the largest number in place of the norm.
    """
    return _rounded(rows, ptr, draws, INT8_STEPS)


def ternary(rows: Tensor, ptr: Tensor, draws: Tensor) -> Tensor:
    """Three values a number: s·sign(g) with probability |g| / s, else 0, with s the client's largest |g|.

    Lost: all but sign and, on average, size; the variance of a number is |g|·(s − |g|), so many clients are needed
    before the mean is near. The paper's clipping of outliers, which lowers s and makes the mean wrong, is left out.

    Args:
        rows: (E, w), any float type.
        ptr: int64 (C + 1,), where each client's rows begin.
        draws: float64 (E, w) in [0, 1), from `rounding_draws`.

    Returns:
        (E, w): what the server reads, of the type of `rows`.

    Source: Wen et al. 2017 (TernGrad), equations 1 to 3.
    """
    return _rounded(rows, ptr, draws, 1)


def _rounded(rows: Tensor, ptr: Tensor, draws: Tensor, steps: int) -> Tensor:
    largest = rows.abs().amax(1) if rows.shape[1] else rows.new_zeros(len(rows))
    scale = torch.segment_reduce(largest.to(torch.float64), "max", offsets=ptr, initial=0.0) / steps
    step = as_float32(scale).repeat_interleave(ptr.diff(), output_size=len(rows)).unsqueeze(1)
    divisor = torch.where(step > 0, step, torch.ones_like(step))
    # the scale that travels is float32 and may be a hair too small for the largest number
    return (rows / divisor).add_(draws).floor_().clamp_(-steps, steps).mul_(step).to(rows.dtype)


def svd(rows: Tensor, ptr: Tensor, rank: int) -> Tensor:
    """The nearest matrix of rank r to each client's update of the whole table.

    Rows a client did not touch are zero and add nothing to a singular vector, so its own rows are all that counts:
    with V the r leading eigenvectors of RᵀR, the factors RV and Vᵀ travel as float32 and the server multiplies them.

    Lost: the part of the update outside those r directions; an update of rank r or less arrives whole. The error has
    a direction, always the client's weaker ones, and does not average out over clients. One local epoch of matrix
    factorisation without decay moves every row along the client's private row: rank 1, so nothing is lost, and the
    direction sent is that of the private row.

    Args:
        rows: (E, w), any float type, finite.
        ptr: int64 (C + 1,), where each client's rows begin.
        rank: r, 1 .. w.

    Returns:
        (E, w): what the server reads, of the type of `rows`.

    Source: Eckart & Young 1936; as compression of federated recommenders, Nguyen et al. 2024 (section 5, baseline).
    """
    counts = ptr.diff()
    clients, width = len(counts), rows.shape[1]
    owner = torch.repeat_interleave(counts, output_size=len(rows))
    place = torch.arange(len(rows), device=rows.device) - ptr.index_select(0, owner)
    length = int(counts.max()) if clients else 0
    grid = torch.zeros(clients, length, width, dtype=torch.float64, device=rows.device)
    grid[owner, place] = rows.to(torch.float64)
    _, vectors = torch.linalg.eigh(grid.mT @ grid)  # ascending; in float64, because RᵀR squares the range
    basis = as_float32(vectors[..., width - rank :])
    return (as_float32(grid @ basis) @ basis.mT)[owner, place].to(rows.dtype)


def colr_basis(seed: int, round_number: int, rank: int, width: int) -> Tensor:
    """The directions all clients of a round project on, drawn anew each round.

    Args:
        seed, round_number: coordinates of the draw.
        rank: r, 1 .. w.
        width: w.

    Returns:
        float64 (r, w), orthonormal rows that span a uniformly distributed subspace.

    Source: Nguyen et al. 2024, whose published code orthonormalises a Gaussian matrix each round.
    """
    draws = normal(stream_key(seed, Purpose.COMPRESSION, round_number), (width, rank))
    columns, triangle = np.linalg.qr(draws)
    return torch.from_numpy((columns * np.sign(np.diag(triangle))).T.copy())


def colr(rows: Tensor, basis: Tensor) -> Tensor:
    """CoLR: each row along r random directions that all clients of a round share.

    A client sends A = R·Bᵀ as float32, the server reads (w / r)·A·B. The factor makes the mean over draws of B the
    update itself, as E[BᵀB] = r/w. Because B is common, the sum over clients may be taken of A: the method is linear
    up to float32, and may run inside a secure sum.

    Lost: of each round, all that is orthogonal to its r directions; and what is kept is w/r times as large. The error
    is common to all clients of a round, so it averages out over rounds, not over clients: its mean square is w/r − 1
    times that of the round's sum.

    The paper trains A with B held fixed. For one local epoch that is the same up to the step size (its published
    code steps with (w/r)^½ where unbiasedness wants w/r); with more epochs the paper's clients stay in the subspace
    between steps, while here they train freely and project what they found.

    Args:
        rows: (E, w), any float type.
        basis: float64 (r, w) with orthonormal rows, from `colr_basis`.

    Returns:
        (E, w): what the server reads, of the type of `rows`.

    Source: Nguyen et al. 2024, "Towards Efficient Communication and Secure Federated Recommendation System via
    Low-rank Training" (WWW).
    """
    rank, width = basis.shape
    directions = basis.to(rows.device)
    sent = as_float32(rows.to(torch.float64) @ directions.mT)
    return (sent @ directions).mul_(width / rank).to(rows.dtype)


def as_float32(values: Tensor) -> Tensor:
    """The values as they arrive when sent as float32."""
    return values.to(torch.float32).to(torch.float64)
