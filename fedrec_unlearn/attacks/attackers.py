"""Who attacks: classifiers with small grids of hyper-parameters, and how to bring one's own.

`ATTACKERS` maps a name to a builder. The five that come with the package differ in what they can see: linear
directions (logistic), smooth non-linear boundaries (mlp), thresholds on single features (boosted_trees),
neighbourhoods (knn), smooth boundaries around them (svm). All weigh classes equally, because they are judged by
balanced accuracy.

Your own classifier needs no registration::

    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(class_weight="balanced")
    mine = AttackerSpec("forest", forest, {"min_samples_leaf": (16, 4)}, preparation=scaled_and_dense())
    infer_attribute(..., attackers=("logistic", mine))
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedrec_unlearn.errors import AttackError


@dataclass(frozen=True)
class AttackerSpec:
    """A classifier, the values to try for its hyper-parameters, and what is done to the features first.

    Raises:
        AttackError: `classifier` is not a scikit-learn-style classifier, the grid names a parameter it does
            not have or gives no value for one, or `stages` asks for staged predictions it cannot make.
    """

    name: str
    classifier: Any
    """Unfitted, with scikit-learn's fit, predict and get_params; sees class ids 0 .. K-1."""
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Values to try for each parameter, simplest first: of equally good candidates the first is taken."""
    preparation: Any = None
    """Unfitted transformer, fitted on the users in training only; None: features as they are, sparse or dense."""
    stages: tuple[str, tuple[int, ...]] | None = None
    """A parameter that counts steps and its ascending values to try: `staged_predict` judges all of them in one fit."""

    def __post_init__(self) -> None:
        for method in ("fit", "predict", "get_params", "set_params"):
            if not hasattr(self.classifier, method):
                raise AttackError(
                    f"attacker {self.name!r}: its classifier has no {method}(); give an object with scikit-learn's "
                    "classifier interface (fit, predict, get_params, set_params)"
                )
        known = self.classifier.get_params()
        for parameter, values in self.grid.items():
            if parameter not in known:
                raise AttackError(
                    f"attacker {self.name!r}: the grid names {parameter!r}, which {type(self.classifier).__name__} "
                    f"does not have{_suggest(parameter, known)}"
                )
            if len(values) == 0:
                raise AttackError(f"attacker {self.name!r}: the grid has no value for {parameter!r}")
        if self.stages is not None:
            parameter, steps = self.stages
            if parameter not in known or not hasattr(self.classifier, "staged_predict"):
                raise AttackError(
                    f"attacker {self.name!r}: stages need a classifier with staged_predict() and a parameter "
                    f"{parameter!r}; put the values into the grid instead"
                )
            if len(steps) == 0 or steps[0] < 1 or list(steps) != sorted(set(steps)):
                raise AttackError(f"attacker {self.name!r}: stages must be ascending positive numbers, not {steps}")

    def seeded(self, seed: int) -> AttackerSpec:
        """The same attacker with every `random_state` of its parts set to `seed`."""
        return replace(self, classifier=_seeded(self.classifier, seed), preparation=_seeded(self.preparation, seed))


AttackerBuilder = Callable[[int], AttackerSpec]
"""Builds an attacker whose random parts start from the seed given, an integer in [0, 2**31)."""


def scaled() -> Any:
    """A preparation: dense features standardised; sparse rows scaled to one length and kept sparse."""
    from fedrec_unlearn.attacks.estimators import FeatureScaling

    return FeatureScaling()


def scaled_and_dense(n_components: int = 64) -> Any:
    """A preparation for classifiers that take dense features only: sparse ones are reduced, then all standardised.

    Args:
        n_components: directions kept of sparse features.
    """
    from sklearn.pipeline import make_pipeline

    from fedrec_unlearn.attacks.estimators import FeatureScaling, SparseReduction

    return make_pipeline(SparseReduction(n_components), FeatureScaling())


def logistic(seed: int) -> AttackerSpec:
    """Logistic regression with balanced classes: finds linear traces. Takes sparse features as they are."""
    from sklearn.linear_model import LogisticRegression

    classifier = LogisticRegression(class_weight="balanced", max_iter=300, tol=1e-3)
    return AttackerSpec("logistic", classifier, {"C": (0.001, 0.01, 0.1, 1.0)}, scaled()).seeded(seed)


def mlp(seed: int) -> AttackerSpec:
    """A network with one hidden layer and balanced classes.

    Trained by L-BFGS with a bounded number of steps: on some thousand users it reaches what Adam reaches in
    a quarter of the time.
    """
    from fedrec_unlearn.attacks.estimators import BalancedMLPClassifier

    classifier = BalancedMLPClassifier(solver="lbfgs", max_iter=30)
    grid = {"hidden_layer_sizes": ((32,),), "alpha": (100.0, 30.0, 10.0, 3.0)}
    return AttackerSpec("mlp", classifier, grid, scaled_and_dense()).seeded(seed)


def boosted_trees(seed: int) -> AttackerSpec:
    """Gradient-boosted trees with balanced classes: finds thresholds and their combinations."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.pipeline import make_pipeline

    from fedrec_unlearn.attacks.estimators import QuantileBins, SparseReduction

    bins = 32
    classifier = HistGradientBoostingClassifier(
        learning_rate=0.1,
        l2_regularization=1.0,
        max_bins=bins,
        early_stopping=False,
        class_weight="balanced",
    )
    preparation = make_pipeline(SparseReduction(), QuantileBins(bins))
    grid = {"max_leaf_nodes": (6,)}
    return AttackerSpec("boosted_trees", classifier, grid, preparation, ("max_iter", (10, 20, 40))).seeded(seed)


def knn(seed: int) -> AttackerSpec:
    """k nearest neighbours with votes corrected for class shares: finds local traces."""
    from fedrec_unlearn.attacks.estimators import BalancedKNeighborsClassifier

    grid = {"metric": ("cosine", "euclidean"), "n_neighbors": (61, 31, 11)}
    return AttackerSpec("knn", BalancedKNeighborsClassifier(), grid, scaled_and_dense()).seeded(seed)


def svm(seed: int) -> AttackerSpec:
    """A support vector machine with a Gaussian kernel and balanced classes: smooth boundaries around neighbourhoods.

    Of more than 3,000 users in training it learns from that many, drawn at random with their classes' shares: the
    time of a fit grows with the square of their number.
    """
    from fedrec_unlearn.attacks.estimators import CappedSVC

    classifier = CappedSVC(class_weight="balanced", cache_size=500)
    return AttackerSpec("svm", classifier, {"C": (0.1, 0.3, 1.0)}, scaled_and_dense()).seeded(seed)


ATTACKERS: dict[str, AttackerBuilder] = {
    "logistic": logistic,
    "mlp": mlp,
    "boosted_trees": boosted_trees,
    "knn": knn,
    "svm": svm,
}
"""Attackers by name. Add a builder to attack with it by name; the order is that of reports."""


def resolve_attacker(attacker: str | AttackerSpec, seed: int) -> AttackerSpec:
    """The attacker of that name, or the one given, with its random parts seeded.

    Args:
        attacker: a name of `ATTACKERS`, or a description of one's own.
        seed: integer in [0, 2**31).

    Raises:
        AttackError: the name is unknown.
    """
    if isinstance(attacker, AttackerSpec):
        return attacker.seeded(seed)
    if attacker not in ATTACKERS:
        raise AttackError(
            f"unknown attacker {attacker!r}{_suggest(attacker, ATTACKERS)}; known: {', '.join(ATTACKERS)}"
        )
    return ATTACKERS[attacker](seed)


def _seeded(estimator: Any, seed: int) -> Any:
    if estimator is None:
        return None
    from sklearn.base import clone

    copy = clone(estimator)
    states = {name: seed for name in copy.get_params() if name == "random_state" or name.endswith("__random_state")}
    return copy.set_params(**states) if states else copy


def _suggest(given: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(given, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
