"""Discrete Gaussian noise, drawn from the operating system's generator, for what the two servers publish.

A draw X from N_Z(0, σ²) is an integer with P(X = x) proportional to exp(-x² / 2σ²). It is made by rejection from a
two-sided geometric distribution (a discrete Laplace):

1. U uniform on {0, …, t - 1}, V with P(V ≥ k) = e^-k, a sign; x = ±(U + tV), where -0 is drawn again;
2. x is kept with probability exp(-U/t - (|x| - σ²/t)² / 2σ²).

Step 1 holds the Bernoulli(exp(-U/t)) trial of the discrete Laplace over until step 2, so that one comparison decides
both; since each of them starts over when it fails, the law is the same. The scale t is the power of two next to σ,
so U is a number of bits, without a modulo and without bias. Of the candidates 30 to 48 % are kept.

**Guarantee.** Draws are independent and *exactly* N_Z(0, σ²) for the binary fraction σ, if the source is uniform
and float64 arithmetic keeps its word: every Bernoulli(p) trial compares a uniform number, known to its first 32
bits, with p computed in float64. Where the two are closer than the 32 bits (once in 2^32 trials) or closer than 2^-40
(p is off by at most 2^-49 as IEEE 754 and an `exp` good to 4 units in the last place have it), bits are added and p is
computed in decimal arithmetic until the answer is certain. Were the float64 value of p off by some η above 2^-40, the
statistical distance of a draw would be at most 4η. The tail is not cut.

Not promised: constant time. How long a call takes depends on how many candidates were rejected, and hence, slightly, on
the draws (Jin et al. 2022 read noise off the clock of such samplers). Whoever can time a server to microseconds is
outside what is claimed; a server publishes its sum when a round is over, long after the noise was drawn.

| case | what happens |
|---|---|
| the source gives fewer bytes than asked | refused, nothing returned |
| the source repeats itself (all zeros, all ones) | refused instead of looping for ever |
| σ below 0.3 or above 2^40 | refused: outside what was verified |
| noise too large for the ring | refused: the sum would wrap around and mean nothing |
| the same sum is noised and published twice | **twice the privacy loss**: keep the noised share, never draw again |

Source: Canonne, Kamath, Steinke 2020, "The Discrete Gaussian for Differential Privacy", algorithms 1 to 3; a scale t
other than their ⌊σ⌋ + 1 changes the rate of rejection, not the law.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.errors import ConfigError, TransportError

Source = Callable[[int], bytes]
"""Gives that many bytes, uniform and independent: `os.urandom`."""
IntArray = NDArray[np.int64]
RingWords = NDArray[np.uint32] | NDArray[np.uint64]

SMALLEST_SIGMA = 0.3
LARGEST_SIGMA = 2.0**40

_WORD = 2.0**32
_MARGIN = 2.0**-8
"""What float64 may be off by, in units of 2^-32: a bound of 2^-40 on the error of a probability."""
_BLOCK = 1 << 15
"""Candidates at a time: their arrays stay in the second-level cache."""
_HOPELESS = 4096
"""So many candidates in a row are rejected with probability below 2^-2000."""
_MOST_BITS = 1024
"""A comparison still open after so many bits has a source that is not random."""


def discrete_gaussian(sigma: float, shape: int | Sequence[int], source: Source = os.urandom) -> IntArray:
    """Independent draws from the discrete Gaussian N_Z(0, sigma²).

    Args:
        sigma: in [0.3, 2^40]; the variance is sigma² to a relative 2^-50 from sigma = 2 on, and smaller below.
        shape: of the result.
        source: where random bytes come from; anything but the operating system's generator is for tests.

    Returns:
        int64, of that shape.

    Raises:
        ConfigError: sigma or shape out of range.
        TransportError: the source gave too few bytes, or bytes that are not random.
    """
    sigma = _checked_sigma(sigma)
    lengths = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    if any(n < 0 for n in lengths):
        raise ConfigError(f"a shape has no negative length, but noise of shape {lengths} was asked for")
    draws = np.empty(math.prod(int(n) for n in lengths), dtype=np.int64)
    filled = barren = 0
    while filled < len(draws):
        wanted = len(draws) - filled
        kept = _candidates(sigma, min(_BLOCK, 64 + 3 * wanted), source)
        barren = 0 if len(kept) else barren + 64
        if barren >= _HOPELESS:
            raise TransportError("no noise can be drawn: the source of random bytes repeats itself. Use os.urandom")
        kept = kept[:wanted]
        draws[filled : filled + len(kept)] = kept
        filled += len(kept)
    return draws.reshape(lengths)


def noise_bound(sigma: float, numbers: int, servers: int = 2, failure: float = 2.0**-40) -> int:
    """A magnitude that none of many noised numbers exceeds by its noise, but for a small probability.

    A ring of b bits holds sums up to this bound when clients · limit + bound < 2^(b-1).

    Args:
        sigma: of each server's noise.
        numbers: how many numbers are noised.
        servers: how many servers add noise.
        failure: probability that some number's noise is larger, in (0, 1).

    Returns:
        ⌈σ √(2 · servers · ln(2 · numbers / failure))⌉.

    Source: Canonne, Kamath, Steinke 2020: a discrete Gaussian is sub-Gaussian with its own σ; the rest is the Chernoff
    bound, once for each number and sign.
    """
    return math.ceil(sigma * math.sqrt(2.0 * servers * math.log(2.0 * max(numbers, 1) / failure)))


def noise_shares(
    sigma: float, numbers: int, ring_bits: int, source: Source = os.urandom, chunk: int = 1 << 20
) -> Iterator[tuple[slice, RingWords]]:
    """What one server adds to its accumulator: full noise on every number, in pieces that fit the memory.

    The other server does the same with noise of its own. Against anyone who knows the noise of one server, that
    server included, the noise of the other still has variance sigma²; against all others it is 2 sigma².

    Args:
        sigma: in ring units (the real value times 2^fraction bits), of this server's own noise.
        numbers: length of the accumulator: every row, whether a client touched it or not, and every dense number.
        ring_bits: 32 or 64.
        source: as for `discrete_gaussian`.
        chunk: numbers at a time; a piece takes about 16 bytes per number.

    Returns:
        Pieces in order: the slice of the accumulator, and the noise there mod 2^ring_bits as uint32 or uint64.

    Raises:
        ConfigError: sigma, numbers, chunk or ring_bits out of range, or noise that wraps around the ring.
        TransportError: as for `discrete_gaussian`, when the piece is drawn. What was added before stays; drop
            the accumulator rather than publish it.
    """
    sigma = _checked_sigma(sigma)
    if ring_bits not in (32, 64):
        raise ConfigError(f"a ring has 32 or 64 bits, not {ring_bits}")
    if numbers < 0 or chunk < 1:
        raise ConfigError(f"noise on {numbers} numbers, {chunk} at a time, cannot be drawn")
    if (largest := noise_bound(sigma, numbers)) >= 1 << (ring_bits - 1):
        raise ConfigError(
            f"noise of standard deviation {sigma:.6g} reaches {largest}, which wraps around a ring of {ring_bits} bits."
            + (" Use a ring of 64 bits, or" if ring_bits == 32 else " Use")
            + " fewer fraction bits, a smaller clipping norm or a smaller noise multiplier"
        )

    def pieces() -> Iterator[tuple[slice, RingWords]]:
        for start in range(0, numbers, chunk):
            where = slice(start, min(start + chunk, numbers))
            # two's complement is reduction mod 2^64
            words = discrete_gaussian(sigma, where.stop - where.start, source).view(np.uint64)
            yield where, words if ring_bits == 64 else words.astype(np.uint32)

    return pieces()


def add_noise(accumulator: RingWords, sigma: float, source: Source = os.urandom) -> None:
    """Add one server's noise to every number of its accumulator, in place, mod 2^32 or 2^64.

    To be called once for a sum, just before the share is given out; the noised share is what is kept, and given out
    again when it is asked for again.

    Args:
        accumulator: uint32 or uint64, any shape, contiguous.
        sigma: in ring units.
        source: as for `discrete_gaussian`.

    Raises:
        ConfigError: as for `noise_shares`.
        TransportError: the accumulator is of another type or not contiguous, or as for `noise_shares`.
    """
    if accumulator.dtype not in (np.dtype(np.uint32), np.dtype(np.uint64)) or not accumulator.flags.c_contiguous:
        raise TransportError(
            f"noise is added to contiguous arrays of uint32 or uint64, and this accumulator ({accumulator.dtype}, "
            f"shape {accumulator.shape}) is not one"
        )
    flat: NDArray[Any] = accumulator.reshape(-1)
    for where, words in noise_shares(sigma, flat.size, 8 * flat.itemsize, source):
        flat[where] += words


def _checked_sigma(sigma: float) -> float:
    if not SMALLEST_SIGMA <= sigma <= LARGEST_SIGMA:  # a NaN fails too
        raise ConfigError(
            f"the noise's standard deviation is between {SMALLEST_SIGMA} and 2^40 ring units, not {sigma}: change the "
            "number of fraction bits, the clipping norm or the noise multiplier"
        )
    return float(sigma)


def _words(source: Source, n: int, dtype: str) -> NDArray[Any]:
    width = np.dtype(dtype).itemsize
    drawn = source(n * width)
    if len(drawn) != n * width:
        raise TransportError(
            f"the source of random bytes gave {len(drawn)} of {n * width} bytes: no noise was drawn. Use os.urandom"
        )
    return np.frombuffer(drawn, dtype=dtype)


def _candidates(sigma: float, n: int, source: Source) -> IntArray:
    """Those of n candidates that are kept, in order: independent draws."""
    exponent = max(0, round(math.log2(sigma)))
    scale = 1 << exponent
    v, negative = _geometric(n, source)
    if exponent == 0:
        u = np.zeros(n, dtype=np.int64)
    elif exponent <= 32:
        u = (_words(source, n, "<u4") >> np.uint32(32 - exponent)).astype(np.int64)
    else:
        u = (_words(source, n, "<u8") >> np.uint64(64 - exponent)).astype(np.int64)
    x = u + (v << exponent)
    decided_by = _words(source, n, "<u4")

    offset = x - sigma * sigma / scale
    probability = np.exp(u * (-1.0 / scale) - offset * offset / (2.0 * sigma * sigma))
    gap = probability * _WORD - decided_by
    keep = gap >= 1.0 + _MARGIN
    for i in np.flatnonzero((gap > -_MARGIN) & ~keep):
        uniform = _Uniform(int(decided_by[i]), 32, source)
        keep[i] = uniform.below_exp(_exponent(int(u[i]), int(x[i]), scale, sigma))
    keep &= (x != 0) | ~negative
    kept: IntArray = x[keep]
    np.negative(kept, out=kept, where=negative[keep])
    return kept


def _exponent(u: int, x: int, scale: int, sigma: float) -> Fraction:
    """U/t + (|x| - σ²/t)² / 2σ², exactly."""
    variance = Fraction(sigma) ** 2
    return Fraction(u, scale) + (x - variance / scale) ** 2 / (2 * variance)


def _geometric(n: int, source: Source) -> tuple[IntArray, NDArray[np.bool_]]:
    """V with P(V ≥ k) = e^-k, the number of k ≥ 1 with e^-k above a uniform number; and a fair bit, from one word."""
    thresholds, table = _geometric_tables()
    words = _words(source, n, "<u4")
    v = table[words >> np.uint32(16)].astype(np.int64)
    for i in np.flatnonzero(v < 0):
        top = int(words[i] >> 1)
        place = int(np.searchsorted(thresholds, top, side="right"))
        v[i] = len(thresholds) - place
        if thresholds[place - 1] == top:
            uniform, v[i] = _Uniform(top, 31, source), 0
            while uniform.below_exp(Fraction(int(v[i]) + 1)):
                v[i] += 1
    return v, (words & np.uint32(1)).astype(np.bool_)


@lru_cache(maxsize=1)
def _geometric_tables() -> tuple[IntArray, NDArray[np.int8]]:
    """⌊e^-k 2^31⌋ ascending from 0, and V by the first 16 bits of the uniform number, -1 where these leave it open."""
    context = Context(prec=60)
    scaled = (context.multiply(context.exp(Decimal(-k)), Decimal(1 << 31)) for k in range(22, 0, -1))
    thresholds = np.array([int(s.to_integral_value(rounding=ROUND_FLOOR)) for s in scaled], dtype=np.int64)
    starts = np.arange(1 << 16, dtype=np.int64) << 15
    table = (len(thresholds) - np.searchsorted(thresholds, starts, side="left")).astype(np.int8)
    table[thresholds >> 15] = -1
    return thresholds, table


class _Uniform:
    """A uniform number in [0, 1) of which the first bits are known; more are drawn when a comparison needs them."""

    def __init__(self, value: int, bits: int, source: Source) -> None:
        self.value, self.bits, self.source = value, bits, source

    def below_exp(self, g: Fraction) -> bool:
        """Whether the number is below exp(-g), g ≥ 0, with certainty."""
        if g == 0:
            return True
        while True:
            # p is off by less than 4 · 10^(1 - digits), so scaled by far less than a thousandth
            context = Context(prec=12 + math.ceil(0.302 * self.bits), rounding=ROUND_HALF_EVEN)
            p = context.exp(context.divide(Decimal(-g.numerator), Decimal(g.denominator)))
            scaled, doubt = context.multiply(p, Decimal(1 << self.bits)), Decimal("0.001")
            if self.value + 1 <= int(context.subtract(scaled, doubt).to_integral_value(rounding=ROUND_FLOOR)):
                return True
            if self.value >= int(context.add(scaled, doubt).to_integral_value(rounding=ROUND_CEILING)):
                return False
            if self.bits >= _MOST_BITS:
                raise TransportError("no noise can be drawn: the source of random bytes repeats itself. Use os.urandom")
            more = self.source(8)
            if len(more) != 8:
                raise TransportError(
                    f"the source of random bytes gave {len(more)} of 8 bytes: no noise was drawn. Use os.urandom"
                )
            self.value, self.bits = self.value << 64 | int.from_bytes(more, "little"), self.bits + 64
