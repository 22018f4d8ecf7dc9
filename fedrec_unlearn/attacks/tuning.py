"""One attacker on one outer fold: choose its hyper-parameters inside the training users, fit, judge the others.

**Guarantee.** Users of the test part influence nothing but their own predictions: neither the preparation
of the features, nor the choice of hyper-parameters, nor the final fit sees them.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.attacks.attackers import AttackerSpec
from fedrec_unlearn.errors import AttackError
from fedrec_unlearn.metrics import balanced_accuracy

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class FoldPrediction:
    """What an attacker says of the users of one test part."""

    predicted: IntArray
    """Shape (n_test,): class ids."""
    scores: FloatArray
    """Shape (n_test, K): column c is larger the more likely class c."""
    parameters: dict[str, Any]
    """The hyper-parameters chosen."""


def attack_fold(
    spec: AttackerSpec, features: Any, labels: IntArray, test: NDArray[np.bool_], inner: IntArray
) -> FoldPrediction:
    """Tune and fit an attacker on the users outside `test`, then predict those inside.

    Candidates are compared by the balanced accuracy of their predictions pooled over the inner folds, so
    that a class with one user in a fold does not count as a whole fold's worth. BLAS and OpenMP run on one thread
    meanwhile, for speed on small arrays and so that sums do not depend on the machine's core count.

    Args:
        spec: the attacker, already seeded.
        features: shape (n, d), dense float64 or CSR.
        labels: shape (n,), class ids 0 .. K-1, all present in the training part.
        test: shape (n,), the users to be judged.
        inner: shape (n_train,), inner fold of each training user in ascending order of users.

    Raises:
        AttackError: the classifier or its preparation refused the features or a parameter.
    """
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

    train_features, train_labels = features[~test], labels[~test]
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # the number of steps is bounded on purpose
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            parameters = _choose(spec, train_features, train_labels, inner)
            preparation, prepared = _prepare(spec, train_features, train_labels)
            classifier = _fitted(spec, parameters, prepared, train_labels)
            judged = features[test] if preparation is None else preparation.transform(features[test])
            predicted = np.asarray(classifier.predict(judged), dtype=np.int64)
            scores = _scores(classifier, judged, predicted, int(labels.max()) + 1)
        except (ValueError, TypeError) as error:
            raise AttackError(
                f"attacker {spec.name!r} failed on features of shape {features.shape}: {error}"
            ) from error
    return FoldPrediction(predicted, scores, parameters)


def _choose(spec: AttackerSpec, features: Any, labels: IntArray, inner: IntArray) -> dict[str, Any]:
    parameter, steps = spec.stages or ("", ())
    grid = [dict(zip(spec.grid, values, strict=True)) for values in itertools.product(*spec.grid.values())]
    candidates = [{**point, parameter: step} for point in grid for step in steps] if steps else grid
    if len(candidates) == 1:
        return candidates[0]
    predicted = np.empty((len(candidates), len(labels)), dtype=np.int64)
    for fold in range(int(inner.max()) + 1):
        held_out = inner == fold
        preparation, prepared = _prepare(spec, features[~held_out], labels[~held_out])
        judged = features[held_out] if preparation is None else preparation.transform(features[held_out])
        row = 0
        for point in grid:
            last = {**point, parameter: steps[-1]} if steps else point
            classifier = _fitted(spec, last, prepared, labels[~held_out])
            for prediction in _staged(classifier, judged, steps) if steps else [classifier.predict(judged)]:
                predicted[row, held_out] = prediction
                row += 1
    quality = [balanced_accuracy(prediction, labels) for prediction in predicted]
    return candidates[int(np.argmax(quality))]


def _staged(classifier: Any, features: Any, steps: tuple[int, ...]) -> Iterator[Any]:
    done, prediction = 0, None
    stages = iter(classifier.staged_predict(features))
    for step in steps:
        # a classifier that stopped early keeps its last prediction
        prediction = next(reversed(list(itertools.islice(stages, step - done))), prediction)
        done = step
        yield prediction


def _prepare(spec: AttackerSpec, features: Any, labels: IntArray) -> tuple[Any, Any]:
    from sklearn.base import clone

    if spec.preparation is None:
        return None, features
    preparation = clone(spec.preparation).fit(features, labels)
    return preparation, preparation.transform(features)


def _fitted(spec: AttackerSpec, parameters: dict[str, Any], features: Any, labels: IntArray) -> Any:
    from sklearn.base import clone

    classifier = clone(spec.classifier).set_params(**parameters)
    return classifier.fit(features, labels)


def _scores(classifier: Any, features: Any, predicted: IntArray, n_classes: int) -> FloatArray:
    if hasattr(classifier, "predict_proba"):
        scores = np.asarray(classifier.predict_proba(features), dtype=np.float64)
    elif hasattr(classifier, "decision_function"):
        scores = np.asarray(classifier.decision_function(features), dtype=np.float64)
        scores = np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores
    else:
        scores = np.eye(n_classes)[predicted]
    if scores.shape != (len(predicted), n_classes):
        raise ValueError(f"its scores have shape {scores.shape}, not {(len(predicted), n_classes)}")
    return scores
