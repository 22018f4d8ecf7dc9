import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from fedrec_unlearn.attacks import ATTACKERS, AttackerSpec, resolve_attacker, scaled, scaled_and_dense
from fedrec_unlearn.attacks.estimators import (
    BalancedKNeighborsClassifier,
    BalancedMLPClassifier,
    QuantileBins,
    SparseReduction,
)
from fedrec_unlearn.config import KNOWN_ATTACKERS as CONFIGURED
from fedrec_unlearn.errors import AttackError


def draws(seed=0):
    return np.random.default_rng(seed)


def test_every_configurable_attacker_is_registered_in_order_under_its_name():
    assert tuple(ATTACKERS) == CONFIGURED
    assert [ATTACKERS[name](0).name for name in ATTACKERS] == list(CONFIGURED)


def test_a_registered_builder_can_be_named(monkeypatch):
    monkeypatch.setitem(ATTACKERS, "own", lambda seed: AttackerSpec("own", LogisticRegression(random_state=seed)))
    assert resolve_attacker("own", 7).classifier.random_state == 7


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(AttackError, match=r"'logistc'; did you mean 'logistic'\?; known: logistic, mlp"):
        resolve_attacker("logistc", 0)


def test_seeding_reaches_every_part_and_leaves_the_given_objects_alone():
    mine = AttackerSpec("mine", MLPClassifier(), preparation=scaled_and_dense())
    seeded = resolve_attacker(mine, 5)
    assert seeded.classifier.random_state == 5
    assert seeded.preparation.get_params()["sparsereduction__random_state"] == 5
    assert mine.classifier.random_state is None
    assert mine.preparation.get_params()["sparsereduction__random_state"] is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"classifier": object()}, r"has no fit\(\)"),
        ({"grid": {"c": (1.0,)}}, "names 'c', which LogisticRegression does not have"),
        ({"grid": {"max_itr": (1,)}}, "did you mean 'max_iter'"),
        ({"grid": {"C": ()}}, "no value for 'C'"),
        ({"stages": ("max_iter", (1, 2))}, "put the values into the grid instead"),
        (
            {"classifier": HistGradientBoostingClassifier(), "stages": ("max_iter", (5, 5))},
            "ascending positive numbers",
        ),
    ],
)
def test_a_wrong_description_is_refused_when_it_is_made(fields, message):
    with pytest.raises(AttackError, match=message):
        AttackerSpec(**{"name": "mine", "classifier": LogisticRegression(), **fields})


def test_scaling_standardises_dense_features_and_keeps_sparse_ones_sparse():
    dense = draws().normal(3, 2, (50, 4))
    np.testing.assert_allclose(scaled().fit(dense).transform(dense), StandardScaler().fit_transform(dense))
    rows = sparse.random(50, 30, 0.2, format="csr", random_state=0)
    scaled_rows = scaled().fit(rows).transform(rows)
    assert sparse.issparse(scaled_rows)
    lengths = np.sqrt(np.asarray(scaled_rows.multiply(scaled_rows).sum(axis=1))).ravel()
    np.testing.assert_allclose(lengths[np.diff(rows.indptr) > 0], 8.0)


def test_sparse_reduction_spans_the_leading_singular_vectors_and_passes_dense_features_through():
    low_rank = sparse.csr_matrix(draws().normal(size=(60, 3)) @ draws(1).normal(size=(3, 40)))
    unit = low_rank.toarray() / np.linalg.norm(low_rank.toarray(), axis=1, keepdims=True)
    reduced = SparseReduction(3, random_state=0).fit(low_rank).transform(low_rank)
    np.testing.assert_allclose(reduced @ reduced.T, unit @ unit.T, atol=1e-8)
    dense = low_rank.toarray()
    assert SparseReduction(3).fit(dense).transform(dense) is dense


def test_sparse_reduction_keeps_fewer_directions_than_asked_where_there_are_not_as_many():
    tiny = sparse.csr_matrix(np.eye(4, 3))
    assert SparseReduction(64, random_state=0).fit(tiny).transform(tiny).shape == (4, 2)


def test_quantile_bins_hold_equally_many_training_values_and_keep_order():
    values = draws().normal(size=(320, 2))
    bins = QuantileBins(32).fit(values)
    binned = bins.transform(values)
    for column in range(2):
        assert np.all(np.bincount(binned[:, column].astype(int)) == 10)
        assert np.all(np.diff(binned[np.argsort(values[:, column]), column]) >= 0)
    assert bins.transform([[-99.0, 99.0]]).tolist() == [[0.0, 31.0]]


def test_neighbours_votes_are_divided_by_class_shares():
    features, labels = np.array([[0.0], [0.1], [0.2], [0.3], [5.0], [0.05]]), np.array([0, 0, 0, 0, 0, 1])
    judge = BalancedKNeighborsClassifier(3, "euclidean").fit(features, labels)
    # of the three nearest to 0.04, two are of class 0 (share 5/6) and one of class 1 (share 1/6): 2/5 against 1
    np.testing.assert_allclose(judge.predict_proba([[0.04]]), [[0.4 / 1.4, 1 / 1.4]])
    assert judge.predict([[0.04], [5.0]]).tolist() == [1, 0]


def test_more_neighbours_than_training_users_means_all_of_them():
    judge = BalancedKNeighborsClassifier(61).fit(np.eye(4), np.array([0, 0, 1, 1]))
    np.testing.assert_allclose(judge.predict_proba(np.eye(4)), 0.5)


def test_the_network_weighs_a_rare_class_like_a_common_one():
    labels = (np.arange(400) < 40).astype(int)
    features = draws().normal(size=(400, 3)) + labels[:, None]
    options = {"solver": "lbfgs", "alpha": 10.0, "max_iter": 500, "random_state": 0}
    balanced = BalancedMLPClassifier(**options).fit(features, labels)
    # repeating the rare users until classes are even is what the weights stand for
    repeated = np.concatenate([np.flatnonzero(labels == 0), np.tile(np.flatnonzero(labels == 1), 9)])
    # scikit-learn divides the penalty by the number of rows
    oversampled = MLPClassifier(**{**options, "alpha": 10.0 * len(repeated) / 400}).fit(
        features[repeated], labels[repeated]
    )
    np.testing.assert_allclose(balanced.predict_proba(features), oversampled.predict_proba(features), atol=0.05)
    assert MLPClassifier(**options).fit(features, labels).predict(features).sum() < balanced.predict(features).sum() / 2


@pytest.mark.parametrize(
    "estimator", [BalancedMLPClassifier(alpha=2.0), BalancedKNeighborsClassifier(7), QuantileBins(9)]
)
def test_estimators_can_be_cloned(estimator):
    assert clone(estimator).get_params() == estimator.get_params()
