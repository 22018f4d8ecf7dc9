"""Dropout from coordinates: what torch's own does on average, the same again whenever it is asked."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedrec_unlearn.errors import ModelError
from fedrec_unlearn.recbole.randomness import CountedDropout, pair_keys


def keys(n: int = 400, round_number: int = 0, epoch: int = 0, seed: int = 1) -> torch.Tensor:
    place = torch.arange(n)
    return pair_keys(seed, round_number, epoch, place // 20, place % 20, 20)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_units_are_dropped_with_their_probability_and_the_mean_stays(p: float) -> None:
    x = torch.ones(4000, 25)
    with CountedDropout(keys(4000)):
        y = nn.Dropout(p)(x)
    # five standard errors of 100,000 draws
    assert float((y == 0).float().mean()) == pytest.approx(p, abs=5 * (p * (1 - p) / 1e5) ** 0.5)
    assert float(y.max()) == pytest.approx(1 / (1 - p), rel=1e-3)
    columns = (y == 0).double()
    between = torch.corrcoef(columns.T) - torch.eye(25)
    assert float(between.abs().max()) < 5 / 4000**0.5


def test_the_same_coordinates_give_the_same_mask_and_others_do_not() -> None:
    x = torch.ones(400, 16)

    def masked(at: torch.Tensor) -> torch.Tensor:
        with CountedDropout(at):
            return functional.dropout(x, 0.5)

    one = masked(keys())
    assert torch.equal(one, masked(keys()))
    for other in (keys(round_number=1), keys(epoch=1), keys(seed=2)):
        share = float((masked(other) == one).float().mean())
        assert share == pytest.approx(0.5, abs=5 * 0.5 / 6400**0.5)


def test_two_calls_in_one_pass_have_masks_of_their_own() -> None:
    x = torch.ones(400, 16)
    with CountedDropout(keys()):
        one, two = functional.dropout(x, 0.5), functional.dropout(x, 0.5)
    assert float((one == two).float().mean()) == pytest.approx(0.5, abs=5 * 0.5 / 6400**0.5)


def test_a_pair_keeps_its_mask_whatever_stands_beside_it() -> None:
    x, at = torch.ones(400, 10), keys()
    with CountedDropout(at):
        whole = functional.dropout(x, 0.3)
    with CountedDropout(at[100:150]):
        part = functional.dropout(x[100:150], 0.3)
    assert torch.equal(whole[100:150], part)
    each = torch.func.vmap(_drop)(at.view(20, 20), x.view(20, 20, 10))
    assert torch.equal(whole.view(20, 20, 10), each)


def _drop(at: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    with CountedDropout(at):
        return functional.dropout(x, 0.3)


def test_the_global_generator_is_neither_used_nor_moved() -> None:
    torch.manual_seed(4)
    before = torch.get_rng_state()
    with CountedDropout(keys()):
        nn.Dropout(0.5)(torch.ones(400, 3))
    assert torch.equal(before, torch.get_rng_state())


def test_gradients_flow_through_what_is_kept() -> None:
    x = torch.ones(400, 8, requires_grad=True)
    with CountedDropout(keys()):
        y = nn.Dropout(0.25)(x)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach())


def test_evaluation_and_a_rate_of_zero_drop_nothing() -> None:
    x = torch.randn(400, 5)
    with CountedDropout(keys()):
        assert torch.equal(nn.Dropout(0.5).eval()(x), x)
        assert torch.equal(nn.Dropout(0.0)(x), x)
        assert float(nn.Dropout(1.0)(x).abs().sum()) == 0.0


def test_attention_drops_by_pair_too() -> None:
    attention = nn.MultiheadAttention(6, 2, dropout=0.4)
    torch.manual_seed(0)
    x = torch.randn(3, 400, 6)  # fields first, as RecBole's AutoInt has them
    with CountedDropout(keys()):
        whole = attention(x, x, x)[0]
    with CountedDropout(keys()[50:90]):
        part = attention(*[x[:, 50:90]] * 3)[0]
    assert torch.allclose(whole[:, 50:90], part, atol=1e-6)
    with CountedDropout(keys(round_number=1)):
        assert not torch.allclose(attention(x, x, x)[0], whole, atol=1e-3)


def test_what_cannot_be_repeated_is_refused() -> None:
    with CountedDropout(keys()), pytest.raises(ModelError, match="draws random numbers"):
        torch.rand(3)
    with CountedDropout(keys()), pytest.raises(ModelError, match="no row for each of 400 pairs; set its dropout to 0"):
        functional.dropout(torch.ones(7, 3), 0.5)
    fused = nn.MultiheadAttention(6, 2, dropout=0.4)
    x = torch.randn(3, 400, 6)
    with CountedDropout(keys()), pytest.raises(ModelError, match="set its attention dropout to 0"):
        fused(x, x, x, need_weights=False)
