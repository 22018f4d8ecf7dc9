from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.federation.contribution import ClientUpdate, Contribution, quantise
from fedrec_unlearn.federation.vectorised import VectorisedEngine

M, W, BITS = 9, 3, 24


def empty(bits: int | None, row_weight: bool = True) -> Contribution:
    dtype = torch.float32 if bits is None else torch.float64
    tables = torch.zeros(M, W, dtype=dtype), {"bias": torch.zeros(1, dtype=dtype), "w": torch.zeros(2, 2, dtype=dtype)}
    return Contribution.zeros(*tables, row_weight=row_weight, fraction_bits=bits)


def some_update(seed: int, bits: int | None) -> ClientUpdate:
    rng = np.random.default_rng(seed)
    ids = rng.choice(M, rng.integers(1, M + 1), replace=False)

    def numbers(*shape: int) -> torch.Tensor:
        drawn = torch.from_numpy(rng.normal(size=shape))
        return drawn.float() if bits is None else quantise(drawn, bits)

    return ClientUpdate(
        torch.from_numpy(ids), numbers(len(ids), W), {"bias": numbers(1), "w": numbers(2, 2)}, float(rng.integers(1, 9))
    )


def of_client(seed: int, bits: int | None) -> Contribution:
    made = empty(bits)
    update = some_update(seed, bits)
    made.add_update(update)
    made.weight, made.clients = update.weight, 1
    made.interactions, made.bytes_up, made.bytes_down = seed, 2 * seed, 3 * seed
    made.loss = 0.5 * seed if bits is None else seed
    return made


def numbers_of(c: Contribution) -> tuple[Any, ...]:
    return c.weight, c.clients, c.interactions, c.loss, c.bytes_up, c.bytes_down, c.fraction_bits


def assert_same(a: Contribution, b: Contribution, *, exact: bool) -> None:
    def check(x: torch.Tensor, y: torch.Tensor) -> None:
        assert torch.equal(x, y) if exact else torch.allclose(x, y, rtol=1e-5, atol=1e-6)

    check(a.items, b.items)
    assert a.row_weight is not None
    assert b.row_weight is not None
    check(a.row_weight, b.row_weight)
    assert a.dense.keys() == b.dense.keys()
    for name, value in a.dense.items():
        check(value, b.dense[name])
    assert numbers_of(a) == pytest.approx(numbers_of(b))


@pytest.mark.parametrize("bits", [None, BITS])
def test_contributions_add_in_any_order_and_grouping(bits: int | None) -> None:
    a, b, c = (of_client(seed, bits) for seed in (1, 2, 3))
    for other in ((a + b) + c, a + (b + c), c + (b + a), (empty(bits) + c) + (a + b)):
        assert_same((a + b) + c, other, exact=bits is not None)
    assert a.clients == 1
    assert (a + b).clients == 2
    assert (a + b).interactions == 3


@given(st.permutations(list(range(1, 9))), st.integers(1, 8))
def test_ring_sums_do_not_depend_on_order_or_cut(order: list[int], cut: int) -> None:
    parts = [of_client(seed, BITS) for seed in order]
    left, right = empty(BITS), empty(BITS)
    for part in parts[:cut]:
        left = left + part
    for part in parts[cut:]:
        right = part + right
    straight = empty(BITS)
    for seed in range(1, 9):
        straight = straight + of_client(seed, BITS)
    assert_same(left + right, straight, exact=True)


def test_a_sum_of_clients_is_their_updates_at_their_rows() -> None:
    updates = [some_update(seed, None) for seed in range(5)]
    total = empty(None)
    for update in updates:
        total.add_update(update)
    rows, weight = torch.zeros(M, W), torch.zeros(M, dtype=torch.float64)
    for update in updates:
        for item, row in zip(update.item_ids.tolist(), update.item_rows, strict=True):
            rows[item] += row
            weight[item] += update.weight
    torch.testing.assert_close(total.items, rows)
    assert total.row_weight is not None
    torch.testing.assert_close(total.row_weight, weight)
    torch.testing.assert_close(total.dense["w"], sum(u.dense["w"] for u in updates))


def test_contributions_of_different_kinds_do_not_add() -> None:
    with pytest.raises(TransportError, match="number formats"):
        of_client(1, BITS) + of_client(1, None)
    with pytest.raises(TransportError, match="number formats"):
        of_client(1, BITS) + of_client(1, BITS - 1)
    for a, b in ((empty(None), empty(None, row_weight=False)), (empty(None, row_weight=False), empty(None))):
        with pytest.raises(TransportError, match="different models or aggregations"):
            a + b


def test_mean_loss_is_per_interaction_and_unknown_without_any() -> None:
    total = of_client(4, None) + of_client(6, None)
    assert total.mean_loss == pytest.approx((2.0 + 3.0) / 10)
    ring = empty(8)
    ring.loss, ring.interactions = 3 * 256, 6
    assert ring.mean_loss == 0.5
    assert np.isnan(empty(None).mean_loss)


def test_fixed_point_rounds_to_the_nearest_multiple() -> None:
    values = torch.tensor([0.0, 1.0, -1.0, 0.3, -0.3, 2.0**-9, 1000.123], dtype=torch.float64)
    fixed = quantise(values, 8)
    assert fixed.dtype == torch.int64
    assert fixed.tolist() == [round(v * 256) for v in values.tolist()]
    assert float((fixed * 2.0**-8 - values).abs().max()) <= 2.0**-9
    assert quantise(values[:0], 8).tolist() == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 2.0**18, -(2.0**18)])
def test_fixed_point_refuses_what_it_cannot_hold_and_names_the_options(value: float) -> None:
    with pytest.raises(TransportError, match=r"training has diverged, lower federation\.user_learning_rate"):
        quantise(torch.tensor([0.5, value], dtype=torch.float64), 24)


def test_a_million_of_the_largest_fixed_point_numbers_fit_into_the_sum() -> None:
    largest = quantise(torch.tensor([2.0**18 - 2.0**-24], dtype=torch.float64), 24)
    total = largest * 1_000_000
    assert total.item() == largest.item() * 1_000_000  # in Python's unbounded integers


@pytest.mark.parametrize("model", ["mf", "ncf", "deepfm"])
def test_a_diverging_client_is_told_in_ring_mode(make_federation: Callable[..., Any], model: str) -> None:
    made = make_federation(model, ring=True, clients_per_round=0)
    made.state.private[4] = float("nan")
    with pytest.raises(TransportError, match="training has diverged"):
        VectorisedEngine(made.work).train_clients(made.state, made.work.eligible(), 0)
