"""Attribute inference: how well classifiers tell a user's attribute from what they see of the user.

The attacker knows the attribute of some users and wants it of the others. It is played by stratified
cross-validation over users: every user is judged once per seed, by a classifier that never saw that user.
Hyper-parameters are chosen by a second cross-validation inside each training part.

Source: Ganhör et al. 2022 and Li et al. 2023 judge attribute unlearning by such attackers; nested
cross-validation after Cawley and Talbot 2010.
"""

from __future__ import annotations

import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrec_unlearn.attacks.attackers import AttackerSpec, resolve_attacker
from fedrec_unlearn.attacks.folds import (
    ATTACKER_STATE,
    INNER_FOLDS,
    OUTER_FOLDS,
    shuffled_labels,
    smallest_class,
    stratified_folds,
)
from fedrec_unlearn.attacks.results import AttackMetric, AttackResult
from fedrec_unlearn.attacks.tuning import FoldPrediction, attack_fold
from fedrec_unlearn.config import ATTACKERS as DEFAULT_ATTACKERS
from fedrec_unlearn.data.types import MISSING
from fedrec_unlearn.errors import AttackError
from fedrec_unlearn.metrics import accuracy, auc, balanced_accuracy, macro_f1
from fedrec_unlearn.seeds import Purpose, generator, stream_key

IntArray = NDArray[np.int64]

Progress = Callable[[int, int, str], None]
"""Called as progress(done, total, attacker) after each fitted fold."""


class AttackWarning(UserWarning):
    """An attack was carried out, but not on everyone it was asked for."""


def infer_attribute(
    features: Any,
    labels: ArrayLike,
    *,
    attribute: str,
    classes: Sequence[str],
    surface: str = "user_embedding",
    attackers: Sequence[str | AttackerSpec] = DEFAULT_ATTACKERS,
    folds: int = 5,
    inner_folds: int = 3,
    seeds: Sequence[int] = (0, 1, 2),
    jobs: int = 1,
    control_shuffled: bool = False,
    progress: Progress | None = None,
) -> list[AttackResult]:
    """Attack one attribute from one surface with several attackers.

    Users whose label is `MISSING` are left out. So are classes too small to occur in every fold
    (`smallest_class`; 5 users by default): with an `AttackWarning`, and named in the result.

    Args:
        features: what the attacker sees of each user: array of shape (n_users, d) or scipy sparse matrix.
        labels: class of each user, shape (n_users,), 0 .. K-1 or `MISSING`.
        attribute: name of the attribute.
        classes: names of the K classes.
        surface: name of what `features` are.
        attackers: names of `ATTACKERS`, or descriptions of one's own classifiers.
        folds: outer folds; the share 1 - 1/folds of the users is known to the attacker.
        inner_folds: folds in which hyper-parameters are chosen.
        seeds: of the fold assignment and of the attackers, distinct.
        jobs: processes. Results do not depend on it.
        control_shuffled: shuffle the labels first, anew for each seed; must come out at chance.
        progress: told after each fold of each attacker.

    Returns:
        One result per attacker, in the order given. It is a function of features, labels, folds and seeds
        alone: not of jobs, of the other attackers or of what was attacked before.

    Raises:
        AttackError: fewer than two classes can be attacked, a feature is NaN or infinite, shapes do not fit,
            or an attacker is unknown, named twice or fails.
    """
    matrix, given = _features(features), _labels(labels, attribute, classes)
    if matrix.shape[0] != len(given):
        raise AttackError(f"{attribute}: features are of {matrix.shape[0]} users, labels of {len(given)}")
    _check_options(attackers, folds, inner_folds, seeds, jobs)
    kept, dropped = _classes_to_attack(given, attribute, classes, folds, inner_folds)
    users = np.flatnonzero(np.isin(given, kept))
    matrix, truth = matrix[users], np.searchsorted(kept, given[users])
    counts = tuple(int(c) for c in np.bincount(truth))

    tasks, labels_of, folds_of = [], {}, {}
    for seed in seeds:
        labels_of[seed] = shuffled_labels(truth, seed) if control_shuffled else truth
        outer = stratified_folds(labels_of[seed], folds, generator(seed, Purpose.ATTACK, OUTER_FOLDS))
        folds_of[seed] = outer
        for fold in range(folds):
            draws = generator(seed, Purpose.ATTACK, INNER_FOLDS, fold)
            inner = stratified_folds(labels_of[seed][outer != fold], inner_folds, draws)
            for attacker in attackers:
                state = stream_key(seed, Purpose.ATTACK, ATTACKER_STATE, fold, zlib.crc32(_name(attacker).encode()))
                spec = resolve_attacker(attacker, state % 2**31)
                tasks.append((_name(attacker), seed, fold, (spec, matrix, labels_of[seed], outer == fold, inner)))

    found: dict[tuple[str, int, int], FoldPrediction] = {}
    for done, (task, prediction) in enumerate(_run([t[3] for t in tasks], jobs), 1):
        name, seed, fold, _ = tasks[task]
        found[name, seed, fold] = prediction
        if progress is not None:
            progress(done, len(tasks), name)

    return [
        AttackResult(
            attribute=attribute,
            surface=surface,
            attacker=_name(attacker),
            classes=tuple(classes[int(c)] for c in kept),
            counts=counts,
            n_missing=int((given == MISSING).sum()),
            dropped_classes=dropped,
            shuffled=control_shuffled,
            **_judge({k[1:]: p for k, p in found.items() if k[0] == _name(attacker)}, labels_of, folds_of),
        )
        for attacker in attackers
    ]


def _judge(
    found: dict[tuple[int, int], FoldPrediction], labels_of: dict[int, IntArray], folds_of: dict[int, IntArray]
) -> dict[str, Any]:
    pooled: dict[str, list[float]] = {"balanced_accuracy": [], "macro_f1": [], "auc": [], "accuracy": []}
    by_fold: dict[str, list[list[float]]] = {name: [] for name in pooled}
    chosen: dict[str, Counter[str]] = {}
    measures = (("balanced_accuracy", balanced_accuracy), ("macro_f1", macro_f1), ("accuracy", accuracy))
    for seed, outer in folds_of.items():
        truth, predicted = labels_of[seed], np.empty(len(outer), dtype=np.int64)
        parts = [found[seed, fold] for fold in range(int(outer.max()) + 1)]
        for fold, part in enumerate(parts):
            predicted[outer == fold] = part.predicted
            for parameter, value in part.parameters.items():
                chosen.setdefault(parameter, Counter())[_shown(value)] += 1
        for name, measure in measures:
            pooled[name].append(measure(predicted, truth))
            by_fold[name].append([measure(part.predicted, truth[outer == f]) for f, part in enumerate(parts)])
        by_fold["auc"].append([auc(part.scores, truth[outer == fold]) for fold, part in enumerate(parts)])
        pooled["auc"].append(float(np.mean(by_fold["auc"][-1])))
    summary: dict[str, Any] = {
        name: AttackMetric.of(np.array(pooled[name]), np.array(by_fold[name])) for name in pooled
    }
    parameters = {name: dict(sorted(counts.items(), key=_by_size)) for name, counts in chosen.items()}
    return {**summary, "parameters": parameters}


def _run(arguments: list[tuple[Any, ...]], jobs: int) -> Iterator[tuple[int, FoldPrediction]]:
    if jobs == 1:
        for task, given in enumerate(arguments):
            yield task, attack_fold(*given)
        return
    from joblib import Parallel, delayed  # type: ignore[import-untyped, unused-ignore]

    # arrays are sent, not mapped from files: nothing is written, and classifiers may scale in place
    workers = Parallel(n_jobs=min(jobs, len(arguments)), return_as="generator_unordered", max_nbytes=None)
    yield from workers(delayed(_numbered)(task, given) for task, given in enumerate(arguments))


def _numbered(task: int, given: tuple[Any, ...]) -> tuple[int, FoldPrediction]:
    return task, attack_fold(*given)


def _features(features: Any) -> Any:
    from scipy import sparse

    if sparse.issparse(features):
        matrix = sparse.csr_matrix(features, dtype=np.float64)
        entries, row_of = matrix.data, np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        bad = np.unique(row_of[~np.isfinite(entries)])
    else:
        matrix = np.asarray(features, dtype=np.float64)
        if matrix.ndim != 2:
            raise AttackError(f"features must have shape (n_users, d), not {matrix.shape}; flatten a user's to one row")
        bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if matrix.shape[1] == 0:
        raise AttackError("features have no column; there is nothing to attack")
    if len(bad):
        others = f" and {len(bad) - 1} more users" if len(bad) > 1 else ""
        raise AttackError(
            f"features of user {bad[0]} (row, counted from 0){others} are NaN or infinite: "
            "training has diverged; lower the learning rates and train again"
        )
    return matrix


def _labels(labels: ArrayLike, attribute: str, classes: Sequence[str]) -> IntArray:
    given = np.asarray(labels)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise AttackError(f"{attribute}: labels must be integers of shape (n_users,), not {given.dtype} {given.shape}")
    unknown = np.flatnonzero((given != MISSING) & ((given < 0) | (given >= len(classes))))
    if len(unknown):
        raise AttackError(
            f"{attribute}: user {unknown[0]} has label {given[unknown[0]]}; there are {len(classes)} classes, "
            f"0 .. {len(classes) - 1}, and {MISSING} for a missing label"
        )
    return given.astype(np.int64)


def _classes_to_attack(
    labels: IntArray, attribute: str, classes: Sequence[str], folds: int, inner_folds: int
) -> tuple[IntArray, dict[str, int]]:
    counts = np.bincount(labels[labels != MISSING], minlength=len(classes))
    present = np.flatnonzero(counts)
    if len(present) < 2:
        what = (
            f"all {counts.sum()} users with a label are {classes[int(present[0])]!r}"
            if len(present)
            else "no user has a label"
        )
        raise AttackError(f"{attribute}: {what}; an attack needs two classes to tell apart")
    need = smallest_class(folds, inner_folds)
    kept = np.flatnonzero(counts >= need)
    dropped = {classes[int(c)]: int(counts[c]) for c in present if counts[c] < need}
    sizes = ", ".join(f"{name!r} ({count})" for name, count in dropped.items())
    needed = f"{need} users a class for {folds} folds with {inner_folds} inner folds"
    if len(kept) < 2:
        raise AttackError(
            f"{attribute}: too few users in {sizes}; the attack needs {needed}: "
            "merge classes, or lower attack.folds or attack.inner_folds"
        )
    if dropped:
        warnings.warn(
            f"{attribute}: left out, for too few users: {sizes}; the attack needs {needed}. "
            "To keep them, merge classes, or lower attack.folds or attack.inner_folds",
            AttackWarning,
            stacklevel=3,
        )
    return kept, dropped


def _check_options(
    attackers: Sequence[str | AttackerSpec], folds: int, inner_folds: int, seeds: Sequence[int], jobs: int
) -> None:
    names = [_name(attacker) for attacker in attackers]
    for option, values in (("attackers", names), ("seeds", list(seeds))):
        twice = [value for value, times in Counter(values).items() if times > 1]
        if len(values) == 0 or twice:
            raise AttackError(f"{option}: " + (f"{twice[0]!r} is given twice" if twice else "needs at least one entry"))
    for option, number, least in (("folds", folds, 2), ("inner_folds", inner_folds, 2), ("jobs", jobs, 1)):
        if number < least:
            raise AttackError(f"{option}: must be at least {least}, not {number}")
    for attacker in attackers:
        resolve_attacker(attacker, 0)


def _name(attacker: str | AttackerSpec) -> str:
    return attacker if isinstance(attacker, str) else attacker.name


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _by_size(choice: tuple[str, int]) -> tuple[float, str]:
    try:
        return float(choice[0]), ""
    except ValueError:
        return float("inf"), choice[0]
