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
