from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedrec_unlearn.config import FederationConfig
from fedrec_unlearn.errors import DataError
from fedrec_unlearn.federation.cohort import Cohorts

ELIGIBLE = np.array([2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233])


def cohorts(sampling: str = "permutation", size: int = 4, seed: int = 1, eligible: np.ndarray = ELIGIBLE) -> Cohorts:
    config = FederationConfig(clients_per_round=size, client_sampling=sampling)  # type: ignore[arg-type]
    return Cohorts(eligible, config, seed)


@pytest.mark.parametrize("size", [1, 4, 5, 11])
def test_every_client_takes_part_once_a_pass(size: int) -> None:
    drawn = cohorts(size=size)
    per_pass = -(-len(ELIGIBLE) // size)
    for which in range(3):
        rounds = [drawn.of(which * per_pass + place) for place in range(per_pass)]
        assert sorted(np.concatenate(rounds).tolist()) == ELIGIBLE.tolist()
        assert [len(r) for r in rounds[:-1]] == [size] * (per_pass - 1)


def test_passes_have_different_orders_and_seeds_too() -> None:
    drawn = cohorts(size=11)
    assert drawn.of(0).tolist() != drawn.of(1).tolist()
    assert drawn.of(0).tolist() != cohorts(size=11, seed=2).of(0).tolist()


@pytest.mark.parametrize("sampling", ["permutation", "uniform"])
def test_a_cohort_is_a_function_of_the_round_alone(sampling: str) -> None:
    forward = cohorts(sampling)
    in_order = [forward.of(t).tolist() for t in range(12)]
    shuffled = cohorts(sampling)
    for t in (7, 0, 11, 3, 7, 1, 10, 2):
        assert shuffled.of(t).tolist() == in_order[t]
    for t in range(12):
        assert cohorts(sampling).of(t).tolist() == in_order[t]


@pytest.mark.parametrize("sampling", ["permutation", "uniform"])
@pytest.mark.parametrize("size", [0, 11, 500])
def test_no_size_and_too_large_a_size_mean_everyone(sampling: str, size: int) -> None:
    drawn = cohorts(sampling, size)
    for t in range(3):
        assert sorted(drawn.of(t).tolist()) == ELIGIBLE.tolist()


def test_uniform_cohorts_are_distinct_clients_each_equally_often() -> None:
    drawn = cohorts("uniform", 4)
    counts = dict.fromkeys(ELIGIBLE.tolist(), 0)
    for t in range(2000):
        chosen = drawn.of(t).tolist()
        assert len(set(chosen)) == 4
        for client in chosen:
            counts[client] += 1
    # draws without replacement vary less than the multinomial the test assumes, so a failure means a real bias
    assert stats.chisquare(list(counts.values())).pvalue > 0.001


def test_permutation_cohorts_mix_all_pairs_of_clients() -> None:
    drawn = cohorts(size=2, eligible=np.arange(6))
    together = np.zeros((6, 6))
    for t in range(3 * 800):
        a, b = drawn.of(t)
        together[a, b] += 1
    off = ~np.eye(6, dtype=bool)
    assert stats.chisquare(together[off]).pvalue > 0.001


def test_nobody_to_train_is_an_error() -> None:
    with pytest.raises(DataError, match="nothing to train on"):
        cohorts(eligible=np.zeros(0, dtype=np.int64))
