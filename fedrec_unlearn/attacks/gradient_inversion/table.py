"""The table: adversaries × defences × attacks, and how often each attack names a client's class."""

from __future__ import annotations

import difflib
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedrec_unlearn.attacks.gradient_inversion import analytic
from fedrec_unlearn.attacks.gradient_inversion.clients import (
    ATTACK,
    Population,
    Target,
    check_targets,
    observe,
)
from fedrec_unlearn.attacks.gradient_inversion.defences import DEFENCES, Defence
from fedrec_unlearn.attacks.gradient_inversion.matching import GradientMatching
from fedrec_unlearn.attacks.gradient_inversion.observation import Observation
from fedrec_unlearn.errors import AttackError
from fedrec_unlearn.seeds import Purpose, generator

Attack = Callable[[Observation, np.random.Generator], Tensor]
"""Names the class of each client, int64 (C,), from what it sees; random parts come from the generator."""

Progress = Callable[[int, int, str], None]
"""Called as progress(done, total, what) after each attack on one adversary under one defence and seed."""


def _analytic(attack: Callable[[Observation], Tensor]) -> Attack:
    return lambda seen, draws: attack(seen)


ATTACKS: dict[str, Attack] = {
    "bias_sign": _analytic(analytic.bias_sign),
    "row_sum": _analytic(analytic.row_sum),
    "gram": _analytic(analytic.gram),
    "exact": _analytic(analytic.exact),
    "dlg": GradientMatching(),
    "dlg_noise": GradientMatching(learn_noise=True),
    "dlg_residual": GradientMatching(read="residual", start="each_class"),
}
"""Attacks by name, in the order of the table. dlg and dlg_noise are read as published; dlg_residual shows what such a
search can do."""


@dataclass(frozen=True)
class InversionResult:
    """How often an attack names a client's class, from one gradient of one adversary under one defence."""

    adversary: str
    """mlp, vae or dsvae."""
    head: str
    """What dsvae draws at its output: weight, logit or none (none for the other kinds)."""
    stage: str
    """Which parameters the adversary had."""
    defence: str
    attack: str
    n: int
    """Clients attacked per seed."""
    classes: int
    accuracy: float
    """Over all clients and seeds; classes are equally frequent, so it is balanced accuracy as well."""
    chance: float
    """1 / classes."""
    low: float
    """Lower end of the 95 % Wilson interval of the accuracy."""
    high: float
    """Upper end of it."""
    seeds: tuple[int, ...]

    @property
    def distance_from_chance(self) -> float:
        """|accuracy − chance|: an attack that is reliably wrong has found something too."""
        return abs(self.accuracy - self.chance)

    def to_json(self) -> dict[str, Any]:
        """All fields, and `distance_from_chance`; plain numbers and strings."""
        return {
            **{name: getattr(self, name) for name in self.__dataclass_fields__},
            "seeds": list(self.seeds),
            "distance_from_chance": self.distance_from_chance,
        }


def invert_gradients(
    rows: ArrayLike,
    labels: ArrayLike,
    targets: Sequence[Target],
    *,
    defences: Sequence[Defence] = DEFENCES,
    attacks: Sequence[str] | Mapping[str, Attack] = tuple(ATTACKS),
    n: int = 210,
    seeds: Sequence[int] = (0,),
    class_weights: ArrayLike | None = None,
    progress: Progress | None = None,
) -> list[InversionResult]:
    """Attack one-step gradients of clients drawn from a population.

    In each seed n clients are drawn, every class as often as any other up to one (with replacement where a class is
    smaller; noise is drawn anew each time). They are the same for all targets, defences and attacks. Under secure
    aggregation each of them is summed with fellow clients of evenly drawn classes, and the attacker, who gets the
    sum alone and knows the number of members, is asked for that one client's class.

    Gradients are rounded to float32 on the way, as they travel.

    Args:
        rows: private rows of the population, (m, width); real ones make the figures mean something.
        labels: their classes, (m,), 0 .. K - 1; users with another label (missing) are left out.
        targets: adversaries with parameters, all with the same K and width.
        defences: what stands between; none of them changes the parameters attacked.
        attacks: names of `ATTACKS`, or one's own by name. Attacks on a last bias are left out where there is none.
        n: clients per seed, at least K.
        seeds: distinct.
        class_weights: (K,), what a client's loss is multiplied by; known to the attacker. None: 1.
        progress: told after each attack.

    Returns:
        One result for each target, defence and attack, in the order given; a function of rows, labels, target,
        defence, attack, n and seeds alone.

    Raises:
        AttackError: an unknown attack, a class without users, shapes that do not fit, or n too small.
    """
    chosen = _resolve(attacks)
    n_classes = check_targets(targets, np.shape(rows)[-1] if np.ndim(rows) else 0)
    population = Population.of(rows, labels, n_classes)
    if n < n_classes:
        raise AttackError(f"gradient inversion: n is {n}; each of {n_classes} classes needs a client")
    if len(seeds) == 0 or len(set(seeds)) != len(seeds):
        raise AttackError("gradient inversion: seeds must be distinct, and at least one")
    weights = torch.ones(n_classes, dtype=torch.float64)
    if class_weights is not None:
        weights = torch.from_numpy(np.array(class_weights, dtype=np.float64))
        if weights.shape != (n_classes,) or not bool((weights > 0).all()):
            raise AttackError(f"gradient inversion: class_weights must be {n_classes} positive numbers")
    work = [
        (target, defence, [name for name in chosen if name != "bias_sign" or "last_bias" in target.parameters])
        for target in targets
        for defence in defences
    ]
    total, done, results = len(seeds) * sum(len(names) for _, _, names in work), 0, []
    for target, defence, names in work:
        right = dict.fromkeys(names, 0)
        for seed in seeds:
            seen, truth = observe(population, target, defence, n, seed, weights)
            for name in names:
                named = chosen[name](seen, generator(seed, Purpose.INVERSION, ATTACK, zlib.crc32(name.encode())))
                right[name] += int((named == truth).sum())
                done += 1
                if progress is not None:
                    progress(done, total, f"{name} on {target.adversary.kind} under {defence.name}")
        trials = n * len(seeds)
        for name in names:
            low, high = wilson_interval(right[name], trials)
            results.append(
                InversionResult(
                    adversary=target.adversary.kind,
                    head=target.adversary.head,
                    stage=target.stage,
                    defence=defence.name,
                    attack=name,
                    n=n,
                    classes=n_classes,
                    accuracy=right[name] / trials,
                    chance=1.0 / n_classes,
                    low=low,
                    high=high,
                    seeds=tuple(seeds),
                )
            )
    return results


def wilson_interval(right: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Interval of a share from counts; unlike mean ± spread it stays in [0, 1] and makes sense at 0 and 1.

    Args:
        right: successes, 0 .. trials.
        trials: at least 1.
        confidence: in (0, 1).

    Source: Wilson 1927.
    """
    from scipy import stats

    z = float(stats.norm.ppf(0.5 + confidence / 2.0))
    share, spread = right / trials, z * z / trials
    centre = (share + spread / 2.0) / (1.0 + spread)
    half = z * math.sqrt(share * (1.0 - share) / trials + spread / (4.0 * trials)) / (1.0 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


def _resolve(attacks: Sequence[str] | Mapping[str, Attack]) -> dict[str, Attack]:
    if isinstance(attacks, Mapping):
        return dict(attacks)
    for name in attacks:
        if name not in ATTACKS:
            close = difflib.get_close_matches(name, list(ATTACKS), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise AttackError(f"unknown attack on gradients {name!r}{hint}; known: {', '.join(ATTACKS)}")
    return {name: ATTACKS[name] for name in attacks}
