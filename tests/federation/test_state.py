from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fedrec_unlearn.config import FederationConfig
from fedrec_unlearn.errors import RunError
from fedrec_unlearn.federation.contribution import Contribution, quantise
from fedrec_unlearn.federation.engine import make_engine
from fedrec_unlearn.federation.reference import ReferenceEngine
from fedrec_unlearn.federation.state import RunState, ServerState, apply_contribution, initial_state, mean_update

M, W = 6, 3


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def server(optimizer: str) -> ServerState:
    made = ServerState(numbers(M, W, seed=1), {"bias": numbers(1, seed=2)})
    if optimizer == "adam":
        for name, value in made.parameters().items():
            made.moments[f"first.{name}"] = torch.zeros_like(value)
            made.moments[f"second.{name}"] = torch.zeros_like(value)
    return made


def contribution(seed: int, weight: float, row_weight: torch.Tensor | None = None) -> Contribution:
    made = Contribution.zeros(
        torch.zeros(M, W, dtype=torch.float64), {"bias": torch.zeros(1, dtype=torch.float64)},
        row_weight=row_weight is not None, fraction_bits=None,
    )  # fmt: skip
    made.items, made.dense = numbers(M, W, seed=seed), {"bias": numbers(1, seed=seed + 100)}
    made.weight, made.row_weight, made.clients = weight, row_weight, 1
    return made


def test_the_adam_step_is_torchs_on_the_mean_update() -> None:
    config = FederationConfig(server_learning_rate=0.03, adam_betas=(0.8, 0.95), adam_epsilon=1e-6)
    state = server("adam")
    parameters = [value.clone().requires_grad_() for value in state.parameters().values()]
    oracle = torch.optim.Adam(parameters, lr=0.03, betas=(0.8, 0.95), eps=1e-6)
    for step in range(6):
        given = contribution(10 + step, weight=4.0)
        parameters[0].grad = given.items / 4.0
        parameters[1].grad = given.dense["bias"] / 4.0
        oracle.step()
        apply_contribution(state, given, config)
        for mine, theirs in zip(state.parameters().values(), parameters, strict=True):
            torch.testing.assert_close(mine, theirs.detach(), rtol=1e-12, atol=1e-14)
    assert (state.rounds_done, state.steps) == (6, 6)


def test_the_sgd_step_is_torchs_on_the_mean_update() -> None:
    config = FederationConfig(server_optimizer="sgd", server_learning_rate=0.7)
    state = server("sgd")
    parameters = [value.clone().requires_grad_() for value in state.parameters().values()]
    oracle = torch.optim.SGD(parameters, lr=0.7)
    for step in range(3):
        given = contribution(10 + step, weight=2.5)
        parameters[0].grad, parameters[1].grad = given.items / 2.5, given.dense["bias"] / 2.5
        oracle.step()
        apply_contribution(state, given, config)
        for mine, theirs in zip(state.parameters().values(), parameters, strict=True):
            torch.testing.assert_close(mine, theirs.detach(), rtol=1e-12, atol=1e-14)
    assert not state.moments


@pytest.mark.parametrize("engine", ["reference", "vectorised"])
@pytest.mark.parametrize("model", ["mf", "fm", "ncf"])
@pytest.mark.parametrize("weighting", ["interactions", "uniform"])
def test_sgd_at_step_size_one_averages_the_clients_end_states(
    make_federation: Callable[..., Any], engine: str, model: str, weighting: str
) -> None:
    """McMahan et al. 2017: w ← Σ n_k w_k / n, where a client that lacks a row kept it as it was."""
    made = make_federation(
        model, engine=engine, local_epochs=3, l2=0.02, clients_per_round=0, client_weighting=weighting,
        server_optimizer="sgd", server_learning_rate=1.0,
    )  # fmt: skip
    work, state, before = made.work, made.state, made.state.server
    start_items, start_dense = before.items.double(), {n: v.double() for n, v in before.dense.items()}
    mean_items = torch.zeros_like(start_items)
    mean_dense = {name: torch.zeros_like(value) for name, value in start_dense.items()}
    total = 0.0
    single = ReferenceEngine(work)
    for user in work.eligible().tolist():
        update, _, _, _ = single.train_one(state, user, 0)
        weight = len(made.train.of(user)) if weighting == "interactions" else 1.0
        end = start_items.clone()
        end[update.item_ids] -= update.item_rows.double() / weight
        mean_items += weight * end
        for name, value in start_dense.items():
            mean_dense[name] += weight * (value - update.dense[name].double() / weight)
        total += weight
    sums = make_engine(work).train_clients(state, work.eligible(), 0)
    apply_contribution(state.server, sums, made.config.federation)
    torch.testing.assert_close(state.server.items.double(), mean_items / total, rtol=1e-5, atol=1e-6)
    for name, value in state.server.dense.items():
        torch.testing.assert_close(value.double(), mean_dense[name] / total, rtol=1e-5, atol=1e-6)


def test_row_mean_divides_each_row_by_the_weight_of_those_who_touched_it() -> None:
    row_weight = torch.tensor([1.0, 0.0, 4.0, 2.0, 0.5, 0.0], dtype=torch.float64)
    given = contribution(3, weight=7.5, row_weight=row_weight)
    given.items[row_weight == 0] = 0.0
    found = mean_update(given, "row_mean")
    for row in range(M):
        weight = float(row_weight[row])
        expected = given.items[row] / weight if weight else torch.zeros(W, dtype=torch.float64)
        torch.testing.assert_close(found["items"][row], expected)
    torch.testing.assert_close(found["dense.bias"], given.dense["bias"] / 7.5)


@pytest.mark.parametrize("engine", ["reference", "vectorised"])
@pytest.mark.parametrize("model", ["mf", "ncf"])
@pytest.mark.parametrize("local_epochs", [1, 2])
def test_engines_report_the_weight_of_those_who_touched_each_row(
    make_federation: Callable[..., Any], engine: str, model: str, local_epochs: int
) -> None:
    made = make_federation(model, engine=engine, item_aggregation="row_mean", local_epochs=local_epochs)
    users = made.work.eligible()
    found = make_engine(made.work).train_clients(made.state, users, 2)
    local = made.work.clients.local(torch.from_numpy(users), made.work.seed, 2, 1)
    expected = np.zeros(made.work.model.n_items)
    for owners, items in ((local.pos_owner, local.pos_items), (local.neg_owner, local.neg_items)):
        for owner, item in zip(owners.tolist(), items.tolist(), strict=True):
            expected[item] += len(made.train.of(users[owner]))
    assert found.row_weight is not None
    assert found.row_weight.tolist() == expected.tolist()


def test_ring_sums_are_read_back_in_their_unit() -> None:
    values = numbers(M, W, seed=4)
    given = contribution(3, weight=4.0)
    given.fraction_bits = 20
    given.items = quantise(values, 20)
    given.dense = {"bias": quantise(numbers(1, seed=5), 20)}
    found = mean_update(given, "mean")
    assert found["items"].dtype == torch.float64
    torch.testing.assert_close(found["items"], values / 4.0, rtol=0, atol=2.0**-21)


def test_a_round_of_nobody_counts_and_changes_nothing() -> None:
    state = server("adam")
    kept = {name: value.clone() for name, value in (state.parameters() | state.moments).items()}
    apply_contribution(state, contribution(3, weight=0.0), FederationConfig())
    assert (state.rounds_done, state.steps) == (1, 0)
    for name, value in (state.parameters() | state.moments).items():
        assert torch.equal(value, kept[name])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["items", "dense"])
def test_a_diverged_update_names_the_round_and_the_rates(value: float, where: str) -> None:
    state, given = server("adam"), contribution(3, weight=1.0)
    (given.items if where == "items" else given.dense["bias"]).view(-1)[0] = value
    kept = state.items.clone()
    with pytest.raises(RunError, match=r"round 1: .* diverged; lower federation\.user_learning_rate"):
        apply_contribution(state, given, FederationConfig())
    assert torch.equal(state.items, kept)


@pytest.mark.parametrize("model", ["mf", "deepfm"])
@pytest.mark.parametrize("ring", [False, True])
def test_the_first_state_is_the_models_in_the_modes_number_format(
    make_federation: Callable[..., Any], model: str, ring: bool
) -> None:
    made = make_federation(model, ring=ring)
    state: RunState = initial_state(made.work.model, made.config, torch.device("cpu"), 3.5)
    dtype = torch.float64 if ring else torch.float32
    assert state.rating_mean == 3.5
    assert torch.equal(state.private, made.work.model.initial_user_rows(3, 0.3).to(dtype))
    assert torch.equal(state.server.items, made.work.model.initial_item_rows(3, 0.3).to(dtype))
    assert set(state.server.moments) == {
        f"{order}.{name}" for order in ("first", "second") for name in state.server.parameters()
    }
    assert {value.dtype for value in state.server.moments.values()} == {dtype}
