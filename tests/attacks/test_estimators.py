import numpy as np
import pytest
from sklearn.base import clone
from sklearn.svm import SVC

from fedrec_unlearn.attacks import infer_attribute, resolve_attacker
from fedrec_unlearn.attacks.estimators import CappedSVC
from fedrec_unlearn.config import KNOWN_ATTACKERS


def ring(n=400, seed=0):
    """Two classes no straight line tells apart: near the origin and around it."""
    draws = np.random.default_rng(seed)
    labels = (np.arange(n) % 4 == 0).astype(np.int64)
    angle, radius = draws.uniform(0, 2 * np.pi, n), np.where(labels == 1, 0.5, 2.0) + draws.normal(0, 0.2, n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), labels


def test_the_svm_is_found_by_the_name_a_configuration_uses():
    assert "svm" in KNOWN_ATTACKERS
    assert resolve_attacker("svm", 3).classifier.random_state == 3


def test_the_svm_finds_what_no_straight_line_does():
    features, labels = ring()
    options = {"attribute": "ring", "classes": ("around", "near"), "seeds": (0,)}
    svm, logistic = infer_attribute(features, labels, attackers=("svm", "logistic"), **options)
    assert svm.balanced_accuracy.mean > 0.97
    assert logistic.balanced_accuracy.mean < 0.65
    [control] = infer_attribute(features, labels, attackers=("svm",), control_shuffled=True, **options)
    assert control.distance_from_chance < 0.1


def test_few_users_are_all_learnt_from():
    features, labels = ring()
    capped = CappedSVC(max_rows=400, C=0.5, class_weight="balanced").fit(features, labels)
    plain = SVC(C=0.5, class_weight="balanced").fit(features, labels)
    np.testing.assert_allclose(capped.decision_function(features), plain.decision_function(features))


def test_of_many_users_a_sample_with_their_classes_shares_is_learnt_from():
    features, labels = ring(4000)
    capped = CappedSVC(max_rows=200, C=1e-6, random_state=1).fit(features, labels)
    # with a penalty this small every user of the smaller class is a support vector
    assert abs(int(capped.n_support_[1]) - 50) <= 1
    assert np.mean(capped.set_params(C=1.0).fit(features, labels).predict(features) == labels) > 0.97


def test_a_class_of_one_user_survives_the_sample():
    features, labels = ring(1000)
    labels[17] = 2
    assert CappedSVC(max_rows=50, random_state=0).fit(features, labels).classes_.tolist() == [0, 1, 2]


def test_the_sample_is_the_seeds():
    features, labels = ring(1000)
    first, again, other = (
        CappedSVC(max_rows=100, random_state=s).fit(features, labels).decision_function(features) for s in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("estimator", [CappedSVC(max_rows=9, C=2.0, class_weight="balanced")])
def test_estimators_can_be_cloned(estimator):
    assert clone(estimator).get_params() == estimator.get_params()
