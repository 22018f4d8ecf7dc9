import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrec_unlearn.attacks import shuffled_labels, smallest_class, stratified_folds
from fedrec_unlearn.data.types import MISSING

label_lists = st.lists(st.integers(0, 4), min_size=1, max_size=60)


@given(label_lists, st.integers(2, 7), st.integers(0, 2**32))
def test_folds_are_even_over_all_users_and_within_each_class(labels, folds, seed):
    given_labels = np.array(labels)
    fold = stratified_folds(given_labels, folds, np.random.default_rng(seed))
    for members in (np.ones(len(labels), bool), *(given_labels == c for c in set(labels))):
        sizes = np.bincount(fold[members], minlength=folds)
        assert len(sizes) == folds
        assert sizes.max() - sizes.min() <= 1


@given(st.integers(2, 10), st.integers(2, 10), st.integers(0, 2**32))
def test_smallest_class_occurs_in_every_outer_and_inner_fold_and_one_user_less_may_not(folds, inner_folds, seed):
    draws = np.random.default_rng(seed)

    def always_present(size):
        labels = np.array([0] * size + [1] * 40)
        outer = stratified_folds(labels, folds, draws)
        for fold in range(folds):
            if not np.any(labels[outer == fold] == 0):
                return False
            inner = stratified_folds(labels[outer != fold], inner_folds, draws)
            if len(set(inner[labels[outer != fold] == 0])) < inner_folds:
                return False
        return True

    assert always_present(smallest_class(folds, inner_folds))
    assert not always_present(smallest_class(folds, inner_folds) - 1)


@pytest.mark.parametrize(("folds", "inner", "users"), [(5, 3, 5), (2, 2, 4), (2, 3, 6), (10, 3, 10), (3, 10, 15)])
def test_smallest_class_by_hand(folds, inner, users):
    assert smallest_class(folds, inner) == users


def test_fold_assignment_is_random_in_the_draws():
    labels = np.arange(100) % 2
    first = stratified_folds(labels, 5, np.random.default_rng(0))
    assert np.array_equal(first, stratified_folds(labels, 5, np.random.default_rng(0)))
    assert not np.array_equal(first, stratified_folds(labels, 5, np.random.default_rng(1)))


@given(st.lists(st.integers(MISSING, 3), min_size=1, max_size=50), st.integers(0, 1000))
def test_shuffled_labels_keep_class_sizes_and_missing_users(labels, seed):
    before = np.array(labels)
    after = shuffled_labels(before, seed)
    assert np.array_equal(after == MISSING, before == MISSING)
    assert np.array_equal(np.sort(after), np.sort(before))
    assert np.array_equal(before, labels)


def test_shuffled_labels_share_nothing_with_the_labels_but_class_sizes():
    labels = np.arange(3000) % 3
    shuffled = shuffled_labels(labels, 1)
    assert abs(np.mean(shuffled == labels) - 1 / 3) < 0.04
    assert not np.array_equal(shuffled, shuffled_labels(labels, 2))
