"""What leaves a client: no row of a private table, no attribute, nothing that a message does not need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from fedrec_unlearn.federation.contribution import ClientUpdate, Contribution
from fedrec_unlearn.federation.engine import Workload, make_engine
from fedrec_unlearn.federation.local_data import ClientData, LocalData
from fedrec_unlearn.federation.reference import ReferenceEngine

MODELS = ["mf", "ncf", "fm", "deepfm"]
over_models = pytest.mark.parametrize("model", MODELS)
over_engines = pytest.mark.parametrize("engine", ["reference", "vectorised"])


def numbers_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for inner in value.values() for tensor in numbers_in(inner)]
    return []


@over_models
@over_engines
@pytest.mark.parametrize("aggregation", ["mean", "row_mean"])
def test_private_rows_never_enter_a_contribution(
    make_federation: Callable[..., Any], model: str, engine: str, aggregation: str
) -> None:
    made = make_federation(model, engine=engine, item_aggregation=aggregation)
    recommender = made.work.model
    users = made.work.eligible()
    # 19 users, 17 of them training, 31 items: no other dimension has one of the first two sizes
    shapes = [(recommender.n_items, recommender.item_layout.width), *recommender.dense_shapes.values()]
    assert all(size not in (recommender.n_users, len(users)) for shape in shapes for size in shape)
    total = make_engine(made.work).train_clients(made.state, users, 0)
    found = [tensor for field in fields(Contribution) for tensor in numbers_in(getattr(total, field.name))]
    allowed = shapes + [(recommender.n_items,)] * (aggregation == "row_mean")
    assert sorted(tuple(t.shape) for t in found) == sorted(allowed)


@over_models
def test_a_clients_message_is_ids_rows_dense_parameters_and_a_weight(
    make_federation: Callable[..., Any], model: str
) -> None:
    assert [field.name for field in fields(ClientUpdate)] == ["item_ids", "item_rows", "dense", "weight"]
    made = make_federation(model, transport="sparse")
    recommender = made.work.model
    for user in made.work.eligible().tolist():
        update, private, _, _ = ReferenceEngine(made.work).train_one(made.state, user, 0)
        rows = len(update.item_ids)
        assert update.item_rows.shape == (rows, recommender.item_layout.width)
        assert {name: tuple(value.shape) for name, value in update.dense.items()} == recommender.dense_shapes
        n_dense = sum(int(np.prod(shape)) for shape in recommender.dense_shapes.values())
        message = made.work.transport.encode(update, 0)
        # a header of 28 bytes, 4 a row id, 4 a number: no room for the private row, whose bytes are not there either
        assert len(message) == 28 + 4 * rows + 4 * (rows * recommender.item_layout.width + n_dense)
        for row in (made.state.private[user], private):
            assert row.numpy().tobytes() not in message


@over_models
@over_engines
def test_training_moves_the_private_rows_of_its_clients_and_no_others(
    make_federation: Callable[..., Any], model: str, engine: str
) -> None:
    made = make_federation(model, engine=engine)
    before, items = made.state.private.clone(), made.state.server.items.clone()
    users = made.work.eligible()[[2, 9]]
    make_engine(made.work).train_clients(made.state, users, 0)
    moved = (made.state.private != before).any(1).nonzero().flatten().tolist()
    assert moved == sorted(users.tolist())
    assert torch.equal(made.state.server.items, items)


@over_models
@over_engines
def test_a_client_does_not_feel_who_else_trains(make_federation: Callable[..., Any], model: str, engine: str) -> None:
    made = make_federation(model, engine=engine, local_epochs=2)
    users, start = made.work.eligible(), made.state.private.clone()
    make_engine(made.work).train_clients(made.state, users, 0)
    together = made.state.private.clone()
    for user in users[:4]:
        made.state.private.copy_(start)
        make_engine(made.work).train_clients(made.state, np.array([user]), 0)
        torch.testing.assert_close(made.state.private[user], together[user], rtol=1e-5, atol=1e-6)


@over_engines
def test_an_item_nobody_trained_on_leaves_no_trace(make_federation: Callable[..., Any], engine: str) -> None:
    made = make_federation("mf", engine=engine)
    users = np.array([1, 5])
    total = make_engine(made.work).train_clients(made.state, users, 0)
    local = made.work.clients.local(torch.from_numpy(users), made.work.seed, 0, 1)
    touched = set(local.pos_items.tolist()) | set(local.neg_items.tolist())
    assert set(total.items.any(1).nonzero().flatten().tolist()) <= touched
    assert 0 < len(touched) < made.work.model.n_items


def test_what_trains_has_no_place_for_attributes() -> None:
    for holder in (Workload, LocalData, Contribution, ClientUpdate):
        assert not [field.name for field in fields(holder) if "attribute" in field.name or "label" in field.name]
    assert "attributes" not in ClientData.__init__.__annotations__
