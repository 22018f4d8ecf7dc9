"""What an attack found, and how it is written to `attack.json`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.metrics import mean_interval

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class AttackMetric:
    """One metric of an attack over seeds and folds."""

    per_seed: tuple[float, ...]
    """One value per seed."""
    per_fold: tuple[tuple[float, ...], ...]
    """One value per fold, for each seed."""
    mean: float
    """Over seeds."""
    std: float
    """Sample standard deviation over seeds; NaN with one seed."""
    low: float
    """Lower end of the 95 % t-interval of the mean over seeds; NaN with one seed."""
    high: float
    """Upper end of that interval."""
    fold_std: float
    """Spread over the folds of a seed: root of the mean over seeds of the sample variance."""

    @classmethod
    def of(cls, per_seed: FloatArray, per_fold: FloatArray) -> AttackMetric:
        """Summarise values of shape (n_seeds,) and (n_seeds, n_folds)."""
        over_seeds = mean_interval(per_seed)
        return cls(
            per_seed=tuple(float(v) for v in per_seed),
            per_fold=tuple(tuple(float(v) for v in values) for values in per_fold),
            mean=over_seeds.mean,
            std=over_seeds.std,
            low=over_seeds.low,
            high=over_seeds.high,
            fold_std=float(np.sqrt(per_fold.var(axis=1, ddof=1).mean())),
        )

    def to_json(self) -> dict[str, Any]:
        """As in `attack.json`; what one seed cannot tell (std, low, high) is null."""
        spread = {"std": self.std, "low": self.low, "high": self.high}
        return {
            "mean": self.mean,
            **{name: None if math.isnan(value) else value for name, value in spread.items()},
            "per_seed": list(self.per_seed),
            "fold_std": self.fold_std,
        }


@dataclass(frozen=True)
class AttackResult:
    """How well one attacker inferred one attribute from one surface."""

    attribute: str
    surface: str
    """What the attacker saw."""
    attacker: str
    classes: tuple[str, ...]
    """Classes attacked, in the order of their labels."""
    counts: tuple[int, ...]
    """Users of each class."""
    n_missing: int
    """Users left out because their label is not known."""
    dropped_classes: dict[str, int]
    """Classes left out because they have too few users to cross-validate, with their users."""
    shuffled: bool
    """Whether the labels were shuffled first (a control)."""
    balanced_accuracy: AttackMetric
    """Of the predictions pooled over folds; `chance` is what guessing reaches."""
    macro_f1: AttackMetric
    """Of the predictions pooled over folds."""
    auc: AttackMetric
    """Mean over folds, not pooled: scores of differently tuned classifiers share no scale. Guessing reaches 0.5."""
    accuracy: AttackMetric
    """Of the predictions pooled over folds; `majority` is what a constant guess reaches."""
    parameters: dict[str, dict[str, int]] = field(default_factory=dict)
    """How often each value of a hyper-parameter was chosen, over seeds and folds."""

    @property
    def n_users(self) -> int:
        """Users attacked."""
        return sum(self.counts)

    @property
    def chance(self) -> float:
        """Balanced accuracy of guessing: 1/K."""
        return 1.0 / len(self.classes)

    @property
    def majority(self) -> float:
        """Accuracy of always naming the largest class."""
        return max(self.counts) / self.n_users

    @property
    def distance_from_chance(self) -> float:
        """How far the balanced accuracy is from 1/K, in either direction.

        An attacker that is reliably wrong has found the attribute as well: whoever knows that, inverts it.
        """
        return abs(self.balanced_accuracy.mean - self.chance)

    def to_json(self) -> dict[str, Any]:
        """An entry of `results` in `attack.json`, as docs/run-folder.md describes it.

        `dropped_classes` and `control` appear only where there is something to say.
        """
        entry: dict[str, Any] = {
            "attribute": self.attribute,
            "surface": self.surface,
            "attacker": self.attacker,
            "classes": list(self.classes),
            "counts": list(self.counts),
            "n_users": self.n_users,
            "n_missing": self.n_missing,
            "chance": self.chance,
            "majority": self.majority,
            "balanced_accuracy": self.balanced_accuracy.to_json(),
            "macro_f1": self.macro_f1.to_json(),
            "auc": self.auc.to_json(),
            "accuracy": self.accuracy.to_json(),
            "parameters": {name: dict(counts) for name, counts in self.parameters.items()},
        }
        if self.dropped_classes:
            entry["dropped_classes"] = dict(self.dropped_classes)
        if self.shuffled:
            entry["control"] = "shuffled_labels"
        return entry
