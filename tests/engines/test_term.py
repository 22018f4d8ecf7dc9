"""The engines with an adversarial term: the fast one against the reference, ring mode bit for bit."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedrec_unlearn.config import Config, FederationConfig, ModelConfig
from fedrec_unlearn.config_unlearn import UnlearnConfig
from fedrec_unlearn.data import MISSING, Attribute, UserItems
from fedrec_unlearn.errors import RunError, TransportError
from fedrec_unlearn.federation.checkpoint import Standing, load_state, save_state
from fedrec_unlearn.federation.cohort import Cohorts
from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.engine import Workload
from fedrec_unlearn.federation.local_data import ClientData
from fedrec_unlearn.federation.reference import ReferenceEngine
from fedrec_unlearn.federation.state import RunState, apply_contribution, initial_state
from fedrec_unlearn.federation.transport import make_transport
from fedrec_unlearn.federation.vectorised import VectorisedEngine
from fedrec_unlearn.models import make_model, make_objective
from fedrec_unlearn.unlearning.adversarial import AdversarialTerm

N_USERS, N_ITEMS, SEED = 23, 40, 3
MODELS = ("mf", "ncf", "fm", "deepfm", "pfedrec")


def train_items() -> UserItems:
    rng = np.random.default_rng(5)
    sizes = [0, 1, N_ITEMS, N_ITEMS - 1, *rng.integers(2, 20, N_USERS - 4)]
    user = np.repeat(np.arange(N_USERS), sizes)
    item = np.concatenate([rng.choice(N_ITEMS, size, replace=False) for size in sizes])
    return UserItems.from_pairs(user, item, N_USERS, N_ITEMS, rng.integers(1, 6, len(user)).astype(float))


def attributes() -> list[Attribute]:
    """Two attributes that different users leave unanswered."""
    rng = np.random.default_rng(6)
    gender, age = rng.integers(0, 2, N_USERS), rng.integers(0, 3, N_USERS)
    gender[rng.random(N_USERS) < 0.2] = MISSING
    age[rng.random(N_USERS) < 0.3] = MISSING
    return [Attribute("gender", ("F", "M"), gender), Attribute("age", ("young", "middle", "old"), age)]


def workload(model: str, unlearn: dict[str, Any], **options: Any) -> tuple[Workload, RunState, Config]:
    federation = FederationConfig(
        **{
            "clients_per_round": 9,
            "client_learning_rate": 0.1,
            "user_learning_rate": 0.2,
            "server_optimizer": "sgd",
            "server_learning_rate": 1.0,
            **options,
        }
    )
    told = {"attributes": ("gender", "age"), "method": "fedau2", "epsilon": 0.5, **unlearn}
    config = Config(
        seed=SEED,
        model=ModelConfig(name=model, embedding_dim=6, hidden_sizes=(8, 5), init_std=0.3),  # type: ignore[arg-type]
        federation=federation,
        unlearn=UnlearnConfig(hidden_size=7, latent_size=5, client_learning_rate=0.2, server_learning_rate=0.5, **told),
    )
    recommender = make_model(config.model, N_USERS, N_ITEMS)
    dtype = torch.float64 if federation.ring else torch.float32
    device = torch.device("cpu")
    term = AdversarialTerm.of(config.unlearn, attributes(), recommender.user_layout.width, SEED, device, dtype)
    work = Workload(
        recommender,
        make_objective(federation),
        ClientData(train_items(), device, dtype, rating_mean=3.0),
        federation,
        config.seed,
        make_transport(federation.transport, N_ITEMS),
        term=term,
    )
    state = initial_state(recommender, config, device, 3.0)
    state.server.add_term(term.initial(SEED), federation)
    parameters = {**state.server.dense, **state.server.term}
    for index, (name, value) in enumerate(parameters.items()):
        if name.endswith("bias"):  # away from zero, where a ReLU of rounding noise could go either way
            draw = torch.randn(value.shape, generator=torch.Generator().manual_seed(index), dtype=torch.float64)
            value += draw.to(value) * 0.2
    return work, state, config


def run(engine: Any, work: Workload, state: RunState, config: Config, rounds: int = 4) -> list[Contribution]:
    cohorts = Cohorts(work.eligible(), config.federation, config.seed)
    log = []
    for round_number in range(rounds):
        sums = engine.train_clients(state, cohorts.of(round_number), round_number)
        apply_contribution(state.server, sums, config.federation, config.unlearn.server_learning_rate)
        log.append(sums)
    return log


def tensors(state: RunState) -> dict[str, torch.Tensor]:
    return {"private": state.private, **state.server.parameters(), **state.server.moments}


def compare(model: str, unlearn: dict[str, Any], **options: Any) -> None:
    """Run both engines and compare states, sizes and what the adversaries report."""
    work, slow, config = workload(model, unlearn, **options)
    _, fast, _ = workload(model, unlearn, **options)
    before = {name: value.clone() for name, value in tensors(slow).items()}
    slow_log = run(ReferenceEngine(work), work, slow, config)
    fast_log = run(VectorisedEngine(work), work, fast, config)
    for name, value in tensors(slow).items():
        assert torch.isfinite(value).all()
        torch.testing.assert_close(
            value, tensors(fast)[name], rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
    for name in slow.server.term:
        assert not torch.equal(before[f"term.{name}"], slow.server.term[name])
    for a, b in zip(slow_log, fast_log, strict=True):
        assert (a.bytes_up, a.bytes_down, a.clients) == (b.bytes_up, b.bytes_down, b.clients)
        assert a.term_sums.keys() == {"gender", "age"}
        for group, sums in a.term_sums.items():
            other = b.term_sums[group]
            assert (sums.weight, sums.known, sums.correct) == (other.weight, other.known, other.correct)
            assert sums.loss == pytest.approx(other.loss, rel=1e-5)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("local_epochs", [1, 3])
def test_engines_agree_with_dsvae_and_trigger(model: str, local_epochs: int) -> None:
    compare(model, {}, local_epochs=local_epochs, l2=0.01)


@pytest.mark.parametrize("local_epochs", [1, 2])
@pytest.mark.parametrize(
    "unlearn",
    [
        {"method": "grl"},
        {"method": "grl_sut"},
        {"adversary": "vae"},
        {"head": "logit"},
        {"head": "none"},
        {"trigger": "continuous"},
        {"silent_when_wrong": True},
        {"secure_sums": False},
        {"class_weighting": "none"},
    ],
)
def test_engines_agree_under_every_unlearning_option(local_epochs: int, unlearn: dict[str, Any]) -> None:
    compare("mf", unlearn, local_epochs=local_epochs)


@pytest.mark.parametrize(
    "option", [{"objective": "bce"}, {"objective": "bce", "num_negatives": 3}, {"transport": "sparse"}]
)
def test_engines_agree_beside_other_options(option: dict[str, Any]) -> None:
    compare("ncf", {}, local_epochs=2, **option)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("local_epochs", [1, 3])
def test_ring_mode_is_the_same_bits_in_any_block_and_engine(model: str, local_epochs: int) -> None:
    states, logs = [], []
    for block_mib in (0.0005, 0.02, 100.0, None):
        work, state, config = workload(
            model, {}, ring=True, local_epochs=local_epochs, block_mib=block_mib or 0.0, l2=0.01
        )
        engine = ReferenceEngine(work) if block_mib is None else VectorisedEngine(work)
        logs.append(run(engine, work, state, config))
        states.append(tensors(state))
    for other, log in zip(states[1:], logs[1:], strict=True):
        for name, value in states[0].items():
            assert torch.equal(value, other[name]), name
        for a, b in zip(logs[0], log, strict=True):
            assert a.term_sums == b.term_sums


@pytest.mark.parametrize("local_epochs", [1, 3])
def test_block_size_does_not_matter(local_epochs: int) -> None:
    states = []
    for block_mib in (0.0005, 100.0):
        work, state, config = workload("mf", {}, local_epochs=local_epochs, block_mib=block_mib, clients_per_round=0)
        run(VectorisedEngine(work), work, state, config)
        states.append(tensors(state))
    for name, value in states[0].items():
        torch.testing.assert_close(value, states[1][name], rtol=1e-5, atol=1e-5)


def test_the_term_moves_rows_and_draws_of_negatives_stay() -> None:
    """Against a run without strength: rows differ, the recommender's own first contribution does not."""
    firsts, rows = [], []
    for epsilon in (0.0, 0.5):
        work, state, config = workload("mf", {"epsilon": epsilon, "trigger": "always"}, local_epochs=1)
        firsts.append(run(VectorisedEngine(work), work, state, config, rounds=1)[0])
        rows.append(state.private)
    assert torch.equal(firsts[0].items, firsts[1].items)
    assert not torch.equal(rows[0], rows[1])


@pytest.mark.parametrize("model", ["mf", "ncf"])
def test_labels_and_rows_stay_out_of_the_contribution(model: str) -> None:
    """What a contribution holds of a term: sums of its parameters' updates, counts and two metrics."""
    work, state, config = workload(model, {}, local_epochs=1)
    sums = run(VectorisedEngine(work), work, state, config, rounds=1)[0]
    assert {name: tuple(value.shape) for name, value in sums.term.items()} == work.term.shapes  # type: ignore[union-attr]
    for group in sums.term_sums.values():
        assert all(isinstance(value, int | float) for value in vars(group).values())


# ------------------------------------------------------------------------------------------------ the server's side


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("silent", [(), ("gender",), ("age",), ("gender", "age")])
def test_the_server_steps_each_group_by_its_own_mean(optimizer: str, silent: tuple[str, ...]) -> None:
    """Against torch's optimisers on tensors by name; a group nobody trained stands still, moments and all."""
    work, state, config = workload("mf", {}, server_optimizer=optimizer)
    run(VectorisedEngine(work), work, state, config, rounds=1)  # so that moments are not zero
    rate, options = 0.5, config.federation
    leaves = {name: value.clone().requires_grad_() for name, value in state.server.term.items()}
    if optimizer == "adam":
        oracle: torch.optim.Optimizer = torch.optim.Adam(
            leaves.values(), lr=rate, betas=options.adam_betas, eps=options.adam_epsilon
        )
        moments = state.server.named_moments()
        for name, leaf in leaves.items():
            oracle.state[leaf] = {
                "step": torch.tensor(float(state.server.term_steps)),
                "exp_avg": moments[f"first.term.{name}"].clone(),
                "exp_avg_sq": moments[f"second.term.{name}"].clone(),
            }
    else:
        oracle = torch.optim.SGD(leaves.values(), lr=rate)
    before = {name: value.clone() for name, value in tensors(state).items()}
    sums = VectorisedEngine(work).train_clients(state, work.eligible(), 5)
    for group, told in sums.term_sums.items():
        if group in silent:
            told.weight = 0.0
    for name, leaf in leaves.items():
        group = name.split(".")[0]
        leaf.grad = None if group in silent else sums.term[name] / sums.term_sums[group].weight
    oracle.step()
    apply_contribution(state.server, sums, options, rate)
    for name, leaf in leaves.items():
        torch.testing.assert_close(state.server.term[name], leaf.detach(), rtol=1e-5, atol=1e-6)
        moved = not torch.equal(state.server.term[name], before[f"term.{name}"])
        assert moved == (name.split(".")[0] not in silent)
    if optimizer == "adam":
        for name, value in state.server.named_moments().items():
            if ".term." in name:
                order, _, parameter = name.split(".", 2)
                known = oracle.state[leaves[parameter]]["exp_avg" if order == "first" else "exp_avg_sq"]
                torch.testing.assert_close(value, known)


def test_an_update_of_the_adversaries_that_is_not_finite_is_told_with_their_options() -> None:
    work, state, config = workload("mf", {})
    sums = VectorisedEngine(work).train_clients(state, work.eligible(), 0)
    sums.term.flat[3] = torch.nan
    with pytest.raises(RunError, match=r"the adversaries is not finite.*unlearn\.server_learning_rate"):
        apply_contribution(state.server, sums, config.federation, 0.5)


def test_contributions_with_a_term_add_up() -> None:
    work, state, _ = workload("mf", {})
    users = work.eligible()
    whole = VectorisedEngine(work).train_clients(copy.deepcopy(state), users, 2)
    parts = [VectorisedEngine(work).train_clients(copy.deepcopy(state), half, 2) for half in (users[:7], users[7:])]
    both = parts[0] + parts[1]
    torch.testing.assert_close(both.term.flat, whole.term.flat, rtol=1e-5, atol=1e-6)
    assert both.term_sums["age"].known == whole.term_sums["age"].known
    plain, _, _ = workload("mf", {"attributes": ("age",)})
    with pytest.raises(TransportError, match="different models"):
        _ = parts[0] + replace(plain, term=None).empty(state.server)


# ------------------------------------------------------------------------------------------------ kept and read


@pytest.mark.parametrize("options", [{}, {"server_optimizer": "adam"}, {"ring": True, "server_optimizer": "adam"}])
def test_a_state_with_a_term_comes_back_and_goes_on_bit_for_bit(tmp_path: Path, options: dict[str, Any]) -> None:
    work, state, config = workload("mf", {}, **options)
    engine = VectorisedEngine(work)
    run(engine, work, state, config, rounds=2)
    path = tmp_path / "s.safetensors"
    save_state(path, state, Standing())
    assert work.term is not None
    again, _ = load_state(path, work.model, torch.device("cpu"), work.term.shapes)
    assert again.server.term_steps == 2
    for _ in range(2):
        for name, value in tensors(state).items():
            assert torch.equal(tensors(again)[name], value), name
        for one in (state, again):
            run(engine, work, one, config, rounds=2)


def test_a_checkpoint_names_each_layer_and_its_moments(tmp_path: Path) -> None:
    work, state, config = workload("mf", {}, server_optimizer="adam")
    run(VectorisedEngine(work), work, state, config, rounds=1)
    save_state(tmp_path / "s.safetensors", state, Standing())
    found = load_file(tmp_path / "s.safetensors")
    assert work.term is not None
    for name, shape in work.term.shapes.items():
        for prefix in ("term", "moment.first.term", "moment.second.term"):
            assert tuple(found[f"{prefix}.{name}"].shape) == shape


def test_a_checkpoint_of_other_adversaries_is_refused(tmp_path: Path) -> None:
    work, state, _ = workload("mf", {}, server_optimizer="adam")
    save_state(tmp_path / "s.safetensors", state, Standing())
    assert work.term is not None
    wider = {name: (*shape[:-1], shape[-1] + 1) for name, shape in work.term.shapes.items()}
    with pytest.raises(RunError, match="has shape"):
        load_state(tmp_path / "s.safetensors", work.model, torch.device("cpu"), wider)
    with pytest.raises(RunError, match="do not fit together"):
        load_state(tmp_path / "s.safetensors", work.model, torch.device("cpu"))


def test_a_copy_without_the_term_keeps_the_recommender_and_shares_nothing() -> None:
    work, state, config = workload("mf", {}, server_optimizer="adam")
    run(VectorisedEngine(work), work, state, config, rounds=1)
    bare = state.server.copy_without_term()
    assert not bare.term
    assert bare.moments.keys() == {"first.items", "second.items"}
    kept = bare.items.clone()
    state.server.items.add_(1.0)
    assert torch.equal(bare.items, kept)
    assert state.server.term
