"""Metrics of attribute inference against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from fedrec_unlearn.errors import DataError
from fedrec_unlearn.metrics import accuracy, auc, balanced_accuracy, chance_level, macro_f1, majority_share


def labels(seed, n_classes, n=40):
    """Predicted and actual labels with every class present in `actual`."""
    rng = np.random.default_rng(seed)
    actual = rng.permutation(np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)]))
    return rng.integers(0, n_classes, n), actual


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(2, 7))
def test_labels_are_judged_as_scikit_learn_does(seed, n_classes):
    predicted, actual = labels(seed, n_classes)
    assert accuracy(predicted, actual) == pytest.approx(sklearn_metrics.accuracy_score(actual, predicted))
    assert balanced_accuracy(predicted, actual) == pytest.approx(
        sklearn_metrics.balanced_accuracy_score(actual, predicted)
    )
    assert macro_f1(predicted, actual) == pytest.approx(sklearn_metrics.f1_score(actual, predicted, average="macro"))


def test_classes_only_predicted_count_in_f1_but_not_in_balanced_accuracy():
    predicted, actual = np.array([0, 1, 2, 2]), np.array([0, 1, 1, 0])
    assert balanced_accuracy(predicted, actual) == pytest.approx(0.5)
    expected = sklearn_metrics.f1_score(actual, predicted, average="macro", zero_division=0)
    assert macro_f1(predicted, actual) == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.booleans())
def test_binary_auc_agrees_with_scikit_learn_also_with_ties(seed, tied):
    _, actual = labels(seed, 2)
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, 40).astype(float) if tied else rng.normal(size=40)
    expected = sklearn_metrics.roc_auc_score(actual, scores)
    assert auc(scores, actual) == pytest.approx(expected)
    assert auc(np.column_stack([-scores, scores]), actual) == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(3, 6))
def test_multiclass_auc_is_one_versus_rest_macro(seed, n_classes):
    _, actual = labels(seed, n_classes)
    scores = np.round(np.random.default_rng(seed).dirichlet(np.ones(n_classes), 40), 2)
    scores[:, -1] = 1.0 - scores[:, :-1].sum(axis=1)
    expected = sklearn_metrics.roc_auc_score(actual, scores, multi_class="ovr", average="macro")
    assert auc(scores, actual) == pytest.approx(expected)


def test_multiclass_auc_leaves_out_classes_that_do_not_occur():
    rng = np.random.default_rng(4)
    actual, scores = np.array([0, 2] * 10), rng.random((20, 3))
    expected = [sklearn_metrics.roc_auc_score(actual == c, scores[:, c]) for c in (0, 2)]
    assert auc(scores, actual) == pytest.approx(np.mean(expected))


def test_auc_counts_pairs_with_ties_half():
    # pairs (1, 0): 3 > 1, 3 > 2, 2 > 1, 2 = 2
    assert auc([1.0, 2.0, 2.0, 3.0], [0, 0, 1, 1]) == pytest.approx(3.5 / 4)
    assert auc(np.zeros(6), [0, 1, 1, 1, 0, 1]) == 0.5


def test_guessing_reaches_what_the_baselines_say():
    actual = np.array([0] * 7 + [1] * 2 + [2])
    constant = np.zeros(10, dtype=np.int64)
    assert chance_level(actual) == pytest.approx(1 / 3)
    assert balanced_accuracy(constant, actual) == pytest.approx(chance_level(actual))
    assert accuracy(constant, actual) == majority_share(actual) == 0.7
    assert macro_f1(constant, actual) == pytest.approx(2 * 0.7 / 1.7 / 3)


def test_chance_counts_the_classes_present():
    assert chance_level([0, 3, 3]) == 0.5


@pytest.mark.parametrize("function", [accuracy, balanced_accuracy, macro_f1])
def test_labels_that_do_not_fit_are_refused(function):
    with pytest.raises(DataError, match="predicted has 2 labels, actual has 3"):
        function([0, 1], [0, 1, 1])
    with pytest.raises(DataError, match="actual: 2 labels are missing"):
        function([0, 1, 1], [0, -1, -1])
    with pytest.raises(DataError, match="must be integers, not float64"):
        function([0.2, 0.8], [0, 1])
    with pytest.raises(DataError, match="non-empty"):
        function([], [])


def test_a_single_class_is_refused_where_it_makes_no_sense():
    for call in (
        lambda: balanced_accuracy([1, 0], [1, 1]),
        lambda: macro_f1([1, 0], [1, 1]),
        lambda: auc([0.1, 0.2], [1, 1]),
        lambda: chance_level([1, 1]),
    ):
        with pytest.raises(DataError, match="all 2 users are of class 1; two classes are needed"):
            call()
    assert accuracy([1, 0], [1, 1]) == 0.5
    assert majority_share([1, 1]) == 1.0


def test_scores_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match=r"not \(3,\), for 2 labels"):
        auc([0.1, 0.2, 0.3], [0, 1])
    with pytest.raises(DataError, match="class 2 occurs, but the scores are of 2 classes"):
        auc([0.1, 0.2, 0.3], [0, 1, 2])
    with pytest.raises(DataError, match="a score is NaN"):
        auc([0.1, np.nan], [0, 1])
