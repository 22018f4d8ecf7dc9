"""The discrete Gaussian: its law against the exact one, its randomness, and what it adds to a ring."""

from __future__ import annotations

import ast
import hashlib
import inspect
import math
import os
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from fedrec_unlearn.errors import ConfigError, TransportError
from fedrec_unlearn.secemb import noise
from fedrec_unlearn.secemb.noise import add_noise, discrete_gaussian, noise_bound, noise_shares

TINY = 1e-6


class Stream:
    """Bytes that look random and are the same each time: SHAKE-256 of a name."""

    def __init__(self, name: str) -> None:
        self.name, self.asked, self.calls = name, 0, 0

    def __call__(self, n: int) -> bytes:
        self.calls += 1
        self.asked += n
        return hashlib.shake_256(f"{self.name}/{self.calls}".encode()).digest(n)


def mass(sigma: float, reach: int) -> np.ndarray:
    """P(X = x) for x = -reach … reach, normalised with the tail beyond."""
    x = np.arange(-reach, reach + 1)
    far = np.arange(-40 * reach, 40 * reach + 1)
    return np.exp(-(x**2) / (2 * sigma**2)) / math.fsum(np.exp(-(far**2) / (2 * sigma**2)))


# 1.41 and 1.42 lie on two sides of where the scale changes from 1 to 2
@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 1.41, 1.42, 2.0, 3.7, 11.3])
def test_law_is_the_discrete_gaussian(sigma: float) -> None:
    n = 400_000
    draws = discrete_gaussian(sigma, n, Stream(f"law {sigma}"))
    reach = int(np.max(np.abs(draws)))
    expected = n * mass(sigma, reach)
    counts = np.bincount(draws + reach, minlength=2 * reach + 1)
    usual = expected >= 10
    rest = n - counts[usual].sum()
    table = np.append(counts[usual], rest), np.append(expected[usual], n - expected[usual].sum())
    if table[1][-1] < 1:
        assert table[0][-1] <= 10
        table = table[0][:-1], table[1][:-1] * table[0][:-1].sum() / table[1][:-1].sum()
    assert stats.chisquare(*table).pvalue > TINY


def test_a_wrong_sigma_would_be_seen() -> None:
    n, sigma = 400_000, 3.7
    draws = discrete_gaussian(1.02 * sigma, n, Stream("wrong"))
    counts = np.bincount(np.abs(draws), minlength=200)[:12]
    both_sides = n * np.concatenate((mass(sigma, 11)[11:12], 2 * mass(sigma, 11)[12:]))
    assert stats.chisquare(counts, both_sides * counts.sum() / both_sides.sum()).pvalue < TINY


@pytest.mark.parametrize("sigma", [181.0, 2.0**16 * 1.4, 2.0**22, 2.0**31 * 1.3, 2.0**32 * 0.99, 2.0**33, 2.0**40])
def test_large_sigma_is_a_gaussian_to_the_eye(sigma: float) -> None:
    n = 300_000
    draws = discrete_gaussian(sigma, n, Stream(f"large {sigma}")) / sigma
    # standard errors of the first four moments of a Gaussian; five and a half of them are passed once in 2.6e7
    for power, expected, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(draws**power) - expected) < 5.5 * math.sqrt(variance / n)
    assert stats.kstest(draws, "norm").pvalue > TINY


def test_low_bits_are_uniform_and_independent_of_the_sign() -> None:
    draws = discrete_gaussian(2.0**22, 400_000, Stream("low bits"))
    table = np.histogram2d(draws & 31, draws > 0, bins=(32, 2))[0]
    assert stats.chisquare(table.ravel()).pvalue > TINY


def test_neighbouring_draws_are_independent() -> None:
    draws = discrete_gaussian(1000.0, 400_000, Stream("order"))
    table = np.histogram2d(np.sign(draws[:-1]), np.abs(draws[1:]) > 674, bins=2)[0]
    assert stats.chi2_contingency(table).pvalue > TINY
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 5.5 / math.sqrt(400_000)


@pytest.mark.parametrize(("shape", "expected"), [(5, (5,)), ((3, 4), (3, 4)), ((0, 7), (0, 7)), ((), ())])
def test_draws_are_int64_of_the_shape_asked_for(shape: int | tuple[int, ...], expected: tuple[int, ...]) -> None:
    draws = discrete_gaussian(3.0, shape)
    assert draws.dtype == np.int64
    assert draws.shape == expected


def test_the_operating_system_is_asked_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inspect.signature(discrete_gaussian).parameters["source"].default is os.urandom
    assert inspect.signature(noise_shares).parameters["source"].default is os.urandom
    assert inspect.signature(add_noise).parameters["source"].default is os.urandom
    tree = ast.parse(inspect.getsource(noise))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in imported if name.split(".")[0] in ("random", "torch")}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "random"]
    # neither seed has a say
    np.random.seed(1)
    first = discrete_gaussian(100.0, 50)
    np.random.seed(1)
    assert not np.array_equal(first, discrete_gaussian(100.0, 50))


def test_draws_are_a_function_of_the_source_alone() -> None:
    source = Stream("a")
    first = discrete_gaussian(100.0, 5000, source)
    assert source.asked > 5000 * 8
    assert np.array_equal(first, discrete_gaussian(100.0, 5000, Stream("a")))
    assert not np.array_equal(first, discrete_gaussian(100.0, 5000, Stream("b")))


@pytest.mark.parametrize("good", [0, 1, 2])
def test_a_source_that_runs_dry_is_refused(good: int) -> None:
    stream = Stream("dry")
    with pytest.raises(TransportError, match="bytes: no noise was drawn"):
        discrete_gaussian(100.0, 1000, lambda n: stream(n if stream.calls < good else n - 1))


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_a_source_that_repeats_itself_is_refused(byte: bytes) -> None:
    with pytest.raises(TransportError, match="repeats itself"):
        discrete_gaussian(100.0, 10, lambda n: byte * n)


@pytest.mark.parametrize("sigma", [0.0, -1.0, 0.29, 2.0**41, math.inf, math.nan])
def test_sigma_out_of_range_is_refused_before_anything_is_drawn(sigma: float) -> None:
    stream = Stream("unused")
    with pytest.raises(ConfigError, match="standard deviation"):
        discrete_gaussian(sigma, 3, stream)
    with pytest.raises(ConfigError, match="standard deviation"):
        noise_shares(sigma, 3, 64, stream)
    assert stream.calls == 0


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(ConfigError, match="negative"):
        discrete_gaussian(1.0, (2, -1))


def reference_below_exp(prefix: int, bits: int, more: bytes, g: Fraction) -> bool:
    """u < exp(-g) for the number with these bits, in 400 digits."""
    with localcontext() as context:
        context.prec = 400
        value = (prefix << (8 * len(more))) | int.from_bytes(more, "big")
        u = Decimal(value) / (Decimal(2) ** (bits + 8 * len(more)))
        return u < (-(Decimal(g.numerator) / Decimal(g.denominator))).exp()


@pytest.mark.parametrize("g", [Fraction(1, 7), Fraction(1), Fraction(355, 113), Fraction(19), Fraction(1, 10**15)])
@pytest.mark.parametrize("beside", [-1, 0, 1])
def test_a_comparison_too_close_for_its_first_bits_is_decided_by_more(g: Fraction, beside: int) -> None:
    with localcontext() as context:
        context.prec = 100
        exact = (-(Decimal(g.numerator) / Decimal(g.denominator))).exp() * Decimal(2) ** 96
        p = int(exact)
    # all 96 bits agree with exp(-g), or differ by one in the last place; then come more
    number = max(0, p + beside)
    tail = [(number & (2**64 - 1)).to_bytes(8, "little"), b"\x13\x57\x9b\xdf\x02\x46\x8a\xce"]
    asked = iter(tail)
    uniform = noise._Uniform(number >> 64, 32, lambda n: next(asked))
    after = b"".join(bytes(reversed(part)) for part in tail)
    assert uniform.below_exp(g) == reference_below_exp(number >> 64, 32, after, g)
    assert uniform.bits > 32


@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.7, 2.0**22 * 1.3, 2.0**40])
def test_float64_probabilities_are_within_the_margin_of_the_exact_ones(sigma: float) -> None:
    scale = 1 << max(0, round(math.log2(sigma)))
    generator = np.random.default_rng(5)
    for v in range(8):
        for u in {0, scale - 1, *generator.integers(0, scale, 40).tolist()}:
            x = u + scale * v
            g = noise._exponent(u, x, scale, sigma)
            # the law: a two-sided geometric times the acceptance is the Gaussian, up to one constant
            constant = g + v - Fraction(x) ** 2 / (2 * Fraction(sigma) ** 2)
            assert constant == Fraction(sigma) ** 2 / (2 * scale**2)
            with localcontext() as context:
                context.prec = 60
                exact = (-(Decimal(g.numerator) / Decimal(g.denominator))).exp()
            offset = np.float64(x) - sigma * sigma / scale
            computed = np.exp(np.float64(u) * (-1.0 / scale) - offset * offset / (2.0 * sigma * sigma))
            assert abs(Decimal(float(computed)) - exact) < Decimal(2) ** -49


def test_geometric_part_counts_powers_of_e_exactly() -> None:
    thresholds, _ = noise._geometric_tables()
    near = sorted({int(t) + d for t in thresholds for d in (-1, 0, 1)} | {2**31 - 1, 2**30, 12345678})
    near = [r for r in near if 0 <= r < 2**31]
    words = np.array([2 * r + (i & 1) for i, r in enumerate(near)], dtype="<u4").tobytes()
    middle = bytes(7) + b"\x80"  # a number on a threshold goes on with one half
    v, sign = noise._geometric(len(near), lambda n: words if n == len(words) else middle)
    with localcontext() as context:
        context.prec = 80
        for i, r in enumerate(near):
            u = (Decimal(r) + Decimal("0.5")) / Decimal(2**31)
            on = r in thresholds
            expected = sum(u < Decimal(-k).exp() for k in range(1, 60))
            assert v[i] == expected, (r, on)
            assert sign[i] == bool(i & 1)


def test_exact_arithmetic_and_float64_decide_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    n, sigma = 60_000, 3.7
    usual = discrete_gaussian(sigma, n, Stream("exact"))
    # a margin of 2^-10 instead of 2^-40 sends one trial in some hundreds the exact way, which must not show
    monkeypatch.setattr(noise, "_MARGIN", 2.0**22)
    decided: list[bool] = []
    exact = noise._Uniform.below_exp

    def counted(self: noise._Uniform, g: Fraction) -> bool:
        decided.append(exact(self, g))
        return decided[-1]

    monkeypatch.setattr(noise._Uniform, "below_exp", counted)
    assert np.array_equal(discrete_gaussian(sigma, n, Stream("exact")), usual)
    assert decided.count(True) > 50
    assert decided.count(False) > 50


@pytest.mark.parametrize(("bits", "dtype"), [(32, np.uint32), (64, np.uint64)])
def test_shares_are_the_noise_mod_the_ring_in_order_and_complete(bits: int, dtype: type) -> None:
    numbers, sigma, chunk = 1000, 5000.0, 300
    pieces = list(noise_shares(sigma, numbers, bits, Stream("shares"), chunk))
    assert [where.start for where, _ in pieces] == [0, 300, 600, 900]
    assert all(a.stop == b.start for (a, _), (b, _) in pairwise(pieces))
    words = np.concatenate([part for _, part in pieces])
    assert words.dtype == dtype
    source = Stream("shares")
    drawn = np.concatenate([discrete_gaussian(sigma, n, source) for n in (300, 300, 300, 100)])
    assert (drawn < 0).any()
    assert [int(word) for word in words] == [int(x) % (1 << bits) for x in drawn]


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_both_servers_noise_opens_to_the_sum_plus_both_draws(dtype: type) -> None:
    bits, sigma, shape = 8 * np.dtype(dtype).itemsize, 300.0, (20, 8)
    generator = np.random.default_rng(3)
    secret = generator.integers(-1000, 1000, shape)
    mask = generator.integers(0, 1 << 63, shape, dtype=np.uint64).astype(dtype)
    shares = [mask.copy(), (secret.astype(np.int64).view(np.uint64).astype(dtype) - mask)]
    for party, share in enumerate(shares):
        add_noise(share, sigma, Stream(f"server {party}"))
    opened = (shares[0] + shares[1]).astype(np.uint64).astype(object)
    centred = np.where(opened >= 1 << (bits - 1), opened - (1 << bits), opened).astype(np.int64)
    drawn = [discrete_gaussian(sigma, shape, Stream(f"server {party}")) for party in (0, 1)]
    assert not np.array_equal(drawn[0], drawn[1])
    assert np.array_equal(centred, secret + drawn[0] + drawn[1])


def test_every_number_is_noised_also_where_no_client_was() -> None:
    accumulator = np.zeros((500, 4), dtype=np.uint64)
    add_noise(accumulator, 2.0**22)
    assert np.count_nonzero(accumulator) == accumulator.size


@pytest.mark.parametrize(
    "accumulator",
    [np.zeros(4, dtype=np.int64), np.zeros(4, dtype=np.float64), np.zeros((4, 4), dtype=np.uint32)[:, ::2]],
)
def test_an_accumulator_that_cannot_be_noised_in_place_is_refused(accumulator: np.ndarray) -> None:
    with pytest.raises(TransportError, match="contiguous arrays of uint32 or uint64"):
        add_noise(accumulator, 3.0)


def test_noise_that_wraps_around_the_ring_is_refused() -> None:
    with pytest.raises(ConfigError, match="Use a ring of 64 bits"):
        noise_shares(2.0**28, 1000, 32)
    assert noise_shares(2.0**28, 1000, 64) is not None


@pytest.mark.parametrize(("numbers", "bits", "chunk"), [(10, 16, 5), (-1, 32, 5), (10, 32, 0)])
def test_sizes_out_of_range_are_refused(numbers: int, bits: int, chunk: int) -> None:
    with pytest.raises(ConfigError):
        noise_shares(3.0, numbers, bits, os.urandom, chunk)


@pytest.mark.parametrize(("sigma", "servers"), [(1.0, 1), (5.0, 2), (1000.0, 2)])
def test_noise_bound_exceeds_the_exact_tail(sigma: float, servers: int) -> None:
    numbers, failure = 5, 1e-3
    bound = noise_bound(sigma, numbers, servers, failure)
    single = mass(sigma, math.ceil(12 * sigma))
    law = single if servers == 1 else np.convolve(single, single)
    x = np.arange(len(law)) - len(law) // 2
    assert numbers * law[np.abs(x) > bound].sum() <= failure
    # and is no wild guess
    assert numbers * law[np.abs(x) > 0.75 * bound].sum() > failure / 10
