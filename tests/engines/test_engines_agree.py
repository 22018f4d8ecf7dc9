"""The vectorised engine against the reference engine, for every model, objective and mode."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from fedrec_unlearn.config import Config, FederationConfig, ModelConfig
from fedrec_unlearn.data.types import UserItems
from fedrec_unlearn.federation.cohort import Cohorts
from fedrec_unlearn.federation.engine import Workload
from fedrec_unlearn.federation.local_data import ClientData
from fedrec_unlearn.federation.reference import ReferenceEngine
from fedrec_unlearn.federation.state import RunState, apply_contribution, initial_state
from fedrec_unlearn.federation.transport import make_transport
from fedrec_unlearn.federation.vectorised import VectorisedEngine
from fedrec_unlearn.models import make_model, make_objective

N_USERS, N_ITEMS, FIELDS = 23, 40, (3, 4)
MODELS = ("mf", "ncf", "fm", "deepfm", "pfedrec")


def train_items() -> UserItems:
    """Users with very different numbers of items: none, one, nearly all, all."""
    rng = np.random.default_rng(5)
    sizes = [0, 1, N_ITEMS, N_ITEMS - 1, *rng.integers(2, 20, N_USERS - 4)]
    user = np.repeat(np.arange(N_USERS), sizes)
    item = np.concatenate([rng.choice(N_ITEMS, size, replace=False) for size in sizes])
    rating = rng.integers(1, 6, len(user)).astype(float)
    return UserItems.from_pairs(user, item, N_USERS, N_ITEMS, rating)


def workload(model: str, features: bool = False, **options: object) -> tuple[Workload, RunState, Config]:
    federation = FederationConfig(
        **{"clients_per_round": 9, "client_learning_rate": 0.1, "user_learning_rate": 0.2, **options}
    )  # type: ignore[arg-type]
    evaluation = dataclasses.replace(
        Config().evaluation, select_by="rmse" if federation.objective == "mse" else "ndcg@10"
    )
    config = Config(
        seed=3,
        model=ModelConfig(name=model, embedding_dim=6, hidden_sizes=(8, 5), init_std=0.3),  # type: ignore[arg-type]
        federation=federation,
        evaluation=evaluation,
    )
    recommender = make_model(config.model, N_USERS, N_ITEMS, FIELDS if features else ())
    dtype = torch.float64 if federation.ring else torch.float32
    table = None
    if features:
        draw = torch.rand((N_ITEMS, sum(FIELDS)), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        table = (draw > 0.5).to(dtype) / 2
    clients = ClientData(train_items(), torch.device("cpu"), dtype, rating_mean=3.0)
    transport = make_transport(federation.transport, N_ITEMS)
    work = Workload(recommender, make_objective(federation), clients, federation, config.seed, transport, table)
    state = initial_state(recommender, config, torch.device("cpu"), 3.0)
    for name, value in state.server.dense.items():
        if name.endswith("bias"):  # away from zero, where a ReLU of rounding noise could go either way
            value += (
                torch.randn(value.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(value)
                * 0.2
            )
    return work, state, config


def run(engine: object, work: Workload, state: RunState, config: Config, rounds: int = 4) -> list[tuple[object, ...]]:
    cohorts = Cohorts(work.eligible(), config.federation, config.seed)
    log = []
    for round_number in range(rounds):
        sums = engine.train_clients(state, cohorts.of(round_number), round_number)  # type: ignore[attr-defined]
        apply_contribution(state.server, sums, config.federation)
        log.append((sums.clients, sums.interactions, sums.weight, sums.bytes_up, sums.bytes_down, sums.mean_loss))
    return log


def tensors(state: RunState) -> dict[str, torch.Tensor]:
    return {"private": state.private, **state.server.parameters(), **state.server.moments}


def both(model: str, features: bool = False, **options: object) -> tuple[RunState, RunState]:
    work, slow, config = workload(model, features, **options)
    _, fast, _ = workload(model, features, **options)
    slow_log = run(ReferenceEngine(work), work, slow, config)
    fast_log = run(VectorisedEngine(work), work, fast, config)
    for a, b in zip(slow_log, fast_log, strict=True):
        assert a[:5] == b[:5]
        assert a[5] == pytest.approx(b[5], rel=1e-5)
    return slow, fast


def assert_close(slow: RunState, fast: RunState) -> None:
    for name, value in tensors(slow).items():
        other = tensors(fast)[name]
        assert torch.isfinite(value).all()
        torch.testing.assert_close(value, other, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("objective", ["bpr", "bce", "mse"])
@pytest.mark.parametrize("local_epochs", [1, 3])
def test_engines_agree(model: str, objective: str, local_epochs: int) -> None:
    # SGD on the server keeps differences proportional; Adam's first steps would blow up rounding of zeros
    slow, fast = both(
        model, objective=objective, local_epochs=local_epochs, server_optimizer="sgd", server_learning_rate=1.0, l2=0.01
    )
    assert_close(slow, fast)


@pytest.mark.parametrize("model", ["fm", "deepfm"])
@pytest.mark.parametrize("local_epochs", [1, 2])
def test_engines_agree_with_item_features(model: str, local_epochs: int) -> None:
    slow, fast = both(model, True, local_epochs=local_epochs, server_optimizer="sgd", server_learning_rate=1.0)
    assert_close(slow, fast)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "option",
    [
        {"num_negatives": 3},
        {"item_aggregation": "row_mean"},
        {"client_weighting": "uniform"},
        {"client_sampling": "uniform"},
        {"transport": "sparse"},
    ],
)
def test_engines_agree_under_every_option(model: str, option: dict[str, object]) -> None:
    slow, fast = both(model, local_epochs=2, server_optimizer="sgd", server_learning_rate=0.5, **option)
    assert_close(slow, fast)


@pytest.mark.parametrize("model", MODELS)
def test_engines_agree_under_adam(model: str) -> None:
    slow, fast = both(model, local_epochs=1, clients_per_round=0, adam_epsilon=1e-4)
    assert_close(slow, fast)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("local_epochs", [1, 3])
@pytest.mark.parametrize("clients_per_round", [4, 0])
def test_block_size_does_not_matter(model: str, local_epochs: int, clients_per_round: int) -> None:
    states = []
    for block_mib in (0.0005, 0.02, 100.0):
        options = {"local_epochs": local_epochs, "block_mib": block_mib, "clients_per_round": clients_per_round}
        work, state, config = workload(model, server_optimizer="sgd", server_learning_rate=1.0, l2=0.01, **options)
        run(VectorisedEngine(work), work, state, config)
        states.append(state)
    assert_close(states[0], states[1])
    assert_close(states[0], states[2])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("local_epochs", [1, 3])
def test_ring_mode_is_bit_exact_across_engines_and_blocks(model: str, local_epochs: int) -> None:
    options = {"ring": True, "local_epochs": local_epochs, "num_negatives": 2, "l2": 0.01}
    slow, fast = both(model, **options)
    for name, value in tensors(slow).items():
        assert torch.equal(value, tensors(fast)[name]), name
    for block_mib in (0.001, 0.05):
        work, state, config = workload(model, block_mib=block_mib, **options)
        run(VectorisedEngine(work), work, state, config)
        for name, value in tensors(slow).items():
            assert torch.equal(value, tensors(state)[name]), name


def test_ring_mode_contributions_of_silos_add_to_that_of_all() -> None:
    work, state, _ = workload("mf", ring=True, clients_per_round=0)
    users = work.eligible()
    whole = VectorisedEngine(work).train_clients(state, users, 0)
    work, state, _ = workload("mf", ring=True, clients_per_round=0)
    engine = VectorisedEngine(work)
    parts = [engine.train_clients(state, part, 0) for part in np.array_split(users, 7)]
    total = parts[3]
    for part in (*parts[:3], *parts[4:]):
        total = total + part
    assert torch.equal(whole.items, total.items)
    assert (whole.weight, whole.clients, whole.loss, whole.bytes_up) == (
        total.weight,
        total.clients,
        total.loss,
        total.bytes_up,
    )


def test_users_that_cannot_train_are_not_sampled() -> None:
    work, _, _ = workload("mf")
    assert 0 not in work.eligible()  # no item
    assert 2 not in work.eligible()  # no unseen item to compare with
    work, _, _ = workload("mf", objective="mse")
    assert 2 in work.eligible()


def test_private_rows_of_others_do_not_move() -> None:
    work, state, _ = workload("mf")
    before = state.private.clone()
    VectorisedEngine(work).train_clients(state, np.array([4, 7]), 0)
    moved = (state.private != before).any(1)
    assert moved.nonzero().flatten().tolist() == [4, 7]
