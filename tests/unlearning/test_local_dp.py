"""Clipping and noise against the definition of differential privacy, integrated numerically."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import integrate, stats

from fedrec_unlearn.errors import ConfigError, DataError, ModelError
from fedrec_unlearn.unlearning.local_dp import gaussian_delta, gaussian_sigma, privatise_rows


def delta_by_integration(sigma: float, epsilon: float, sensitivity: float) -> float:
    """∫ max(0, p(x) − e^ε q(x)) dx for the two Gaussians the definition compares."""
    p, q = stats.norm(sensitivity, sigma), stats.norm(0.0, sigma)
    # p exceeds e^ε q beyond this point alone
    start = sensitivity / 2 + epsilon * sigma**2 / sensitivity
    value, _ = integrate.quad(
        lambda x: p.pdf(x) - math.exp(epsilon) * q.pdf(x), start, start + 40 * sigma, epsabs=1e-14, limit=400
    )
    return float(value)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("sigma", [0.4, 1.0, 5.0])
def test_delta_is_the_integral_of_its_definition(epsilon: float, sigma: float) -> None:
    expected = delta_by_integration(sigma, epsilon, 1.7)
    assert gaussian_delta(sigma, epsilon, 1.7) == pytest.approx(expected, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 8.0, 64.0, 512.0, 5000.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
def test_sigma_is_the_least_that_keeps_delta(epsilon: float, delta: float) -> None:
    sigma = gaussian_sigma(epsilon, delta, 3.0)
    assert gaussian_delta(sigma, epsilon, 3.0) <= delta
    assert gaussian_delta(sigma * (1 - 1e-6), epsilon, 3.0) > delta


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.99])
def test_less_noise_than_the_classical_mechanism_where_that_one_holds(epsilon: float) -> None:
    classical = math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon  # Dwork & Roth 2014, theorem A.1
    assert 0.5 * classical < gaussian_sigma(epsilon, 1e-5, 1.0) < classical


def test_noise_is_proportional_to_the_sensitivity_and_falls_with_epsilon() -> None:
    assert gaussian_sigma(2.0, 1e-5, 7.0) == pytest.approx(7 * gaussian_sigma(2.0, 1e-5, 1.0))
    spreads = [gaussian_sigma(epsilon, 1e-5, 1.0) for epsilon in (0.1, 1, 8, 64, 512)]
    assert spreads == sorted(spreads, reverse=True)


def rows(n: int = 4000, width: int = 8) -> torch.Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_noise_has_the_spread_for_twice_the_clip() -> None:
    noise = privatise_rows(rows() * 1e-6, epsilon=4.0, delta=1e-5, clip=0.5, seed=3)
    sigma = gaussian_sigma(4.0, 1e-5, 1.0)
    # 32,000 draws: five standard errors
    assert float(noise.std()) == pytest.approx(sigma, rel=5 / (2 * 32_000) ** 0.5)
    assert stats.kstest(noise.flatten().numpy() / sigma, "norm").pvalue > 1e-4


def test_rows_longer_than_the_clip_are_shortened_and_others_kept() -> None:
    given = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    found = privatise_rows(given, epsilon=1e12, delta=0.5, clip=1.0, seed=1)
    torch.testing.assert_close(
        found, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64), atol=1e-5, rtol=0
    )


def test_the_default_clip_is_the_median_length() -> None:
    given = torch.diag(torch.tensor([1.0, 2.0, 30.0], dtype=torch.float64))
    by_default = privatise_rows(given, epsilon=8.0, delta=1e-5, seed=5)
    torch.testing.assert_close(by_default, privatise_rows(given, epsilon=8.0, delta=1e-5, seed=5, clip=2.0))


def test_a_users_noise_depends_on_seed_and_user_alone() -> None:
    few = privatise_rows(rows(9)[:5], epsilon=1.0, delta=1e-5, clip=1.0, seed=2)
    many = privatise_rows(rows(9), epsilon=1.0, delta=1e-5, clip=1.0, seed=2)
    torch.testing.assert_close(few, many[:5])
    assert not torch.equal(few, privatise_rows(rows(5), epsilon=1.0, delta=1e-5, clip=1.0, seed=3))


def test_dtype_is_kept_and_the_input_is_not_changed() -> None:
    given = rows(6).float()
    before = given.clone()
    assert privatise_rows(given, epsilon=1.0, delta=1e-5, seed=2).dtype == torch.float32
    assert torch.equal(given, before)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epsilon": 0.0}, "unlearn.dp_epsilon: must be positive"),
        ({"delta": 1.0}, "unlearn.dp_delta: must be between 0 and 1"),
        ({"clip": 0.0}, "give a positive clip"),
        ({"clip": float("nan")}, "give a positive clip"),
    ],
)
def test_options_out_of_range_are_named(options: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        privatise_rows(rows(5), **{"epsilon": 1.0, "delta": 1e-5, "seed": 1, **options})  # type: ignore[arg-type]


def test_rows_that_cannot_be_noised_are_refused() -> None:
    with pytest.raises(DataError, match="at least one number"):
        privatise_rows(rows(0), epsilon=1.0, delta=1e-5, seed=1)
    with pytest.raises(ModelError, match="NaN or infinite"):
        privatise_rows(torch.full((2, 2), math.nan), epsilon=1.0, delta=1e-5, seed=1)
