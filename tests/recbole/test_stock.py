"""Stock models on single clients' rows: the scores, gradients and rounds RecBole's own code gives on whole tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from recbole.data.interaction import Interaction

from fedrec_unlearn.config import Config, FederationConfig
from fedrec_unlearn.data.types import UserItems
from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.engine import Workload, make_engine
from fedrec_unlearn.federation.local_data import ClientData
from fedrec_unlearn.federation.state import RunState, ServerState, apply_contribution
from fedrec_unlearn.federation.transport import make_transport
from fedrec_unlearn.models import Given
from fedrec_unlearn.pipeline.transports import transport_of
from fedrec_unlearn.recbole.binding import Binding, bind
from fedrec_unlearn.recbole.stock import StockRecommender
from tests.recbole.conftest import FEATURES, N_ITEMS, N_USERS, Opened

OpenModel = Callable[..., Opened]

MODELS = {
    "BPR": {},
    "NeuMF": {"dropout_prob": 0.2},
    "FM": {},
    "DeepFM": {"dropout_prob": 0.2, **FEATURES},
    "WideDeep": {"dropout_prob": 0.0, **FEATURES},
    "AutoInt": {"attention_size": 4, "num_heads": 2, "n_layers": 2, "dropout_probs": [0.3, 0.2, 0.1], **FEATURES},
    "xDeepFM": {"cin_layer_size": [4, 4], "reg_weight": 0.0, "dropout_prob": 0.1, **FEATURES},
    "AFM": {"attention_size": 4, "dropout_prob": 0.2, "reg_weight": 0.5, **FEATURES},
    "FFM": FEATURES,
    "PNN": {"dropout_prob": 0.1, "reg_weight": 0.05, **FEATURES},
}
"""Stock models with options that make them small; with the fields of users and items where they have any."""


def bound(opened: Opened) -> Binding:
    return bind(opened.model, opened.config, opened.train.dataset)


def workload(opened: Opened, binding: Binding, **options: Any) -> tuple[Workload, RunState]:
    """The model's work on its training data, and the state it starts from."""
    data = opened.train.dataset
    pairs = [data.inter_feat[field].numpy() - 1 for field in ("user_id", "item_id")]
    labels = data.inter_feat["label"].double().numpy() if binding.objective.needs_ratings else None
    items = UserItems.from_pairs(*pairs, data.user_num - 1, data.item_num - 1, labels)
    # chosen so that every step moves something one can see in float32
    made: dict[str, Any] = {"user_learning_rate": 2.0, "client_learning_rate": 0.5, "l2": 0.02}
    config = FederationConfig(
        **{**made, "clients_per_round": 0, "num_negatives": max(1, binding.num_negatives), **options}
    )
    dtype = torch.float64 if config.ring else torch.float32
    private, rows, dense = binding.read(dtype)
    server = ServerState(rows, dense)
    for name, value in server.parameters().items():
        server.moments[f"first.{name}"] = torch.zeros_like(value)
        server.moments[f"second.{name}"] = torch.zeros_like(value)
    work = Workload(
        binding.recommender,
        binding.objective,
        ClientData(items, torch.device("cpu"), dtype),
        config,
        11,
        make_transport(config.transport, data.item_num - 1),
        binding.features,
        binding.user_features,
    )
    return work, RunState(server, private)


def play(work: Workload, state: RunState, rounds: int = 2) -> list[Contribution]:
    engine, sums = make_engine(work), []
    for number in range(rounds):
        sums.append(engine.train_clients(state, work.eligible(), number))
        apply_contribution(state.server, sums[-1], work.config)
    return sums


def assert_same(one: RunState, other: RunState, tolerance: float) -> None:
    assert torch.allclose(one.private, other.private, atol=tolerance, rtol=tolerance)
    for name, value in one.server.parameters().items():
        assert torch.allclose(value, other.server.parameters()[name], atol=tolerance, rtol=tolerance), name


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_the_models_own(open_model: OpenModel, name: str) -> None:
    opened = open_model(name, **MODELS[name])
    binding = bound(opened)
    private, rows, dense = binding.read()
    model, data = binding.recommender, opened.train.dataset
    users, items = torch.tensor([4, 17, 30]), torch.tensor([[2, 9], [35, 0], [9, 36]])
    ids = {"user_id": users.repeat_interleave(2) + 1, "item_id": items.flatten() + 1}
    opened.model.eval()
    with torch.no_grad():
        own = opened.model.predict(data.join(Interaction(ids)))
        for k, user in enumerate(users):
            features = None if binding.features is None else binding.features[items[k]]
            mine = None if binding.user_features is None else binding.user_features[user]
            score = model.score(private[user], rows[items[k]], dense, Given(features, mine))
            score = torch.sigmoid(score) if hasattr(opened.model, "sigmoid") else score
            assert torch.allclose(score, own[2 * k : 2 * k + 2], atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("epochs", [1, 2])
def test_engines_agree(open_model: OpenModel, name: str, epochs: int) -> None:
    opened = open_model(name, **MODELS[name])
    binding = bound(opened)
    states = []
    for engine in ("reference", "vectorised"):
        work, state = workload(opened, binding, engine=engine, local_epochs=epochs, server_optimizer="sgd")
        start = state.private.clone()
        sums = play(work, state)
        assert not torch.equal(state.private, start)
        states.append((state, sums[-1].mean_loss))
    assert_same(states[0][0], states[1][0], 2e-5)
    assert states[0][1] == pytest.approx(states[1][1], rel=1e-4)


@pytest.mark.parametrize("name", ["NeuMF", "AutoInt"])
def test_the_result_does_not_depend_on_the_blocks(open_model: OpenModel, name: str) -> None:
    opened = open_model(name, **MODELS[name])
    binding = bound(opened)
    for epochs in (1, 2):
        results = []
        for mib in (0.02, 64.0):
            work, state = workload(opened, binding, block_mib=mib, local_epochs=epochs, server_optimizer="sgd")
            play(work, state)
            results.append(state)
        assert_same(*results, 1e-5)


@pytest.mark.parametrize("name", ["NeuMF", "DeepFM"])
def test_ring_mode_gives_the_same_bits_in_both_engines(open_model: OpenModel, name: str) -> None:
    opened = open_model(name, **MODELS[name])
    binding = bound(opened)
    results = []
    for engine in ("reference", "vectorised"):
        work, state = workload(opened, binding, engine=engine, ring=True)
        play(work, state)
        results.append(state)
    assert torch.equal(results[0].private, results[1].private)
    for key, value in results[0].server.parameters().items():
        assert torch.equal(value, results[1].server.parameters()[key]), key


@pytest.mark.parametrize("name", ["BPR", "DeepFM"])
def test_secemb_gives_the_bits_of_ring_mode(open_model: OpenModel, name: str) -> None:
    opened = open_model(name, **MODELS[name])
    binding = bound(opened)
    results = []
    for transport in ("plain", "secemb"):
        work, state = workload(opened, binding, ring=True, transport=transport)
        if transport == "secemb":
            config = replace(Config(), federation=work.config, seed=work.seed)
            work = replace(work, transport=transport_of(config, work.clients, work.num_negatives))
        play(work, state, rounds=1)
        results.append(state)
    assert torch.equal(results[0].private, results[1].private)
    for key, value in results[0].server.parameters().items():
        assert torch.equal(value, results[1].server.parameters()[key]), key


@pytest.mark.parametrize("name", MODELS)
def test_one_clients_step_is_the_gradient_of_the_models_own_loss(open_model: OpenModel, name: str) -> None:
    # dropout off, so that RecBole's loss on the same pairs is the same number
    options = dict(MODELS[name])
    options |= {key: 0.0 for key in options if key == "dropout_prob"}
    options |= {key: [0.0, 0.0, 0.0] for key in options if key == "dropout_probs"}
    opened = open_model(name, **options)
    binding = bound(opened)
    work, state = workload(opened, binding, l2=0.0, client_learning_rate=1.0, user_learning_rate=1.0)
    user = 7
    before = state.private.clone()
    local = work.local(torch.tensor([user]), 0)
    contribution = make_engine(work).train_clients(state, torch.tensor([user]).numpy(), 0)

    model, data = opened.model, opened.train.dataset
    model.train()
    positive, negative = local.pos_items + 1, local.neg_items + 1
    if binding.objective.pairwise:
        fields = {"user_id": torch.full_like(positive, user + 1), "item_id": positive, "neg_item_id": negative}
    else:
        both = torch.cat([positive, negative])
        fields = {"user_id": torch.full_like(both, user + 1), "item_id": both}
        fields["label"] = torch.cat([torch.ones(len(positive)), torch.zeros(len(negative))])
    loss = model.calculate_loss(data.join(Interaction(fields)))
    loss = loss if isinstance(loss, torch.Tensor) else sum(loss)
    model.zero_grad()
    loss.backward()
    gradients = {key: torch.zeros_like(p) if p.grad is None else p.grad for key, p in model.named_parameters()}
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(gradients[key])
    private, rows, dense = binding.read()  # the gradients, cut up as the tables are
    weight = float(len(positive))
    assert torch.allclose(before[user] - state.private[user], private[user], atol=1e-5)
    assert torch.allclose(contribution.items / weight, rows, atol=1e-5)
    for key, value in dense.items():
        assert torch.allclose(contribution.dense[key] / weight, value, atol=1e-5), key
    others = torch.arange(len(before)) != user
    assert torch.equal(state.private[others], before[others])


def test_labelled_data_train_on_their_labels(open_model: OpenModel) -> None:
    opened = open_model(
        "FM",
        train_neg_sample_args=None,
        threshold={"rating": 3},
        load_col={"inter": ["user_id", "item_id", "rating"], "user": ["user_id", "age"], "item": ["item_id", "year"]},
        eval_args={"split": {"RS": [0.8, 0.1, 0.1]}, "group_by": None, "order": "RO", "mode": "labeled"},
        metrics=["AUC", "LogLoss"],
        valid_metric="AUC",
    )
    binding = bound(opened)
    assert (binding.objective.name, binding.num_negatives) == ("labelled_bce", 0)
    results = []
    for engine in ("reference", "vectorised"):
        work, state = workload(opened, binding, engine=engine, server_optimizer="sgd")
        results.append((state, [sums.mean_loss for sums in play(work, state, rounds=12)]))
    assert_same(results[0][0], results[1][0], 2e-5)
    assert results[1][1][-1] < results[1][1][0] - 0.01


@pytest.mark.parametrize("name", ["NeuMF", "DeepFM"])
def test_the_copy_of_the_model_keeps_nobodys_rows(open_model: OpenModel, name: str) -> None:
    recommender = bound(open_model(name, **MODELS[name])).recommender
    assert isinstance(recommender, StockRecommender)
    sizes = {len(value) for value in recommender._calls.parameters()}
    assert 0 in sizes
    assert not {N_USERS, N_USERS + 1, N_ITEMS, N_ITEMS + 1} & sizes


def test_tables_come_back_as_they_were(open_model: OpenModel) -> None:
    for name in ("BPR", "NeuMF", "DeepFM", "FM"):
        opened = open_model(name, **MODELS[name])
        binding = bound(opened)
        before = {key: value.clone() for key, value in opened.model.state_dict().items()}
        private, rows, dense = binding.read()
        binding.write(private * 2, rows * 2, {key: value * 2 for key, value in dense.items()})
        changed = opened.model.state_dict()
        moved = {key for key in before if not torch.equal(before[key], changed[key])}
        assert {name for name, p in opened.model.named_parameters() if p.dim() == 2 and "embedding" in name} & moved
        binding.write(private, rows, dense)
        for key, value in opened.model.state_dict().items():
            assert torch.equal(value, before[key]), key
