from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrec_unlearn.report.inference import Estimate, attack_results, worst_result

Attacked = Callable[..., dict[str, Any]]


@given(
    value=st.floats(0, 1), below=st.floats(0, 0.3), above=st.floats(0, 0.3), chance=st.sampled_from([0.5, 1 / 3, 0.1])
)
def test_a_distance_holds_the_distances_of_its_interval(
    value: float, below: float, above: float, chance: float
) -> None:
    found = Estimate(value, value - below, value + above).distance(chance)
    assert found.value == abs(value - chance)
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= found.value <= found.high
    # on its side of chance the interval is mirrored, not bent
    side = 1 if value >= chance else -1
    ends = sorted(side * (end - chance) for end in (value - below, value + above))
    assert (found.low, found.high) == (max(ends[0], 0.0), ends[1])


def test_what_was_not_measured_has_no_distance() -> None:
    assert Estimate(None).distance(0.5) == Estimate(None)
    assert Estimate(0.4).distance(0.5) == Estimate(pytest.approx(0.1), None, None)


@pytest.mark.parametrize(
    ("mean", "half", "verdict", "beyond"),
    [
        (0.68, 0.02, "leaks", True),
        (0.40, 0.02, "inverted", True),
        (0.52, 0.03, "none", False),
        (0.53, 0.01, "luck", False),  # 1.96 standard errors of guessing are 0.035 with 273 and 670 users
        (0.47, 0.01, "luck", False),
        (0.60, None, "open", True),
        (0.52, None, "open", False),
    ],
)
def test_a_leak_exceeds_both_the_interval_and_the_luck_of_guessing(
    attacked: Attacked, mean: float, half: float | None, verdict: str, beyond: bool
) -> None:
    (result,) = attack_results([attacked("gender", mean, half=half)])
    assert (result.verdict, result.beyond_luck) == (verdict, beyond)


def test_the_worst_attacker_is_the_furthest_from_chance_in_either_direction(attacked: Attacked) -> None:
    results = attack_results(
        [
            attacked("gender", 0.58, attacker="mlp"),
            attacked("gender", 0.39, attacker="knn"),
            attacked("age", 0.40, attacker="mlp"),
            attacked("gender", 0.70, surface="update_support"),
        ]
    )
    assert [result.worst for result in results] == [False, True, True, True]
    worst = worst_result(results, "gender", "user_embedding")
    assert worst is not None
    assert worst.attacker == "knn"
    assert worst_result(results, "gender", "trajectory") is None
