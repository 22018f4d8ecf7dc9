import json
import math
import re
import warnings
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score
from sklearn.svm import LinearSVC

from fedrec_unlearn.attacks import (
    ATTACKERS,
    AttackerSpec,
    AttackWarning,
    infer_attribute,
    stratified_folds,
)
from fedrec_unlearn.data.types import MISSING
from fedrec_unlearn.errors import AttackError
from fedrec_unlearn.seeds import Purpose, generator

DOCS = Path(__file__).parents[2] / "docs"
QUICK = AttackerSpec("quick", LinearDiscriminantAnalysis())


def planted(n=600, d=8, shift=2.0, rare=0.3, seed=0):
    """Two Gaussian classes, `shift` standard deviations apart in a random direction."""
    draws = np.random.default_rng(seed)
    labels = (np.arange(n) < rare * n).astype(np.int64)
    direction = draws.normal(size=d)
    features = draws.normal(size=(n, d)) + np.outer(labels, shift * direction / np.linalg.norm(direction))
    order = draws.permutation(n)
    return features[order], labels[order]


def infer(features, labels, **options):
    settings = {"attribute": "gender", "classes": ("F", "M"), "attackers": (QUICK,), **options}
    return infer_attribute(features, labels, **settings)


@pytest.mark.parametrize("attacker", ATTACKERS)
@pytest.mark.parametrize("shift", [1.0, 2.0])
def test_a_planted_attribute_is_found_up_to_the_bayes_bound(attacker, shift):
    features, labels = planted(shift=shift)
    [result] = infer(features, labels, attackers=(attacker,), seeds=(0, 1))
    bound = NormalDist().cdf(shift / 2)
    noise = math.sqrt(bound * (1 - bound) * (1 / 180 + 1 / 420) / 4)
    assert bound - 0.08 < result.balanced_accuracy.mean < bound + 3 * noise
    assert NormalDist().cdf(shift / math.sqrt(2)) - 0.08 < result.auc.mean


@pytest.mark.parametrize("attacker", ATTACKERS)
def test_noise_gives_chance_with_unequal_classes(attacker):
    features, labels = planted(shift=0.0, rare=0.2)
    [result] = infer(features, labels, attackers=(attacker,), seeds=(0, 1))
    noise = math.sqrt(0.25 * (1 / 120 + 1 / 480) / 4)
    assert abs(result.balanced_accuracy.mean - 0.5) < 3 * noise
    assert abs(result.auc.mean - 0.5) < 0.08


@pytest.mark.parametrize("attacker", ATTACKERS)
def test_shuffled_labels_give_one_over_k(attacker):
    draws = np.random.default_rng(3)
    labels = draws.choice(3, 450, p=(0.5, 0.3, 0.2))
    features = draws.normal(size=(450, 5)) + 6 * np.eye(3, 5)[labels]
    options = {"classes": ("a", "b", "c"), "attackers": (attacker,), "seeds": (0, 1)}
    [found], [control] = infer(features, labels, **options), infer(features, labels, control_shuffled=True, **options)
    assert found.balanced_accuracy.mean > 0.95
    assert found.distance_from_chance > 0.6
    assert control.distance_from_chance < 0.06
    assert control.to_json()["control"] == "shuffled_labels"
    assert "control" not in found.to_json()


@pytest.mark.parametrize("attacker", ATTACKERS)
def test_every_attacker_takes_sparse_features(attacker):
    draws = np.random.default_rng(4)
    labels = (np.arange(300) % 3 == 0).astype(np.int64)
    usual = np.where(labels[:, None] == (np.arange(80) < 40), 0.08, 0.16)
    support = sparse.csr_matrix((draws.random((300, 80)) < usual).astype(float))
    [result] = infer(support, labels, attackers=(attacker,), seeds=(0,), surface="update_support")
    assert result.balanced_accuracy.mean > 0.7
    assert result.surface == "update_support"


class RandomRule(ClassifierMixin, BaseEstimator):
    """Guesses by the sign of a projection that training has no say in."""

    def __init__(self, rule=0):
        self.rule = rule

    def fit(self, features, labels):
        return self

    def predict(self, features):
        return (features @ np.random.default_rng(self.rule).normal(size=features.shape[1]) > 0).astype(int)


def test_hyper_parameters_are_not_chosen_on_the_users_judged():
    features, labels = planted(n=60, d=20, shift=0.0, rare=0.5, seed=1)
    rules = range(300)
    best = max(balanced_accuracy_score(labels, RandomRule(r).predict(features)) for r in rules)
    assert best > 0.65, "choosing with the test users in view would look like success"
    attackers = (AttackerSpec("rules", RandomRule(), {"rule": rules}),)
    [result] = infer(features, labels, attackers=attackers, seeds=range(5))
    assert 0.35 < result.balanced_accuracy.mean < 0.58
    assert sum(result.parameters["rule"].values()) == 25
    assert len(result.parameters["rule"]) > 5


class Recorder(TransformerMixin, BaseEstimator):
    """Passes features through and notes which users (first column) it was fitted on and asked about."""

    log: list = []  # noqa: RUF012

    def fit(self, features, labels):
        self.fitted_on = frozenset(features[:, 0])
        return self

    def transform(self, features):
        Recorder.log.append((self.fitted_on, frozenset(features[:, 0])))
        return features


def test_nothing_is_fitted_on_users_it_is_then_judged_on():
    features, labels = planted(n=60)
    features[:, 0] = np.arange(60)
    Recorder.log = []
    attackers = (AttackerSpec("recorded", LogisticRegression(), {"C": (0.1, 1.0)}, Recorder()),)
    infer(features, labels, attackers=attackers, seeds=(0,), folds=4, inner_folds=2)
    judged = [(fitted, asked) for fitted, asked in Recorder.log if fitted != asked]
    assert all(not fitted & asked for fitted, asked in judged)
    # per outer fold: two inner fits on a third of the rest each, then one on all the rest
    tests = [asked for fitted, asked in judged if len(fitted) == 45]
    assert len(tests) == 4
    assert frozenset().union(*tests) == frozenset(range(60))
    for outer in range(4):
        inner = judged[3 * outer : 3 * outer + 2]
        assert all(not (fitted | asked) & tests[outer] for fitted, asked in inner)


def test_metrics_agree_with_scikit_learn_on_the_same_folds():
    draws = np.random.default_rng(6)
    labels = draws.choice(3, 240, p=(0.6, 0.25, 0.15))
    features = draws.normal(size=(240, 4)) + np.eye(3, 4)[labels]
    [result] = infer(features, labels, classes=("a", "b", "c"), seeds=(11,))
    outer = stratified_folds(labels, 5, generator(11, Purpose.ATTACK, 0))
    predicted, areas = np.empty(240, int), []
    for fold in range(5):
        test = outer == fold
        classifier = LinearDiscriminantAnalysis().fit(features[~test], labels[~test])
        predicted[test] = classifier.predict(features[test])
        scores = classifier.predict_proba(features[test])
        areas.append(roc_auc_score(labels[test], scores, multi_class="ovr"))
        assert result.balanced_accuracy.per_fold[0][fold] == pytest.approx(
            balanced_accuracy_score(labels[test], predicted[test])
        )
    assert result.balanced_accuracy.per_seed == pytest.approx([balanced_accuracy_score(labels, predicted)])
    assert result.macro_f1.mean == pytest.approx(f1_score(labels, predicted, average="macro"))
    assert result.accuracy.mean == pytest.approx(np.mean(labels == predicted))
    assert result.auc.per_fold[0] == pytest.approx(areas)
    assert result.auc.mean == pytest.approx(np.mean(areas))
    assert result.balanced_accuracy.fold_std == pytest.approx(np.std(result.balanced_accuracy.per_fold[0], ddof=1))


def test_json_has_the_documented_keys():
    page = (DOCS / "run-folder.md").read_text()
    documented = json.loads(re.search(r"## `attack.json`\s+```json\n(.*?)```", page, re.DOTALL)[1])["results"][0]
    features, labels = planted(n=100)
    entry = json.loads(json.dumps(infer(features, labels, attackers=("logistic",))[0].to_json(), allow_nan=False))
    assert list(entry) == list(documented)
    assert all(
        list(entry[m]) == list(documented["balanced_accuracy"]) for m in ("balanced_accuracy", "macro_f1", "auc")
    )
    assert set(entry["parameters"]) == {"C"}
    assert sum(entry["parameters"]["C"].values()) == 15
    assert entry["majority"] == 0.7
    assert entry["counts"] == [70, 30]


def test_one_seed_has_no_interval_and_json_says_null():
    features, labels = planted(n=100)
    entry = infer(features, labels, seeds=(0,))[0].to_json()["balanced_accuracy"]
    assert (entry["std"], entry["low"], entry["high"]) == (None, None, None)
    assert entry["per_seed"] == [entry["mean"]]


def test_interval_covers_the_mean_over_seeds():
    features, labels = planted()
    metric = infer(features, labels, seeds=range(4))[0].balanced_accuracy
    assert metric.low < metric.mean < metric.high
    assert metric.mean == pytest.approx(np.mean(metric.per_seed))
    assert len(set(metric.per_seed)) > 1


def test_users_without_a_label_are_left_out_whatever_their_features():
    features, labels = planted(n=200)
    [whole] = infer(features, labels)
    masked = np.concatenate([[MISSING], labels[:100], [MISSING] * 2, labels[100:]])
    spread = np.insert(features, [0, 100, 100], 1e6, axis=0)
    [result] = infer(spread, masked)
    assert result.n_missing == 3
    assert result.n_users == 200
    assert result.balanced_accuracy == whole.balanced_accuracy


def test_results_depend_neither_on_jobs_nor_on_company_nor_on_history():
    features, labels = planted(n=100)
    names = ("logistic", "mlp", "boosted_trees", "knn")
    options = {"seeds": (0, 1), "folds": 2, "inner_folds": 2}
    together = [r.to_json() for r in infer(features, labels, attackers=names, **options)]
    # another attribute first, then one by one in another order
    infer(features, np.roll(labels, 1), attribute="age", **options)
    alone = {n: infer(features, labels, attackers=(n,), **options)[0].to_json() for n in reversed(names)}
    assert together == [alone[n] for n in names]
    in_parallel = infer(features, labels, attackers=names, jobs=2, **options)
    assert together == [r.to_json() for r in in_parallel]


def test_the_thread_count_of_the_process_is_put_back():
    from threadpoolctl import threadpool_info

    before = [pool["num_threads"] for pool in threadpool_info()]
    infer(*planted(n=60), seeds=(0,))
    assert [pool["num_threads"] for pool in threadpool_info()][: len(before)] == before


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_is_told_after_each_fold(jobs):
    calls = []
    infer(
        *planted(n=60), attackers=("logistic", "knn"), seeds=(0,), folds=2, inner_folds=2, jobs=jobs,
        progress=lambda done, total, attacker: calls.append((done, total, attacker)),
    )  # fmt: skip
    assert [(done, total) for done, total, _ in calls] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert sorted(attacker for *_, attacker in calls) == ["knn", "knn", "logistic", "logistic"]


def test_staged_steps_are_chosen_as_if_each_had_its_own_fit():
    from sklearn.ensemble import GradientBoostingClassifier

    features, labels = planted(n=150)
    trees = GradientBoostingClassifier(max_depth=2)
    steps = (1, 8, 60)
    staged = AttackerSpec("trees", trees, {"max_depth": (1, 2)}, stages=("n_estimators", steps))
    spelt_out = AttackerSpec("trees", trees, {"max_depth": (1, 2), "n_estimators": steps})
    [quick], [slow] = (infer(features, labels, attackers=(spec,), seeds=(0,)) for spec in (staged, spelt_out))
    assert quick.to_json() == slow.to_json()
    assert len(quick.parameters["n_estimators"]) > 1


def test_a_classifier_without_probabilities_is_ranked_by_its_decision_function():
    features, labels = planted(shift=2.0)
    [result] = infer(features, labels, attackers=(AttackerSpec("svm", LinearSVC(class_weight="balanced")),))
    assert result.auc.mean == pytest.approx(NormalDist().cdf(2 / math.sqrt(2)), abs=0.05)


def test_small_classes_are_left_out_with_a_warning_and_named_in_the_result():
    features, labels = planted(n=104)
    labels[np.flatnonzero(labels == 0)[:4]] = 2
    options = {"classes": ("F", "M", "other", "unused"), "seeds": (0,)}
    with pytest.warns(AttackWarning, match=r"gender: left out, for too few users: 'other' \(4\); the attack needs 5"):
        [result] = infer(features, labels, **options)
    assert result.classes == ("F", "M")
    assert result.chance == 0.5
    assert result.dropped_classes == {"other": 4}
    assert result.to_json()["dropped_classes"] == {"other": 4}
    assert result.n_users == 100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [result] = infer(features, labels, folds=3, inner_folds=2, **options)
    assert result.classes == ("F", "M", "other")
    assert result.dropped_classes == {}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1] * 30 + [MISSING] * 30, "gender: all 30 users with a label are 'M'; an attack needs two classes"),
        ([MISSING] * 60, "gender: no user has a label"),
        ([0] * 57 + [1] * 3, r"gender: too few users in 'M' \(3\); .* merge classes, or lower attack.folds"),
        ([0] * 59 + [2], r"gender: user 59 has label 2; there are 2 classes"),
        ([0.0, 1.0] * 30, "labels must be integers"),
        ([0, 1] * 20, "features are of 60 users, labels of 40"),
    ],
)
def test_labels_that_cannot_be_attacked_are_refused(labels, message):
    with pytest.raises(AttackError, match=message):
        infer(planted(n=60)[0], np.array(labels))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_a_diverged_model_is_refused_by_naming_the_user(value, form):
    features, labels = planted(n=60)
    features[[17, 20], 3] = value
    with pytest.raises(AttackError, match=r"user 17 \(row, counted from 0\) and 1 more users? are NaN or infinite"):
        infer(form(features), labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attackers": ()}, "attackers: needs at least one entry"),
        ({"attackers": ("knn", "knn")}, "attackers: 'knn' is given twice"),
        ({"attackers": ("kn",)}, "did you mean 'knn'"),
        ({"seeds": (1, 1)}, "seeds: 1 is given twice"),
        ({"folds": 1}, "folds: must be at least 2"),
        ({"jobs": 0}, "jobs: must be at least 1"),
        ({"attackers": (AttackerSpec("odd", LogisticRegression(C=-1.0)),)}, "'odd' failed on features of shape"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(AttackError, match=message):
        infer(*planted(n=60), **options)


@pytest.mark.parametrize("shape", [(60,), (60, 2, 2), (60, 0)])
def test_features_of_another_shape_are_refused(shape):
    with pytest.raises(AttackError, match=r"shape|no column"):
        infer(np.zeros(shape), planted(n=60)[1])
