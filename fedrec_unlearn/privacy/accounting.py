"""How much privacy the noised sums of a run have spent: ε for a given δ, and under which assumptions.

**Guarantee.** What is published of the rounds (the opened sums, and all that is computed from them) is
(ε, δ)-differentially private for one user who follows the protocol; a `PrivacySpent` says in `assumes` what that rests
on. ε holds against whoever knows the noise of one of the two servers, one server included: *one* honest server is
enough, and only its noise is counted. Against those who know neither server's noise the variance is twice as large and
ε smaller. How messages are kept from the servers is another matter: that holds against bounded adversaries, so against
a server the whole is computational differential privacy.

The noise is discrete and the analysis is for the Gaussian; this is rigorous, not an approximation. A discrete Gaussian
of variance σ² around an integer is what one gets by rounding a Gaussian of variance σ² - τ² with a discrete Gaussian of
variance τ² around the value to be rounded, up to a factor of exp(±4 exp(-2π²τ²)) in each probability (Poisson
summation; Peikert 2010, theorem 3.1). With τ = 2 that is exp(±3e-34) a number, which adds less than 1e-21 to ε for a
hundred million numbers and ten thousand rounds. Rounding does not look at the data, so whatever holds of the Gaussian
of standard deviation √(σ² - 4) holds of the discrete one: `ring_sigma` adds the 4, `ring_noise_multiplier` takes
it off. Reduction mod 2^b looks at nothing either.

| sampling | a user takes part | amplification |
|---|---|---|
| every_round | in each round | none |
| permutation | once per pass, also when it drops out | none: a pass costs one round without sampling |
| poisson | in each round with the same probability, independently | yes, if nobody sees who takes part |
| without_replacement | in a fresh uniform subset of fixed size | yes, if nobody sees who takes part |

**Who takes part is no secret from the two servers**, which get its messages, nor from anybody who knows the seed where
cohorts are drawn from a public one. Against them there is no amplification: account with `every_round`, for the
number of rounds in which the user that took part most often did.

| neighbours | two runs differ in | L2 sensitivity for a clipping norm C |
|---|---|---|
| zero_out | one user's updates are all zero; that it takes part is not hidden | C |
| add_or_remove | one user is there or not; the number of clients must then not be published exactly | C |
| replace_one | one user's data are another's | 2C |

Source: Zhu, Dong, Wang 2022, Doroshenko et al. 2022 (privacy loss distributions); Wang, Balle, Kasiviswanathan 2019,
theorem 27 (subsets of fixed size); all as implemented by Google's dp-accounting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any

from fedrec_unlearn.errors import ConfigError, DependencyError
from fedrec_unlearn.privacy.schedule import Neighbours, Sampling, Schedule

ROUNDING_VARIANCE = 4.0
"""τ² of the module's docstring, in ring units squared."""

_INTERVAL = 1e-4
"""Grid of a privacy loss distribution; coarser for large ε, where the grid would be too long."""
_GRID = 2e4
_INTEGER_ORDERS = (*range(2, 64), *(2**k for k in range(6, 12)))
_PRECISION = 1e-3
_PLD, _RENYI = "privacy loss distribution", "Rényi divergences"


@dataclass(frozen=True)
class PrivacySpent:
    """What was spent, and what that statement rests on."""

    epsilon: float
    """An upper bound."""
    delta: float
    noise_multiplier: float
    """Standard deviation of one honest server's noise over the clipping norm C."""
    schedule: Schedule
    accountant: str
    """Name of the analysis and of the package that carried it out."""

    @property
    def assumes(self) -> tuple[str, ...]:
        """What must hold for ε to hold, in sentences."""
        return (
            _NEIGHBOURS[self.schedule.neighbours],
            _SAMPLING[self.schedule.sampling],
            "Each user's whole update is clipped, all numbers of every round's sum are noised, and each sum is "
            "published once.",
            "At least one of the two servers is honest; only its noise is counted.",
            "Nothing else that depends on users' data is published: no unnoised metric, loss or choice of options.",
        )

    def statement(self) -> str:
        """ε, δ and what they rest on, as text of several lines."""
        head = (
            f"(ε = {self.epsilon:.4g}, δ = {self.delta:.4g})-differential privacy of one user over "
            f"{self.schedule.rounds} rounds (noise multiplier {self.noise_multiplier:.4g}, {self.accountant})."
        )
        return "\n".join((head, *(f"- {sentence}" for sentence in self.assumes)))


_NEIGHBOURS = {
    Neighbours.ZERO_OUT: "Neighbouring runs: one user's updates are all zero. That the user takes part is not hidden.",
    Neighbours.ADD_OR_REMOVE: "Neighbouring runs: one user more or less. The number of clients in a sum and who they "
    "are must then not be published.",
    Neighbours.REPLACE_ONE: "Neighbouring runs: one user's data are replaced by any others.",
}
_SAMPLING = {
    Sampling.EVERY_ROUND: "A user may take part in every round that is counted; no amplification by sampling.",
    Sampling.PERMUTATION: "A user takes part at most once per pass over all users; no amplification by shuffling.",
    Sampling.POISSON: "Each user takes part in a round independently, with the same probability, drawn from secret "
    "randomness; against whoever sees who takes part, the servers included, this ε does not hold.",
    Sampling.WITHOUT_REPLACEMENT: "Each round's clients are a fresh uniform subset of fixed size, drawn from secret "
    "randomness; against whoever sees who takes part, the servers included, this ε does not hold.",
}


def spent(noise_multiplier: float, schedule: Schedule, delta: float) -> PrivacySpent:
    """ε of a schedule.

    Args:
        noise_multiplier: of the Gaussian, one honest server's standard deviation over the clipping norm C (not over
            2C, also for `replace_one`); for noise in a ring, `ring_noise_multiplier` gives it.
        schedule: which rounds.
        delta: in (0, 1); to mean something, well below 1 / clients.

    Raises:
        ConfigError: the noise multiplier or delta is out of range.
        DependencyError: dp-accounting is not installed, or too old.
    """
    if not 0.0 < noise_multiplier < math.inf:
        raise ConfigError(f"the noise multiplier is a positive number, not {noise_multiplier}")
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"delta lies between 0 and 1, and {delta} does not")
    # dp-accounting's two accountants read a noise multiplier differently under replace_one; the ratio of noise to
    # sensitivity under a relation with sensitivity 1 means the same to both
    ratio, rounds = noise_multiplier / schedule.neighbours.sensitivity, schedule.participations
    if rounds == 0:
        epsilon, analysis = 0.0, "nothing published"
    elif schedule.sampling_rate == 1.0:
        epsilon, analysis = _gaussian(ratio, rounds, delta)
    elif schedule.sampling is Sampling.POISSON:
        epsilon, analysis = _poisson(ratio, rounds, schedule.sampling_rate, delta)
    else:
        epsilon, analysis = _without_replacement(ratio, rounds, schedule.size, schedule.clients, delta)
    accountant = f"{analysis}, dp-accounting {version('dp-accounting')}" if rounds else analysis
    return PrivacySpent(epsilon, delta, noise_multiplier, schedule, accountant)


def noise_multiplier_for(epsilon: float, schedule: Schedule, delta: float) -> float:
    """The least noise multiplier, up to a relative 1e-3, with which `spent` stays within ε.

    Args:
        epsilon: positive; what the result spends does not exceed it.
        schedule: at least one round.
        delta: as for `spent`.

    Raises:
        ConfigError: ε or delta is out of range, there is no round, or no noise multiplier up to 2^40 is enough.
        DependencyError: as for `spent`.
    """
    if not 0.0 < epsilon < math.inf:
        raise ConfigError(f"the target epsilon is a positive number, not {epsilon}")
    if schedule.rounds < 1:
        raise ConfigError("a noise multiplier is chosen for at least one round")
    high = 1.0
    while spent(high, schedule, delta).epsilon > epsilon:
        high *= 2.0
        if high > 2.0**40:
            raise ConfigError(f"no noise multiplier up to 2^40 keeps epsilon within {epsilon}: raise epsilon or delta")
    low = high / 2.0
    while low > 2.0**-20 and spent(low, schedule, delta).epsilon <= epsilon:
        low, high = low / 2.0, low
    while high / low > 1.0 + _PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spent(middle, schedule, delta).epsilon <= epsilon else (middle, high)
    return high


def ring_sigma(noise_multiplier: float, sensitivity: float) -> float:
    """Standard deviation of the discrete noise that a server adds, in ring units.

    Args:
        noise_multiplier: as accounted for.
        sensitivity: of one clipping norm, in ring units: `clipping.ring_limit` or `clipping.rounded_sensitivity`.

    Returns:
        √((noise_multiplier · sensitivity)² + 4): the 4 is what the discrete noise costs, see the module's docstring.
    """
    return math.hypot(noise_multiplier * sensitivity, math.sqrt(ROUNDING_VARIANCE))


def ring_noise_multiplier(sigma: float, sensitivity: float) -> float:
    """The noise multiplier to account for with discrete noise: the inverse of `ring_sigma`.

    Args:
        sigma: of one server's discrete Gaussian, in ring units.
        sensitivity: as for `ring_sigma`.

    Raises:
        ConfigError: sigma is 2 ring units or less, where the analysis has nothing to say.
    """
    if not math.sqrt(ROUNDING_VARIANCE) < sigma < math.inf:
        raise ConfigError(
            f"noise of {sigma} ring units is too coarse to account for: it must exceed 2. Use more fraction bits"
        )
    return math.sqrt(sigma * sigma - ROUNDING_VARIANCE) / sensitivity


def _gaussian(ratio: float, rounds: int, delta: float) -> tuple[float, str]:
    dp = _dp_accounting()
    return _distribution(dp, dp.GaussianDpEvent(ratio), rounds, delta, _concentrated(ratio, rounds, delta))


def _concentrated(ratio: float, rounds: int, delta: float) -> float:
    """ε of Gaussians that are ρ-zCDP together (Bun & Steinke 2016, proposition 1.3)."""
    rho = rounds / (2.0 * ratio * ratio)
    return rho + 2.0 * math.sqrt(-rho * math.log(delta))


def _poisson(ratio: float, rounds: int, rate: float, delta: float) -> tuple[float, str]:
    dp = _dp_accounting()
    event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(ratio))
    # of fractional orders dp-accounting leaves out those whose series do not converge, and logs each
    renyi = float(dp.rdp.RdpAccountant(_INTEGER_ORDERS).compose(event, rounds).get_epsilon(delta))
    return _distribution(dp, event, rounds, delta, min(renyi, _concentrated(ratio, rounds, delta)))


def _distribution(dp: Any, event: Any, rounds: int, delta: float, bound: float) -> tuple[float, str]:
    """ε from the privacy loss distribution, or the bound by Rényi divergences where that is smaller."""
    interval = max(_INTERVAL, bound / _GRID)
    if interval > 1.0:  # such an ε protects nothing, and the package's exponentials overflow
        return bound, _RENYI
    accountant = dp.pld.PLDAccountant(value_discretization_interval=interval)
    epsilon = float(accountant.compose(event, rounds).get_epsilon(delta))
    return (epsilon, _PLD) if epsilon <= bound else (bound, _RENYI)


def _without_replacement(ratio: float, rounds: int, size: int, clients: int, delta: float) -> tuple[float, str]:
    dp = _dp_accounting()
    event = dp.SampledWithoutReplacementDpEvent(clients, size, dp.GaussianDpEvent(ratio))
    accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    renyi = float(accountant.compose(event, rounds).get_epsilon(delta))
    # sampling never costs privacy, and the bound for it is loose where there is little noise
    return min((renyi, _RENYI), _gaussian(ratio, rounds, delta))


def _dp_accounting() -> Any:
    remedy = "pip install 'fedrec-unlearn[dp]'"
    try:
        package: Any = import_module("dp_accounting")
    except ImportError as error:
        raise DependencyError(f"epsilon is computed with dp-accounting, which is not installed: {remedy}") from error
    if not hasattr(package, "pld") or not hasattr(package.pld, "PLDAccountant"):
        raise DependencyError(
            f"epsilon is computed with dp-accounting 0.5 or later, and {version('dp-accounting')} is installed: "
            f"{remedy}"
        )
    return package
