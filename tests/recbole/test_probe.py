"""A model is accepted only if what clients would compute is what it computes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from recbole.model.general_recommender import BPR
from torch import nn

from fedrec_unlearn.errors import ConfigError, ModelError
from fedrec_unlearn.models import FM, MF
from fedrec_unlearn.recbole.binding import bind
from fedrec_unlearn.recbole.stock import StockRecommender
from tests.recbole.conftest import FEATURES, Opened

OpenModel = Callable[..., Opened]


class Neighbours(BPR):
    """Adds the mean of all users' rows: a score that no client could compute."""

    def forward(self, user: Any, item: Any) -> Any:
        own, rows = super().forward(user, item)
        return own + self.user_embedding.weight.mean(0), rows


class ById(BPR):
    """Scales by a list in the order of users' ids, which is no parameter."""

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.popularity = torch.arange(self.n_users, dtype=torch.float32)

    def forward(self, user: Any, item: Any) -> Any:
        own, rows = super().forward(user, item)
        return own * self.popularity[user].unsqueeze(1), rows


class TableNorm(BPR):
    """Its loss decays whole tables."""

    def calculate_loss(self, interaction: Any) -> Any:
        return super().calculate_loss(interaction) + 0.01 * self.item_embedding.weight.norm()


class Noisy(BPR):
    """Draws noise while it scores."""

    def predict(self, interaction: Any) -> Any:
        score = super().predict(interaction)
        return score + torch.randn_like(score) if self.training else score


class Scaled(BPR):
    """A parameter that scores depend on and one that they do not; its loss penalises the first."""

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.scale = nn.Parameter(torch.tensor([1.5]))
        self.user_spare = nn.Embedding(self.n_users, 2)

    def forward(self, user: Any, item: Any) -> Any:
        own, rows = super().forward(user, item)
        return own * self.scale, rows

    def predict(self, interaction: Any) -> Any:
        own, rows = self.forward(interaction[self.USER_ID], interaction[self.ITEM_ID])
        return (own * rows).sum(1)

    def calculate_loss(self, interaction: Any) -> Any:
        return super().calculate_loss(interaction) + 0.3 * self.scale.square().sum()


def bound(opened: Opened) -> Any:
    return bind(opened.model, opened.config, opened.train.dataset)


@pytest.mark.parametrize("kind", [Neighbours, ById])
def test_a_score_that_needs_more_than_its_rows_is_refused(open_model: OpenModel, kind: type) -> None:
    with pytest.raises(ModelError, match=r"cannot be trained by clients: its score .* needs more than their rows"):
        bound(open_model(kind))


def test_a_loss_on_whole_tables_is_refused_and_an_objective_settles_it(open_model: OpenModel) -> None:
    with pytest.raises(ModelError, match=r"TableNorm's own loss .*objective: bpr"):
        bound(open_model(TableNorm))
    assert bound(open_model(TableNorm, objective="bpr")).objective.name == "bpr"
    assert bound(open_model(TableNorm, objective="bce")).objective.name == "bce"


def test_other_random_draws_are_refused(open_model: OpenModel) -> None:
    with pytest.raises(ModelError, match="draws random numbers while it scores"):
        bound(open_model(Noisy))


def test_a_penalty_on_dense_parameters_is_kept_and_idle_tables_are_left_out(open_model: OpenModel) -> None:
    recommender = bound(open_model(Scaled)).recommender
    assert isinstance(recommender, StockRecommender)
    assert recommender.user_layout.columns == (("user_embedding.weight", 6),)
    penalty = recommender.penalty({"scale": torch.tensor([2.0])})
    assert penalty is not None
    assert float(penalty) == pytest.approx(0.3 * 4.0, abs=1e-5)
    both = recommender.penalty({"scale": torch.tensor([[2.0], [3.0]])})
    assert both is not None
    assert both.tolist() == pytest.approx([1.2, 2.7], abs=1e-5)


def test_known_models_get_towers_and_their_heirs_do_not(open_model: OpenModel) -> None:
    assert isinstance(bound(open_model("BPR")).recommender, MF)
    assert isinstance(bound(open_model("FM")).recommender, FM)
    assert isinstance(bound(open_model("FM", **FEATURES)).recommender, StockRecommender)
    assert isinstance(bound(open_model(type("Heir", (BPR,), {}))).recommender, StockRecommender)


def test_options_that_do_not_go_with_the_model(open_model: OpenModel) -> None:
    opened = open_model("BPR")
    opened.config["train_neg_sample_args"] = None
    with pytest.raises(ConfigError, match="train_neg_sample_args: BPR compares"):
        bound(opened)
    with pytest.raises(ConfigError, match="objective: 'hinge' is none of auto, bpr, bce"):
        bound(open_model("BPR", objective="hinge"))


def test_a_field_of_the_interaction_is_no_input(open_model: OpenModel) -> None:
    opened = open_model(
        "FM",
        load_col={"inter": ["user_id", "item_id", "timestamp"]},
        numerical_features=["timestamp"],
        normalize_all=True,
    )
    with pytest.raises(ModelError, match=r"FM reads timestamp, .*load_col: \{inter: \[user_id, item_id\]"):
        bound(opened)


def test_the_model_itself_is_left_as_it_is(open_model: OpenModel) -> None:
    opened = open_model("NeuMF")
    opened.model.train()
    before = {name: value.clone() for name, value in opened.model.state_dict().items()}
    bound(opened)
    assert opened.model.training
    assert isinstance(opened.model.sigmoid, nn.Sigmoid)
    assert all(parameter.requires_grad and parameter.grad is None for parameter in opened.model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in opened.model.state_dict().items())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("LR", {}),
        ("FwFM", {}),
        ("FNN", {"dropout_prob": 0.1}),
        ("FiGNN", {"attention_size": 4, "n_heads": 2, "num_heads": 2, "n_layers": 1}),
        ("ConvNCF", {"embedding_size": 64, "objective": "bpr"}),
        ("LINE", {"objective": "bpr"}),
        ("EulerNet", {"objective": "bce", "order_list": [4, 4]}),
        ("xDeepFM", {"objective": "bce", "cin_layer_size": [4, 4]}),
    ],
)
def test_further_stock_models_are_accepted_as_they_come_or_with_an_objective(
    open_model: OpenModel, name: str, options: dict[str, Any]
) -> None:
    features = {} if name in ("LINE", "ConvNCF") else FEATURES
    assert bound(open_model(name, **{**features, **options})).recommender.user_layout.width > 0


@pytest.mark.parametrize("name", ["LINE", "xDeepFM"])
def test_their_own_losses_are_not_taken(open_model: OpenModel, name: str) -> None:
    options = {"cin_layer_size": [4, 4], **FEATURES} if name == "xDeepFM" else {}
    with pytest.raises(ModelError, match=rf"{name}'s own loss is not one a client can compute"):
        bound(open_model(name, **options))


@pytest.mark.parametrize(
    ("name", "reason"), [("SASRec", "sequence of its items"), ("EASE", "computed from all interactions")]
)
def test_models_of_other_kinds_are_refused(open_model: OpenModel, name: str, reason: str) -> None:
    # its kind on a small model: RecBole makes a real one only with data of its own kind
    opened = open_model("BPR")
    kind = importlib.import_module("recbole.utils").get_model(name)
    opened.model.__class__ = type(name, (type(opened.model),), {"type": kind.type})
    with pytest.raises(ModelError, match=f"{name} cannot be trained by clients: .*{reason}"):
        bound(opened)
