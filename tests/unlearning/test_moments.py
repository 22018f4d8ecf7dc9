"""Class-wise moments through fixed point and secure sums against moments taken directly by numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrec_unlearn.data.types import MISSING
from fedrec_unlearn.errors import DataError, ModelError, TransportError
from fedrec_unlearn.federation.secure_sum import SumServer, combine, share
from fedrec_unlearn.unlearning.moments import (
    ClassMoments,
    class_means_from_sum,
    class_message,
    class_moments,
    client_message,
    draw_share,
    joint_labels,
    message_length,
    moments_from_sum,
    products,
)

torch.set_num_threads(1)
BITS = 24


def some_rows(n: int = 60, width: int = 4, n_classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of classes with means and spreads of their own; every seventh user has no known class."""
    draws = np.random.default_rng(seed)
    labels = np.arange(n) % n_classes
    rows = draws.normal(size=(n, width)) * (1.0 + labels[:, None]) + labels[:, None]
    labels = labels.astype(np.int64)
    labels[::7] = MISSING
    return rows, labels


def test_moments_of_the_summed_messages_are_numpys_mean_and_covariance() -> None:
    rows, labels = some_rows()
    total = client_message(rows, labels, 3, BITS).sum(axis=0)
    found = moments_from_sum(total, 3, 4, BITS)
    for k in range(3):
        members = rows[labels == k]
        assert found.counts[k] == len(members)
        np.testing.assert_allclose(found.means[k], members.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(found.covariances[k], np.cov(members.T, bias=True), atol=1e-5)


def test_moments_taken_directly_are_numpys_mean_and_covariance() -> None:
    rows, labels = some_rows(seed=1)
    found = class_moments(rows, labels, 3)
    for k in range(3):
        members = rows[labels == k]
        np.testing.assert_allclose(found.means[k], members.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(found.covariances[k], np.cov(members.T, bias=True), rtol=1e-10, atol=1e-12)


def test_two_servers_open_the_sum_of_the_messages() -> None:
    rows, labels = some_rows(n=12, width=2, n_classes=2)
    messages = client_message(rows, labels, 2, BITS)
    servers = SumServer("a", messages.shape[1], 1), SumServer("b", messages.shape[1], 1)
    for message in messages:
        for server, part in zip(servers, share(message, 1), strict=True):
            server.receive(part)
    opened = combine(servers[0].partial(), servers[1].partial())
    found, direct = moments_from_sum(opened, 2, 2, BITS), class_moments(rows, labels, 2)
    np.testing.assert_array_equal(found.counts, direct.counts)
    np.testing.assert_allclose(found.means, direct.means, atol=1e-6)
    np.testing.assert_allclose(found.covariances, direct.covariances, atol=1e-5)


def test_a_client_writes_into_the_slot_of_its_class_alone() -> None:
    message = client_message(np.array([[0.5, -2.0]]), np.array([1]), 3, 3).reshape(3, -1)
    assert message.dtype == np.int64
    # in eighths: count 1; x = (4, -16); x xᵀ = (0.25, -1, 4) = (2, -8, 32)
    np.testing.assert_array_equal(message[1], [1, 4, -16, 2, -8, 32])
    assert not message[[0, 2]].any()


def test_messages_have_one_length_and_users_without_a_class_send_zeros() -> None:
    rows, labels = some_rows()
    messages = client_message(rows, labels, 3, BITS)
    assert messages.shape == (60, message_length(3, 4 + 10))
    assert not messages[labels == MISSING].any()
    assert messages[labels != MISSING].any(axis=1).all()


def test_rows_of_users_without_a_class_are_not_read() -> None:
    rows = np.array([[1.0, 2.0], [np.nan, np.inf]])
    assert not client_message(rows, np.array([0, MISSING]), 1, BITS)[1].any()


@settings(max_examples=25, deadline=None)
@given(cut=st.integers(0, 30), seed=st.integers(0, 1000))
def test_the_sum_depends_neither_on_blocks_nor_on_order(cut: int, seed: int) -> None:
    rows, labels = some_rows(n=30)
    whole = client_message(rows, labels, 3, BITS).sum(axis=0)
    order = np.random.default_rng(seed).permutation(30)
    parts = (order[:cut], order[cut:])
    pieces = sum(client_message(rows[part], labels[part], 3, BITS).sum(axis=0) for part in parts)
    np.testing.assert_array_equal(pieces, whole)


def test_any_values_can_be_averaged_by_class() -> None:
    values, labels = np.array([[1.0], [3.0], [10.0]]), np.array([0, 0, 1])
    counts, means = class_means_from_sum(class_message(values, labels, 3, BITS).sum(axis=0), 3, BITS)
    np.testing.assert_array_equal(counts, [2, 1, 0])
    np.testing.assert_allclose(means, [[2.0], [10.0], [0.0]])


def test_pooled_moments_are_those_of_all_users_together() -> None:
    rows, labels = some_rows(seed=2)
    known = rows[labels != MISSING]
    moments = class_moments(rows, labels, 3)
    np.testing.assert_allclose(moments.mean, known.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.covariance, np.cov(known.T, bias=True), rtol=1e-10)
    assert moments.weights.sum() == pytest.approx(1.0)


def test_a_worked_case_of_within_and_between() -> None:
    moments = ClassMoments(np.array([1.0, 3.0]), np.array([[0.0], [4.0]]), np.array([[[2.0]], [[6.0]]]))
    assert moments.mean == pytest.approx([3.0])
    assert moments.within.item() == pytest.approx(5.0)  # (2 + 3 · 6) / 4
    assert moments.covariance.item() == pytest.approx(8.0)  # and between: (9 + 3 · 1) / 4


def test_products_are_the_upper_triangle_row_by_row() -> None:
    np.testing.assert_array_equal(products(np.array([[2.0, 3.0, 5.0]])), [[4, 6, 10, 9, 15, 25]])


def test_joint_labels_number_the_combinations_that_occur() -> None:
    gender, age = np.array([0, 1, 1, 0, MISSING, 1]), np.array([2, 0, 0, 2, 1, MISSING])
    joint, n_classes = joint_labels([gender, age], [2, 3])
    np.testing.assert_array_equal(joint, [0, 1, 1, 0, MISSING, MISSING])
    assert n_classes == 2


def test_joint_labels_of_one_attribute_are_its_own() -> None:
    labels = np.array([2, 0, 1, MISSING, 2])
    joint, n_classes = joint_labels([labels], [3])
    np.testing.assert_array_equal(joint, labels)
    assert n_classes == 3


def test_a_users_coin_does_not_depend_on_how_many_users_there_are() -> None:
    few, many = draw_share(7, 50, 0.6), draw_share(7, 5000, 0.6)
    np.testing.assert_array_equal(few, many[:50])
    assert many.mean() == pytest.approx(0.6, abs=0.03)
    assert (draw_share(8, 5000, 0.6) != many).any()
    assert draw_share(7, 50, 1.0).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e9])
def test_a_row_that_does_not_fit_the_fixed_point_is_refused(value: float) -> None:
    with pytest.raises(TransportError, match="not finite or too large for 24 fraction bits"):
        client_message(np.array([[value]]), np.array([0]), 1, BITS)


@pytest.mark.parametrize("label", [3, -2])
def test_a_label_out_of_range_is_refused(label: int) -> None:
    labels = np.array([0, label])
    with pytest.raises(DataError, match=rf"user 1 .* has class {label}"):
        client_message(np.zeros((2, 1)), labels, 3, BITS)
    with pytest.raises(DataError, match=rf"user 1 .* has class {label}"):
        class_moments(np.zeros((2, 1)), labels, 3)


def test_no_class_at_all_is_refused() -> None:
    with pytest.raises(ModelError, match="at least one class"):
        class_moments(np.zeros((2, 1)), np.full(2, MISSING), 0)


def test_sums_that_do_not_fit_are_refused() -> None:
    with pytest.raises(TransportError, match="not one of 2 classes of 3"):
        moments_from_sum(np.zeros(7, dtype=np.int64), 2, 3, BITS)
    with pytest.raises(TransportError, match="no 3 equal slots"):
        class_means_from_sum(np.zeros(7, dtype=np.int64), 3, BITS)
    with pytest.raises(TransportError, match="negative count"):
        class_means_from_sum(np.array([-1, 0]), 1, BITS)


def test_an_empty_class_has_moments_of_zero() -> None:
    rows, labels = np.ones((3, 2)), np.zeros(3, dtype=np.int64)
    for found in (
        class_moments(rows, labels, 2),
        moments_from_sum(client_message(rows, labels, 2, BITS).sum(axis=0), 2, 2, BITS),
    ):
        assert found.counts[1] == 0
        assert not found.means[1].any()
        assert not found.covariances[1].any()
