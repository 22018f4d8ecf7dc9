from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedrec_unlearn.report import Users
from fedrec_unlearn.report.projection import MAX_POINTS, principal_components, project, sample_users


def test_agrees_with_scikit_learn_up_to_sign() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    table = np.random.default_rng(0).normal(size=(200, 12)) * np.linspace(3, 0.2, 12) + 7.0
    scores, share = principal_components(table)
    reference = decomposition.PCA(n_components=2, svd_solver="full").fit(table)
    np.testing.assert_allclose(share, reference.explained_variance_ratio_, rtol=1e-10)
    np.testing.assert_allclose(np.abs(scores), np.abs(reference.transform(table)), atol=1e-9)


def test_the_sign_does_not_depend_on_the_sign_of_the_table() -> None:
    table = np.random.default_rng(1).normal(size=(50, 4)) * [4, 2, 1, 1]
    scores, _ = principal_components(table)
    mirrored, _ = principal_components(-table)
    np.testing.assert_allclose(mirrored, -scores, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_share_does_not_depend_on_the_scale(scale: float) -> None:
    table = np.random.default_rng(2).normal(size=(50, 4)) * [4, 2, 1, 1]
    np.testing.assert_allclose(principal_components(table * scale)[1], principal_components(table)[1], rtol=1e-9)


def test_one_column_one_user_or_no_variance_give_zeros_and_no_nan() -> None:
    line, share = principal_components(np.arange(5.0)[:, None])
    assert share == (1.0, 0.0)
    assert not line[:, 1].any()
    for table in (np.ones((4, 3)), np.ones((1, 3))):
        scores, share = principal_components(table)
        assert share == (0.0, 0.0)
        assert not scores.any()


def test_the_sample_is_fixed_distinct_and_spread_over_all_users() -> None:
    shown = sample_users(50_000)
    assert len(np.unique(shown)) == MAX_POINTS
    np.testing.assert_array_equal(shown, sample_users(50_000))
    in_fifths = np.bincount(shown // 10_000, minlength=5)
    # four standard deviations of a hypergeometric draw
    assert np.all(np.abs(in_fifths - MAX_POINTS / 5) < 4 * np.sqrt(MAX_POINTS * 0.2 * 0.8))
    np.testing.assert_array_equal(sample_users(MAX_POINTS), np.arange(MAX_POINTS))


def test_components_come_from_all_users_and_labels_follow_the_sample(make_users: Callable[..., Users]) -> None:
    users = make_users(n_users=4000)
    found = project(users)
    scores, share = principal_components(users.representation)
    shown = sample_users(4000)
    assert found.explained_variance == share
    np.testing.assert_allclose(found.points, scores[shown], rtol=1e-5)
    np.testing.assert_array_equal(found.attributes["gender"][1], users.attributes["gender"][1][shown])


def test_both_states_lie_on_the_components_of_the_state_before(make_users: Callable[..., Users]) -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    before = make_users(n_users=500)
    moved = before.representation + 3.0
    moved[:, 0] *= 0.2
    after = Users(before.user_ids, moved.astype(np.float32), before.attributes)
    found = project(after, before)
    reference = decomposition.PCA(n_components=2, svd_solver="full").fit(before.representation.astype(np.float64))
    assert found.points_before is not None
    expected = reference.transform(before.representation)
    np.testing.assert_allclose(np.abs(found.points_before), np.abs(expected), rtol=1e-4)
    np.testing.assert_allclose(np.abs(found.points), np.abs(reference.transform(after.representation)), rtol=1e-4)
    np.testing.assert_allclose(found.explained_variance_before, reference.explained_variance_ratio_, rtol=1e-8)
    total = after.representation.astype(float).var(axis=0).sum()
    spread = reference.transform(after.representation).var(axis=0) / total
    np.testing.assert_allclose(found.explained_variance, spread, rtol=1e-4)


def test_without_a_state_before_the_components_are_the_own_ones(make_users: Callable[..., Users]) -> None:
    found = project(make_users(n_users=50))
    assert found.points_before is None
    assert found.explained_variance_before is None
