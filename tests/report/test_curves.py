from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrec_unlearn.report.curves import evaluations_of, moving_mean, rounds_of, smoothing_window


def test_rounds_are_sorted_and_a_repeated_round_counts_once_with_its_last_record() -> None:
    events = [
        {"event": "round", "round": number, "clients": 2, "loss": loss, "bytes_up": 10, "bytes_down": 20}
        for number, loss in [(1, 0.9), (2, 0.8), (3, 0.7), (2, 0.6), (3, 0.5)]
    ]
    rounds = rounds_of(events)
    assert rounds.round.tolist() == [1, 2, 3]
    assert rounds.loss.tolist() == [0.9, 0.6, 0.5]
    assert rounds.up_per_client.tolist() == [5.0, 5.0, 5.0]
    assert np.isnan(rounds.seconds).all()


def test_a_round_without_clients_has_no_share() -> None:
    rounds = rounds_of([{"event": "round", "round": 1, "clients": 0, "bytes_up": 0, "bytes_down": 0}])
    assert np.isnan(rounds.up_per_client).all()


def test_evaluations_of_another_part_are_left_out() -> None:
    events = [
        {"event": "evaluation", "round": 30, "part": "valid", "metrics": {"ndcg@10/full": 0.2}, "best": True},
        {"event": "evaluation", "round": 15, "part": "valid", "metrics": {"ndcg@10/full": 0.1}},
        {"event": "evaluation", "round": 30, "part": "test", "metrics": {"ndcg@10/full": 0.9}},
    ]
    found = evaluations_of(events)
    assert [(e.round, e.best, e.metrics["ndcg@10/full"]) for e in found] == [(15, False, 0.1), (30, True, 0.2)]


@given(
    values=st.lists(st.one_of(st.floats(-5, 5), st.just(float("nan"))), min_size=1, max_size=40),
    half=st.integers(0, 6),
    seed=st.integers(0, 99),
)
def test_moving_mean_is_the_mean_of_each_window(values: list[float], half: int, seed: int) -> None:
    array = np.array(values)
    weights = np.random.default_rng(seed).integers(1, 9, len(array)).astype(float)
    smooth = moving_mean(array, weights, 2 * half + 1)
    for at in range(len(array)):
        left = min(half, at)
        inside = slice(at - left, min(at + left, len(array) - 1) + 1)
        there = np.isfinite(array[inside])
        if half and there.any():
            expected = np.average(array[inside][there], weights=weights[inside][there])
            assert smooth[at] == pytest.approx(expected, abs=1e-9)
        elif half:
            assert np.isnan(smooth[at])
        else:
            np.testing.assert_equal(smooth[at], array[at])


@pytest.mark.parametrize(
    ("n_rounds", "clients", "n_users", "window"),
    [
        (600, 64, 943, 15),
        (300, 64, 943, 15),
        (37, 64, 943, 1),
        (600, 943, 943, 1),
        (600, 64, 100_000, 31),
        (600, 64, None, 1),
    ],
)
def test_the_window_is_one_pass_over_the_users_and_a_twentieth_of_the_rounds_at_most(
    n_rounds: int, clients: float, n_users: int | None, window: int
) -> None:
    assert smoothing_window(n_rounds, clients, n_users) == window
