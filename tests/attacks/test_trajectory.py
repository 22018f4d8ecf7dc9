import numpy as np
import pytest

from fedrec_unlearn.attacks import direction_features, infer_attribute, one_step_direction, trajectory_features
from fedrec_unlearn.errors import AttackError


def snapshots(moments=5, users=7, width=3, seed=0):
    return np.random.default_rng(seed).normal(size=(moments, users, width))


def test_a_users_moments_stand_side_by_side_in_order():
    rows = snapshots()
    features = trajectory_features(rows)
    assert features.shape == (7, 15)
    for user in range(7):
        assert features[user].tolist() == [value for moment in rows for value in moment[user]]
    assert np.array_equal(trajectory_features(rows[:1]), rows[0])


def test_directions_are_unit_vectors_from_each_moment_to_the_next():
    rows = snapshots()
    features = direction_features(rows)
    assert features.shape == (7, 12)
    for user in range(7):
        for step in range(4):
            way = rows[step + 1, user] - rows[step, user]
            np.testing.assert_allclose(features[user, 3 * step : 3 * step + 3], way / np.sqrt(way @ way))


def test_directions_tell_neither_place_nor_distance():
    rows = snapshots()
    place = np.random.default_rng(1).normal(size=(7, 3))
    pace = np.array([0.5, 3.0, 1e-200, 7.0])[:, None, None]
    moved = place + np.concatenate([np.zeros((1, 7, 3)), np.cumsum(np.diff(rows, axis=0), axis=0)])
    np.testing.assert_allclose(direction_features(moved), direction_features(rows), rtol=1e-9)
    for step in range(4):
        here = np.zeros((7, 3))
        there = pace[step] * (rows[step + 1] - rows[step])
        np.testing.assert_allclose(
            one_step_direction(here, there), direction_features(rows)[:, 3 * step : 3 * step + 3], rtol=1e-9
        )


def test_a_row_that_stands_still_has_no_direction():
    rows = np.repeat(snapshots(moments=1), 3, axis=0)
    assert not direction_features(rows).any()


def test_a_push_that_depends_on_the_label_shows_on_the_way_where_the_end_tells_nothing():
    draws = np.random.default_rng(0)
    labels = np.arange(200) % 2
    end = draws.normal(size=(200, 4))
    push = np.where(labels[:, None] == 1, 1.0, -1.0) * np.array([1.0, 0, 0, 0])
    moments = np.stack([end - 0.3 * left * push + 0.1 * draws.normal(size=end.shape) for left in (4, 3, 2, 1)] + [end])
    options = {"attribute": "label", "classes": ("a", "b"), "attackers": ("logistic",), "seeds": (0,)}
    features = {
        "end": end,
        "trajectory": trajectory_features(moments),
        "directions": direction_features(moments),
        "one step": one_step_direction(moments[0], moments[1]),
    }
    found = {name: infer_attribute(x, labels, **options)[0].balanced_accuracy.mean for name, x in features.items()}
    assert abs(found["end"] - 0.5) < 0.1
    assert min(found["trajectory"], found["directions"], found["one step"]) > 0.9


def test_what_is_no_trajectory_is_refused():
    with pytest.raises(AttackError, match=r"shape \(T, n, width\) with T at least 1, not \(7, 3\)"):
        trajectory_features(snapshots()[0])
    with pytest.raises(AttackError, match=r"T at least 2, not \(1, 7, 3\)"):
        direction_features(snapshots(moments=1))
    with pytest.raises(AttackError, match=r"before have shape \(7, 3\), after \(6, 3\)"):
        one_step_direction(snapshots()[0], snapshots()[0, :6])
    broken = snapshots()
    broken[2, 4, 1] = np.inf
    with pytest.raises(AttackError, match="user 4 is NaN or infinite at moment 2"):
        trajectory_features(broken)
