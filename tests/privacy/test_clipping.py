"""Clipping of a whole update: the norm it promises, computed exactly, and what it leaves alone."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedrec_unlearn.errors import ConfigError, DataError
from fedrec_unlearn.privacy.clipping import clip_update, ring_limit, rounded_sensitivity

FLOATS = hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, max_side=6), elements=st.floats(-1e6, 1e6))
INTEGERS = hnp.arrays(
    np.int64, hnp.array_shapes(max_dims=2, max_side=6), elements=st.integers(-(2**62), 2**62) | st.integers(-3, 3)
)


def exact_square(*parts: np.ndarray) -> Fraction:
    return sum((Fraction(x) ** 2 for part in parts for x in part.ravel().tolist()), Fraction(0))


def test_a_hand_worked_update() -> None:
    clipped = clip_update(np.array([[3.0, 0.0], [0.0, 0.0]]), np.array([4.0]), 1.0)
    assert clipped.norm == 5.0
    np.testing.assert_allclose(clipped.rows, [[0.6, 0.0], [0.0, 0.0]], rtol=1e-7)
    np.testing.assert_allclose(clipped.dense, [0.8], rtol=1e-7)


def test_integers_are_rounded_toward_zero() -> None:
    clipped = clip_update(np.array([[300, -299, 1]]), np.array([400]), 50.0)
    assert clipped.rows.tolist() == [[int(clip(300)), -int(clip(299)), 0]]
    assert clipped.dense.tolist() == [int(clip(400))]


def clip(magnitude: int) -> float:
    return magnitude * 50.0 / math.sqrt(300**2 + 299**2 + 1 + 400**2)


@settings(max_examples=200, deadline=None)
@given(rows=FLOATS, dense=FLOATS, limit=st.floats(1e-6, 1e9))
def test_float_norm_is_never_above_the_limit(rows: np.ndarray, dense: np.ndarray, limit: float) -> None:
    before = rows.copy(), dense.copy()
    clipped = clip_update(rows, dense, limit)
    assert exact_square(clipped.rows, clipped.dense) <= Fraction(limit) ** 2
    assert np.array_equal(rows, before[0])
    assert np.array_equal(dense, before[1])
    square = exact_square(rows, dense)
    if square > Fraction(1, 10**500):
        assert abs(Fraction(clipped.norm) ** 2 - square) <= square / 2**40
    if square <= Fraction(limit) ** 2 * (1 - Fraction(1, 2**20)):
        assert np.array_equal(clipped.rows, rows)
        assert np.array_equal(clipped.dense, dense)
    else:
        # direction is kept and no more is taken than needed
        factor = min(1.0, limit / clipped.norm)
        np.testing.assert_allclose(clipped.rows, rows * factor, rtol=1e-6)
        np.testing.assert_allclose(clipped.dense, dense * factor, rtol=1e-6)


@settings(max_examples=200, deadline=None)
@given(rows=INTEGERS, dense=INTEGERS, limit=st.integers(1, 2**50))
def test_integer_norm_is_never_above_the_limit(rows: np.ndarray, dense: np.ndarray, limit: int) -> None:
    clipped = clip_update(rows, dense, limit)
    assert clipped.rows.dtype == np.int64
    assert exact_square(clipped.rows, clipped.dense) <= limit**2
    for after, given_ in ((clipped.rows, rows), (clipped.dense, dense)):
        assert (np.abs(after) <= np.abs(given_)).all()
        assert (np.sign(after) * np.sign(given_) >= 0).all()


@pytest.mark.parametrize("norm", [1.0, 1.0 - 2.0**-30, 1.0 + 2.0**-30, 1.0 + 2.0**-52])
def test_a_norm_within_rounding_of_the_limit_stays_below_it(norm: float) -> None:
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(300, 64))
    rows *= norm / np.linalg.norm(rows)
    clipped = clip_update(rows, np.empty(0), 1.0)
    assert exact_square(clipped.rows) <= 1
    assert np.linalg.norm(clipped.rows) > 1 - 1e-7


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_squares_neither_overflow_nor_vanish(size: float) -> None:
    clipped = clip_update(np.full((2, 2), size), np.zeros(3), 1e-3 * size)
    assert clipped.norm == pytest.approx(2 * size)
    np.testing.assert_allclose(clipped.rows, 5e-4 * size, rtol=1e-6)


def test_an_empty_or_zero_update_comes_back() -> None:
    for rows in (np.zeros((0, 4)), np.zeros((3, 4))):
        clipped = clip_update(rows, np.empty(0), 1.0)
        assert clipped.norm == 0.0
        assert np.array_equal(clipped.rows, rows)
        assert clipped.rows is not rows


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", [0, 1])
def test_what_has_no_norm_is_refused(bad: float, where: int) -> None:
    parts = [np.ones((2, 2)), np.ones(2)]
    parts[where].flat[1] = bad
    with pytest.raises(DataError, match="not a number"):
        clip_update(parts[0], parts[1], 1.0)


@pytest.mark.parametrize(("rows", "dense"), [(np.int64, np.float64), (np.float32, np.float32), (np.int32, np.int32)])
def test_types_that_are_not_clipped_are_refused(rows: type, dense: type) -> None:
    with pytest.raises(DataError, match="int64 or as float64 throughout"):
        clip_update(np.ones((2, 2), dtype=rows), np.ones(2, dtype=dense), 1.0)


@pytest.mark.parametrize("limit", [0.0, -1.0, 1e-310, math.nan, math.inf])
def test_a_limit_that_limits_nothing_is_refused(limit: float) -> None:
    with pytest.raises(ConfigError, match="positive number"):
        clip_update(np.ones((2, 2)), np.ones(2), limit)
    with pytest.raises(ConfigError, match=r"positive number|fraction bits"):
        ring_limit(limit, 16)


def test_ring_limit_is_the_norm_in_ring_units_rounded_down() -> None:
    assert ring_limit(1.0, 16) == 65536
    assert ring_limit(0.3, 10) == 307
    with pytest.raises(ConfigError, match="fraction bits"):
        ring_limit(0.001, 8)


def test_two_clients_replaced_by_one_another_move_a_ring_sum_by_twice_the_limit_at_most() -> None:
    generator = np.random.default_rng(2)
    limit = ring_limit(0.5, 12)
    none = np.empty(0, dtype=np.int64)
    for _ in range(50):
        one, other = (clip_update(generator.integers(-9999, 9999, (7, 5)), none, limit).rows for _ in range(2))
        assert exact_square(one - other) <= (2 * limit) ** 2


def test_rounding_after_clipping_can_lengthen_by_half_the_root_of_the_count() -> None:
    bound = rounded_sensitivity(1.0, 4, 400)
    assert bound == 16.0 + 10.0
    # hand-made worst case: 400 numbers just above a half
    vector = np.full(400, 0.50001)
    assert np.linalg.norm(vector) < 16.0
    assert 16.0 < np.linalg.norm(np.rint(vector)) == 20.0 <= bound
    generator = np.random.default_rng(4)
    for _ in range(100):
        update = generator.normal(size=400)
        update *= 1.0 / np.linalg.norm(update)
        assert np.linalg.norm(np.rint(update * 16)) <= bound
