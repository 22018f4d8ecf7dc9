"""Draws that belong to users: the law they follow, and that company does not change them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm

from fedrec_unlearn.seeds import hash_counters
from fedrec_unlearn.unlearning.draws import draw_normals


def test_draws_of_a_user_do_not_depend_on_who_else_is_in_the_block() -> None:
    users = torch.tensor([7, 3, 1_000_000, 0, 12])
    together = draw_normals(5, users, 11)
    assert together.shape == (5, 11)
    for i in range(len(users)):
        assert torch.equal(draw_normals(5, users[i : i + 1], 11)[0], together[i])
    order = torch.tensor([4, 0, 2, 1, 3])
    assert torch.equal(draw_normals(5, users[order], 11), together[order])


def test_draws_differ_between_keys_and_users() -> None:
    users = torch.arange(50)
    first = draw_normals(1, users, 8)
    assert not torch.isclose(first, draw_normals(2, users, 8)).any(1).all()
    assert len(torch.unique(first, dim=0)) == 50


def test_draws_are_standard_normal_and_independent() -> None:
    numbers = draw_normals(9, torch.arange(20_000), 5).numpy()
    assert kstest(numbers.ravel(), "norm").pvalue > 1e-3
    assert np.abs(np.corrcoef(numbers.T) - np.eye(5)).max() < 0.03
    assert np.abs(np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]) < 0.03
    assert abs(numbers.mean()) < 0.02
    assert abs(numbers.var() - 1) < 0.02
    assert np.abs(numbers).max() > 4


def test_a_draw_is_the_quantile_that_sixteen_bits_of_the_hash_pick() -> None:
    users = [4, 0, 99, 2**33]
    words = hash_counters(3, np.array([[user * 2 + k for k in range(2)] for user in users]))
    pieces = words.astype("<u8").view("<u2").reshape(4, 8)[:, :7]
    expected = norm.ppf((pieces + 0.5) / 2**16)
    np.testing.assert_allclose(draw_normals(3, torch.tensor(users), 7).numpy(), expected, rtol=2e-5)


@pytest.mark.parametrize(("users", "n"), [(3, 0), (0, 4)])
def test_nothing_to_draw(users: int, n: int) -> None:
    assert draw_normals(1, torch.arange(users), n).shape == (users, n)


def test_dtype_is_that_asked_for() -> None:
    users = torch.arange(4)
    single, double = draw_normals(1, users, 6, torch.float32), draw_normals(1, users, 6)
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    assert torch.equal(single, double.float())
