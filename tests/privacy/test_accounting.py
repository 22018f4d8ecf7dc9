"""ε against closed forms computed here, against dp-accounting's own entry points, and against exact discrete laws."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest
from scipy import optimize, stats

from fedrec_unlearn.errors import ConfigError, DependencyError
from fedrec_unlearn.privacy import (
    Neighbours,
    Sampling,
    Schedule,
    noise_multiplier_for,
    ring_noise_multiplier,
    ring_sigma,
    spent,
)

needs_accountant = pytest.mark.skipif(
    find_spec("dp_accounting") is None or find_spec("dp_accounting.rdp") is None,
    reason="dp-accounting 0.5 or later is not installed",
)
ONE = Schedule(1, 100, 0, Sampling.EVERY_ROUND, Neighbours.ZERO_OUT)


def analytic_delta(noise_multiplier: float, epsilon: float) -> float:
    """Balle & Wang 2018, theorem 5, for sensitivity 1."""
    a, b = 0.5 / noise_multiplier, epsilon * noise_multiplier
    return float(stats.norm.cdf(a - b) - math.exp(epsilon + stats.norm.logcdf(-a - b)))


def analytic_epsilon(noise_multiplier: float, delta: float) -> float:
    high = 1.0
    while analytic_delta(noise_multiplier, high) > delta:
        high *= 2
    return float(optimize.brentq(lambda e: analytic_delta(noise_multiplier, e) - delta, 0.0, high, xtol=1e-12))


@needs_accountant
@pytest.mark.parametrize("noise_multiplier", [0.5, 1.0, 3.0, 20.0])
@pytest.mark.parametrize(("rounds", "delta"), [(1, 1e-5), (30, 1e-6), (400, 1e-9)])
def test_without_sampling_epsilon_is_the_analytic_gaussians(noise_multiplier: float, rounds: int, delta: float) -> None:
    result = spent(noise_multiplier, replace(ONE, rounds=rounds), delta)
    closed = analytic_epsilon(noise_multiplier / math.sqrt(rounds), delta)
    # an upper bound, up to dp-accounting's rounding; it gives away a thousandth where ε is in the hundreds
    assert closed * (1 - 1e-9) <= result.epsilon <= closed * (1 + (1e-4 if closed < 100 else 2e-3)) + 1e-4


@needs_accountant
def test_replacing_one_user_is_twice_the_sensitivity() -> None:
    schedule = replace(ONE, rounds=10, neighbours=Neighbours.REPLACE_ONE)
    closed = analytic_epsilon(2.0 / 2 / math.sqrt(10), 1e-5)
    assert closed - 1e-9 <= spent(2.0, schedule, 1e-5).epsilon <= closed + 1e-3
    assert spent(2.0, replace(ONE, rounds=10), 1e-5).epsilon < closed


@needs_accountant
def test_very_little_noise_is_a_large_number_and_not_a_full_memory() -> None:
    result = spent(1e-3, replace(ONE, rounds=1000), 1e-5)
    closed = analytic_epsilon(1e-3 / math.sqrt(1000), 1e-5)
    assert closed <= result.epsilon * (1 + 1e-9)
    assert result.epsilon <= closed * 1.001


@needs_accountant
@pytest.mark.parametrize(("noise_multiplier", "rounds", "rate"), [(1.0, 1000, 100), (0.7, 50, 1000), (4.0, 3000, 500)])
def test_poisson_agrees_with_the_accountants_own(noise_multiplier: float, rounds: int, rate: int) -> None:
    import dp_accounting as dp

    schedule = Schedule(rounds, 10_000, rate, Sampling.POISSON, Neighbours.ADD_OR_REMOVE)
    event = dp.PoissonSampledDpEvent(rate / 10_000, dp.GaussianDpEvent(noise_multiplier))
    fine = dp.pld.PLDAccountant().compose(event, rounds).get_epsilon(1e-5)
    renyi = dp.rdp.RdpAccountant().compose(event, rounds).get_epsilon(1e-5)
    result = spent(noise_multiplier, schedule, 1e-5)
    assert result.epsilon == pytest.approx(fine, rel=1e-3)
    assert result.epsilon < renyi
    assert result.epsilon == spent(noise_multiplier, replace(schedule, neighbours="zero_out"), 1e-5).epsilon
    assert "privacy loss" in result.accountant


@needs_accountant
def test_one_poisson_round_is_the_subsampled_closed_form() -> None:
    # the larger of two divergences between N(0, z²) and its mixture with N(1, z²), integrated here
    z, rate, delta = 1.0, 0.2, 1e-4
    x = np.linspace(-12.0, 13.0, 2_000_001)
    without = stats.norm.pdf(x, scale=z)
    mixed = (1 - rate) * without + rate * stats.norm.pdf(x, loc=1.0, scale=z)

    def divergence(epsilon: float) -> float:
        pairs = ((mixed, without), (without, mixed))
        return float(max(np.trapezoid(np.maximum(p - np.exp(epsilon) * q, 0.0), x) for p, q in pairs))

    expected = optimize.brentq(lambda e: divergence(e) - delta, 0.0, 10.0, xtol=1e-9)
    result = spent(z, Schedule(1, 10, 2, Sampling.POISSON, Neighbours.ADD_OR_REMOVE), delta)
    assert expected - 1e-6 <= result.epsilon <= expected + 2e-3


@needs_accountant
def test_subsets_of_fixed_size_are_charged_the_doubled_sensitivity_of_replacement() -> None:
    import dp_accounting as dp

    # dp-accounting's Rényi accountant takes noise over the *sum's* sensitivity; Wang et al. 2019, theorem 27
    event = dp.SampledWithoutReplacementDpEvent(10_000, 100, dp.GaussianDpEvent(4.0 / 2))
    accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    expected = accountant.compose(event, 200).get_epsilon(1e-6)
    schedule = Schedule(200, 10_000, 100, Sampling.WITHOUT_REPLACEMENT, Neighbours.REPLACE_ONE)
    result = spent(4.0, schedule, 1e-6)
    assert result.epsilon == pytest.approx(expected, rel=1e-12)
    assert result.epsilon < spent(4.0, replace(schedule, sampling=Sampling.EVERY_ROUND), 1e-6).epsilon


@needs_accountant
@pytest.mark.parametrize("noise_multiplier", [0.01, 0.05, 0.2])
def test_poisson_with_little_noise_never_costs_more_than_every_round(noise_multiplier: float) -> None:
    schedule = Schedule(100, 100, 99, Sampling.POISSON, Neighbours.ZERO_OUT)
    everyone = replace(schedule, sampling=Sampling.EVERY_ROUND)
    assert spent(noise_multiplier, schedule, 1e-5).epsilon <= spent(noise_multiplier, everyone, 1e-5).epsilon * 1.0001


@needs_accountant
def test_a_loose_bound_for_subsets_gives_way_to_the_one_without_sampling() -> None:
    schedule = Schedule(50, 10, 9, Sampling.WITHOUT_REPLACEMENT, Neighbours.REPLACE_ONE)
    everyone = replace(schedule, sampling=Sampling.EVERY_ROUND)
    assert spent(0.5, schedule, 1e-5).epsilon <= spent(0.5, everyone, 1e-5).epsilon


@needs_accountant
@pytest.mark.parametrize("sampling", [Sampling.POISSON, Sampling.WITHOUT_REPLACEMENT])
def test_sampling_everybody_amplifies_nothing(sampling: Sampling) -> None:
    relation = Neighbours.ZERO_OUT if sampling is Sampling.POISSON else Neighbours.REPLACE_ONE
    schedule = Schedule(20, 50, 50, sampling, relation)
    everyone = replace(schedule, sampling=Sampling.EVERY_ROUND)
    assert spent(3.0, schedule, 1e-5).epsilon == spent(3.0, everyone, 1e-5).epsilon


@needs_accountant
@pytest.mark.parametrize(
    ("rounds", "clients", "per_round", "passes"), [(1, 100, 10, 1), (10, 100, 10, 1), (11, 100, 10, 2), (9, 100, 33, 3)]
)
def test_a_permutation_costs_a_full_round_per_pass_begun(
    rounds: int, clients: int, per_round: int, passes: int
) -> None:
    shuffled = Schedule(rounds, clients, per_round, Sampling.PERMUTATION, Neighbours.ZERO_OUT)
    assert shuffled.participations == passes
    assert shuffled.sampling_rate == 1.0
    result = spent(2.0, shuffled, 1e-5)
    assert result.epsilon == spent(2.0, replace(ONE, rounds=passes), 1e-5).epsilon
    assert result.epsilon >= analytic_epsilon(2.0 / math.sqrt(passes), 1e-5) - 1e-9


@needs_accountant
@pytest.mark.parametrize(
    ("sampling", "neighbours"),
    [
        (Sampling.EVERY_ROUND, Neighbours.ZERO_OUT),
        (Sampling.PERMUTATION, Neighbours.REPLACE_ONE),
        (Sampling.POISSON, Neighbours.ADD_OR_REMOVE),
        (Sampling.WITHOUT_REPLACEMENT, Neighbours.REPLACE_ONE),
    ],
)
def test_more_rounds_cost_more_and_more_noise_or_delta_less(sampling: Sampling, neighbours: Neighbours) -> None:
    schedule = Schedule(1, 1000, 100, sampling, neighbours)
    by_rounds = [spent(2.0, replace(schedule, rounds=n), 1e-5).epsilon for n in (0, 1, 20, 100, 400)]
    assert by_rounds[0] == 0.0
    assert all(a < b for a, b in pairwise(by_rounds))
    by_noise = [spent(z, replace(schedule, rounds=40), 1e-5).epsilon for z in (0.5, 1.0, 2.0, 8.0)]
    assert all(a > b for a, b in pairwise(by_noise))
    by_delta = [spent(2.0, replace(schedule, rounds=40), delta).epsilon for delta in (1e-9, 1e-6, 1e-3)]
    assert all(a > b for a, b in pairwise(by_delta))


@needs_accountant
@pytest.mark.parametrize("epsilon", [0.1, 2.0, 50.0])
@pytest.mark.parametrize("sampling", [Sampling.PERMUTATION, Sampling.POISSON])
def test_a_chosen_noise_multiplier_meets_its_target_and_hardly_more(epsilon: float, sampling: Sampling) -> None:
    schedule = Schedule(60, 1000, 100, sampling, Neighbours.ZERO_OUT)
    chosen = noise_multiplier_for(epsilon, schedule, 1e-5)
    assert spent(chosen, schedule, 1e-5).epsilon <= epsilon
    assert spent(chosen / 1.002, schedule, 1e-5).epsilon > epsilon


@needs_accountant
def test_the_statement_tells_what_it_rests_on() -> None:
    schedule = Schedule(20, 100, 10, Sampling.PERMUTATION, Neighbours.ZERO_OUT)
    text = spent(2.0, schedule, 1e-5).statement()
    for part in (
        "ε = ",
        "δ = 1e-05",
        "20 rounds",
        "dp-accounting",
        "no amplification",
        "one of the two servers is honest",
    ):
        assert part in text
    assert "That the user takes part is not hidden" in text
    poisson = spent(2.0, replace(schedule, sampling=Sampling.POISSON), 1e-5)
    assert "secret randomness" in poisson.statement()
    assert poisson.schedule.sampling_rate == 0.1


def discrete_delta(shift: tuple[int, ...], sigma: float, epsilon: float) -> float:
    """The exact hockey-stick divergence of discrete Gaussian noise on integer vectors that differ by `shift`."""
    reach = math.ceil(14 * sigma)
    x = np.arange(-reach, reach + 1)
    p = q = np.ones(())
    for step in shift:
        one, other = (np.exp(-((x - m) ** 2) / (2 * sigma**2)) for m in (0, step))
        total = math.fsum(np.exp(-(np.arange(-2 * reach, 2 * reach + 1) ** 2) / (2 * sigma**2)))
        p, q = np.multiply.outer(p, one / total), np.multiply.outer(q, other / total)
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@pytest.mark.parametrize("sigma", [2.1, 3.0, 10.0])
@pytest.mark.parametrize("shift", [(1,), (4,), (9,), (1, 1), (3, -4), (2, 2, 1)])
def test_discrete_noise_is_no_worse_than_the_gaussian_it_is_accounted_as(shift: tuple[int, ...], sigma: float) -> None:
    if len(shift) == 3:
        sigma = min(sigma, 4.0)  # the product of three laws is large
    multiplier = ring_noise_multiplier(sigma, math.sqrt(sum(m * m for m in shift)))
    for epsilon in (0.0, 0.05, 0.3, 1.0, 3.0):
        assert discrete_delta(shift, sigma, epsilon) <= analytic_delta(multiplier, epsilon) + 1e-12


def test_taking_the_discrete_for_the_gaussian_of_the_same_sigma_would_be_wrong() -> None:
    # why the four is there at all
    worse = [
        discrete_delta((m,), 2.1, epsilon) > analytic_delta(2.1 / m, epsilon) for m in (1, 2) for epsilon in (0.1, 0.3)
    ]
    assert any(worse)


def test_ring_sigma_and_ring_noise_multiplier_are_each_others_inverse() -> None:
    for multiplier in (0.1, 1.0, 7.5):
        sigma = ring_sigma(multiplier, 65536)
        assert sigma > multiplier * 65536
        assert ring_noise_multiplier(sigma, 65536) == pytest.approx(multiplier, rel=1e-12)


@pytest.mark.parametrize("sigma", [2.0, 0.5, -3.0, math.inf, math.nan])
def test_noise_too_coarse_to_account_for_is_refused(sigma: float) -> None:
    with pytest.raises(ConfigError, match="must exceed 2"):
        ring_noise_multiplier(sigma, 10.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rounds": -1}, "cannot be accounted for"),
        ({"clients": 0}, "cannot be accounted for"),
        ({"clients_per_round": 101}, "cannot be accounted for"),
        ({"sampling": "shuffle"}, "every_round, permutation, poisson, without_replacement"),
        ({"neighbours": "user"}, "zero_out, add_or_remove, replace_one"),
        ({"sampling": "poisson", "neighbours": "replace_one"}, "zero_out or add_or_remove"),
        ({"sampling": "without_replacement"}, "replace_one"),
    ],
)
def test_schedules_that_mean_nothing_are_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        replace(ONE, **change)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_numbers_out_of_range_are_refused(bad: float) -> None:
    with pytest.raises(ConfigError, match="noise multiplier"):
        spent(bad, ONE, 1e-5)
    with pytest.raises(ConfigError, match="delta"):
        spent(1.0, ONE, bad)
    with pytest.raises(ConfigError, match="epsilon"):
        noise_multiplier_for(bad, ONE, 1e-5)
    with pytest.raises(ConfigError, match="at least one round"):
        noise_multiplier_for(1.0, replace(ONE, rounds=0), 1e-5)


def test_a_missing_accountant_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(DependencyError, match=r"not installed: pip install 'fedrec-unlearn\[dp\]'"):
        spent(1.0, ONE, 1e-5)


def test_an_accountant_that_is_too_old_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", ModuleType("dp_accounting"))
    monkeypatch.setattr("fedrec_unlearn.privacy.accounting.version", lambda name: "0.0.2")
    with pytest.raises(DependencyError, match=r"0\.5 or later, and 0\.0\.2 is installed: pip install"):
        spent(1.0, ONE, 1e-5)
