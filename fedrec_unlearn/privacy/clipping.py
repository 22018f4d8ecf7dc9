"""L2 clipping of a client's whole update, so that no client moves a sum by more than a known length.

**Guarantee.** The vector that `clip_update` returns (all rows and the dense numbers, end to end) has an exact L2 norm
of at most `limit`, whatever float64 rounding did: the norm is computed in float64, which is off by a relative 2^-26 at
the very most for the sizes accepted, and clipping aims a relative 2^-25 below the limit. Integers are rounded toward
zero, which shortens the vector further, so the sensitivity of a sum of them is `limit` itself, with nothing to add for
rounding. Saturating single numbers afterwards shortens it too.

What it rests on: **every** number the servers add up for this client is in the vector, the weight that may travel with
each row included; and the client does clip. The servers see shares and cannot check. A client that does not clip
gives up its own protection, and distorts the sum, but takes nothing from the others' protection.

| case | what happens |
|---|---|
| norm at most the limit (less a relative 2^-25) | the very numbers come back, copied |
| the update is zero or empty | it comes back; its norm is 0 |
| a number is infinite or not a number | refused: it has no norm |
| rows and dense numbers of two types | refused: they would not be in the same unit |

Source: Abadi et al. 2016, algorithm 1, per client as in McMahan et al. 2018, algorithm 1.
"""

from __future__ import annotations

import math
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.errors import ConfigError, DataError

Number = TypeVar("Number", np.int64, np.float64)

_SLACK = 2.0**-25
_SMALLEST_LIMIT = 2.0**-1000
"""Below it numbers would be rounded to so few bits that the slack is not enough."""
_MOST_NUMBERS = 1 << 26
"""A float64 sum of so many squares is off by little more than a relative 2^-27, in whatever order it is taken."""


class Clipped(NamedTuple, Generic[Number]):
    """A client's update after clipping."""

    rows: NDArray[Number]
    dense: NDArray[Number]
    norm: float
    """L2 norm before clipping, in the unit of the numbers; itself private, it is not to leave the client."""


def clip_update(rows: NDArray[Number], dense: NDArray[Number], limit: float) -> Clipped[Number]:
    """Shorten an update to an L2 norm of at most `limit`, keeping its direction.

    Args:
        rows: any shape, int64 (fixed point) or float64; the rows that the client touched, the others being zero.
        dense: any shape, of the same type and unit; empty where there is none.
        limit: largest norm, in that unit; at least 2^-1000.

    Returns:
        New arrays of the same shapes and type, and the norm before.

    Raises:
        ConfigError: the limit is not a positive number of at least 2^-1000.
        DataError: another type, two types, more than 2^26 numbers, or a number that is not finite.
    """
    if not _SMALLEST_LIMIT <= limit < math.inf:
        raise ConfigError(f"the clipping norm is a positive number (2^-1000 or more), not {limit}")
    if rows.dtype != dense.dtype or rows.dtype not in (np.dtype(np.int64), np.dtype(np.float64)):
        raise DataError(
            f"an update is clipped as int64 or as float64 throughout, not rows of {rows.dtype} and a dense part of "
            f"{dense.dtype}: convert them first"
        )
    if rows.size + dense.size > _MOST_NUMBERS:
        raise DataError(f"an update of {rows.size + dense.size} numbers is more than the {_MOST_NUMBERS} allowed for")
    norm = _norm(rows, dense)
    if not math.isfinite(norm):
        raise DataError("an update holds a number that is infinite or not a number: lower the learning rate")
    target = limit * (1.0 - _SLACK)
    if norm <= target:
        return Clipped(rows.copy(), dense.copy(), norm)
    factor = target / norm
    return Clipped(_scaled(rows, factor), _scaled(dense, factor), norm)


def ring_limit(clip: float, fraction_bits: int) -> int:
    """The clipping norm in ring units, for `clip_update` of int64 numbers, and the sensitivity that results.

    Args:
        clip: L2 norm in real units; positive.
        fraction_bits: a ring unit is 2^-fraction_bits.

    Returns:
        ⌊clip · 2^fraction_bits⌋, at least 1.

    Raises:
        ConfigError: the norm is below one ring unit, or not a positive number.
    """
    if not 0.0 < clip < math.inf:
        raise ConfigError(f"the clipping norm is a positive number, not {clip}")
    limit = math.floor(math.ldexp(clip, fraction_bits))
    if limit < 1:
        raise ConfigError(
            f"a clipping norm of {clip} is less than one unit of a fixed point number with {fraction_bits} fraction "
            "bits: raise one of them"
        )
    return limit


def rounded_sensitivity(clip: float, fraction_bits: int, numbers: int) -> float:
    """L2 norm in ring units of a vector clipped in real units and then rounded to the nearest ring unit, at most.

    `clip_update` of numbers that are rounded already does better: its sensitivity is `ring_limit`.

    Args:
        clip: L2 norm before rounding, in real units.
        fraction_bits: a ring unit is 2^-fraction_bits.
        numbers: how many numbers a client's update may hold besides zeros; zeros stay zero.

    Returns:
        clip · 2^fraction_bits + √numbers / 2, by the triangle inequality.
    """
    return math.ldexp(clip, fraction_bits) + math.sqrt(numbers) / 2.0


def _norm(rows: NDArray[Any], dense: NDArray[Any]) -> float:
    parts = [part.astype(np.float64).ravel() for part in (rows, dense)]
    # scaled by a power of two, which is exact, so that squares neither overflow nor vanish
    largest = max((float(np.max(np.abs(part))) for part in parts if part.size), default=0.0)
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    exponent = math.frexp(largest)[1]
    squares = math.fsum(float(np.sum(np.square(np.ldexp(part, -exponent)))) for part in parts)
    return math.ldexp(math.sqrt(squares), exponent)


def _scaled(numbers: NDArray[Number], factor: float) -> NDArray[Number]:
    scaled = numbers.astype(np.float64) * factor
    if numbers.dtype == np.dtype(np.int64):
        scaled = np.trunc(scaled)
    result: NDArray[Number] = scaled.astype(numbers.dtype)
    return result
