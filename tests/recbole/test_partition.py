"""Which parameters are whose: told for RecBole's models, refused with a reason where it is not certain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from fedrec_unlearn.errors import ConfigError, ModelError
from fedrec_unlearn.recbole.binding import bind
from fedrec_unlearn.recbole.partition import Partition, partition_of
from tests.recbole.conftest import FEATURES, N_ITEMS, N_USERS, Opened

OpenModel = Callable[..., Opened]


def parted(opened: Opened) -> Partition:
    return partition_of(opened.model, opened.config)


def test_general_models_are_told_by_names_and_shapes(open_model: OpenModel) -> None:
    of = parted(open_model("NeuMF"))
    assert (of.n_users, of.n_items) == (N_USERS, N_ITEMS)
    assert of.private == ("user_mf_embedding.weight", "user_mlp_embedding.weight")
    assert of.items == ("item_mf_embedding.weight", "item_mlp_embedding.weight")
    assert {name.split(".")[0] for name in of.dense} == {"mlp_layers", "predict_layer"}
    assert of.shared_tables == ()


def test_context_models_by_the_fields_of_the_ids(open_model: OpenModel) -> None:
    opened = open_model("DeepFM", **FEATURES)
    of, model = parted(opened), opened.model
    assert of.shared_tables == (
        "token_embedding_table.embedding.weight",
        "first_order_linear.token_embedding_table.embedding.weight",
    )
    offsets = dict(zip(model.token_field_names, model.token_field_offsets, strict=True))
    assert (of.user_offset, of.item_offset) == (offsets["user_id"], offsets["item_id"])
    assert of.private == of.items == ()
    assert any("token_seq" in name for name in of.dense)


def test_a_private_row_is_that_of_its_user(open_model: OpenModel) -> None:
    opened = open_model("DeepFM", **FEATURES)
    table = dict(opened.model.named_parameters())["token_embedding_table.embedding.weight"]
    binding = bind(opened.model, opened.config, opened.train.dataset)
    private, rows, _ = binding.read()
    offsets = dict(zip(opened.model.token_field_names, opened.model.token_field_offsets, strict=True))
    for user in (0, 7, N_USERS - 1):
        assert torch.equal(private[user, :6], table[offsets["user_id"] + user + 1])
    for item in (0, N_ITEMS - 1):
        assert torch.equal(rows[item, :6], table[offsets["item_id"] + item + 1])


@pytest.mark.parametrize(
    ("model", "options", "reason"),
    [
        ("LightGCN", {}, "interactions of all users"),
        ("NGCF", {}, "interactions of all users"),
        ("SimpleX", {}, "interactions of all users"),
        ("ENMF", {}, "interactions of all users"),
        ("MultiVAE", {}, "interactions of all users"),
        ("Pop", {}, "computed from all interactions at once"),
        ("NFM", {}, "batch normalisation"),
        ("DCN", {}, "batch normalisation"),
    ],
)
def test_models_no_client_could_run_are_refused_with_the_reason(
    open_model: OpenModel, model: str, options: dict[str, Any], reason: str
) -> None:
    opened = open_model(model, **options)
    with pytest.raises(ModelError, match=rf"{model} cannot be trained by clients: .*{reason}") as told:
        parted(opened)
    assert "BPR" in str(told.value)  # names models that can


class _Made(nn.Module):
    """A model with tables of one's choice."""

    def __init__(self, **tables: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.n_users, self.n_items = N_USERS + 1, N_ITEMS + 1
        for name, table in tables.items():
            setattr(self, name, table)


def users() -> nn.Embedding:
    return nn.Embedding(N_USERS + 1, 4)


def items() -> nn.Embedding:
    return nn.Embedding(N_ITEMS + 1, 4)


CONFIG: dict[str, Any] = {
    "USER_ID_FIELD": "user_id",
    "ITEM_ID_FIELD": "item_id",
    "private_parameters": None,
    "item_parameters": None,
}


def test_a_model_without_private_rows_is_refused() -> None:
    with pytest.raises(ModelError, match=r"no private rows: no table with a row for each of 41 users"):
        partition_of(_Made(item_embedding=items(), layer=nn.Linear(4, 1)), CONFIG)


@pytest.mark.parametrize(
    "made",
    [
        {"user_embedding": users(), "item_embedding": items(), "memory": users()},
        {"user_embedding": users(), "item_embedding": items(), "memory": items()},
        {"user_item_embedding": users(), "item_embedding": items()},
        {"user_embedding": users(), "item_embedding": items(), "encoder": nn.Linear(N_USERS + 1, 3)},
        {"user_embedding": users(), "item_embedding": items(), "bias": nn.Parameter(torch.zeros(N_USERS + 1))},
    ],
    ids=["users' rows without their name", "items' rows without their name", "both names", "a layer", "a bias"],
)
def test_an_ambiguous_partition_is_an_error_with_the_remedy(made: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"ambiguous partition: .*private_parameters and item_parameters"):
        partition_of(_Made(**made), CONFIG)


def test_named_tables_settle_it() -> None:
    model = _Made(user_embedding=users(), item_embedding=items(), memory=users(), encoder=nn.Linear(N_USERS + 1, 3))
    told = {
        **CONFIG,
        "private_parameters": ["user_embedding.weight", "memory.weight"],
        "item_parameters": ["item_embedding.weight"],
    }
    of = partition_of(model, told)
    assert of.private == ("user_embedding.weight", "memory.weight")
    assert of.dense == ("encoder.weight", "encoder.bias")


@pytest.mark.parametrize(
    ("option", "name", "words"),
    [
        (
            "private_parameters",
            "user_embeding.weight",
            "has no parameter 'user_embeding.weight'; it has user_embedding",
        ),
        ("private_parameters", "item_embedding.weight", "has shape .* has 42 rows"),
        ("item_parameters", "user_embedding.weight", "has shape .* has 38 rows"),
    ],
)
def test_naming_something_else_is_an_error(option: str, name: str, words: str) -> None:
    model = _Made(user_embedding=users(), item_embedding=items())
    with pytest.raises(ConfigError, match=rf"{option}: .*{words}"):
        partition_of(model, {**CONFIG, option: [name]})


def test_as_many_users_as_items_are_told_by_their_names() -> None:
    model = _Made(user_embedding=users(), item_embedding=users())
    model.n_items = N_USERS + 1
    of = partition_of(model, CONFIG)
    assert (of.private, of.items) == (("user_embedding.weight",), ("item_embedding.weight",))
