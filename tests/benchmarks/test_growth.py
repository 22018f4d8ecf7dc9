"""Synthetic interactions look as described, and the exponent is a slope."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.growth import Point, exponent, measure, synthetic_items


def test_items_per_user_are_lognormal_within_the_catalogue() -> None:
    found = synthetic_items(users=4000, items=4000, seed=0)
    assert found.n_users == 4000
    # repeated pairs are dropped, so a little below the drawn median of 67
    assert 62 <= np.median(found.counts) <= 68
    assert abs(np.std(np.log(found.counts)) - 1.0) < 0.1
    assert found.counts.max() <= 2000
    assert found.counts.min() >= 1


def test_interactions_are_a_function_of_the_seed() -> None:
    one, same, other = (synthetic_items(50, 80, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.items, same.items)
    assert not np.array_equal(one.items, other.items)


def test_the_exponent_of_a_square_is_two() -> None:
    assert exponent([10, 20, 40], [100, 400, 1600]) == pytest.approx(2.0)


def test_a_point_reports_its_interactions_and_memory() -> None:
    found = measure(Point(model="fm", users=30, items=50, embedding_dim=4, repeats=1))
    assert found["interactions"] == len(synthetic_items(30, 50, 0).items)
    assert found["seconds"] > 0
    assert found["peak_mib"] >= found["idle_mib"] > 0
