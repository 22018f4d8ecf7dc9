"""FedMF and the others as RecBole modules: the scores of our recommenders, in RecBole's numbering."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from recbole.data.interaction import Interaction
from recbole.data.transform import construct_transform
from recbole.model.loss import BPRLoss
from recbole.trainer import Trainer
from recbole.utils import get_flops

from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.recbole import FedDeepFM, FedFM, FedMF, FedNCF
from fedrec_unlearn.recbole.configuration import without_tensorboard
from tests.recbole.conftest import N_ITEMS, N_USERS, Opened

OpenModel = Callable[..., Opened]
MODELS = (FedMF, FedNCF, FedFM, FedDeepFM)


@pytest.mark.parametrize("kind", MODELS)
def test_scores_of_pairs_and_of_the_catalogue_are_the_recommenders(open_model: OpenModel, kind: Any) -> None:
    model = open_model(kind).model
    with torch.no_grad():
        model.item_rows[0].fill_(7.0), model.user_rows[0].fill_(7.0)  # [PAD] must not shift anything
        users, items = torch.tensor([1, 5, N_USERS]), torch.tensor([1, 12, N_ITEMS])
        expected = model.recommender.score(
            model.user_rows[users], model.item_rows[items].unsqueeze(1), model.shared
        ).squeeze(1)
        pairs = model.predict(Interaction({"user_id": users, "item_id": items}))
        everything = model.full_sort_predict(Interaction({"user_id": users})).view(3, N_ITEMS + 1)
    assert torch.allclose(pairs, expected, atol=1e-6)
    assert torch.allclose(everything.gather(1, items.unsqueeze(1)).squeeze(1), expected, atol=1e-6)


@pytest.mark.parametrize("kind", [FedMF, FedNCF, FedFM])
def test_pairs_have_recboles_bpr_loss(open_model: OpenModel, kind: Any) -> None:
    model = open_model(kind, init_std=1.0).model
    users, liked, other = torch.tensor([1, 2, N_USERS]), torch.tensor([3, N_ITEMS, 1]), torch.tensor([N_ITEMS, 4, 9])
    pairs = Interaction({"user_id": users, "item_id": liked, "neg_item_id": other})
    with torch.no_grad():
        loss = model.calculate_loss(pairs)
        scores = [model.predict(Interaction({"user_id": users, "item_id": items})) for items in (liked, other)]
    assert float(loss) == pytest.approx(float(BPRLoss()(*scores)), rel=1e-6)


def test_labels_have_the_cross_entropy_of_the_probability(open_model: OpenModel) -> None:
    model = open_model(FedDeepFM, init_std=1.0).model
    users, items, labels = torch.tensor([1, 2, 7]), torch.tensor([3, N_ITEMS, 1]), torch.tensor([1.0, 0.0, 1.0])
    pairs = Interaction({"user_id": users, "item_id": items, "label": labels})
    with torch.no_grad():
        loss, probability = model.calculate_loss(pairs), model.predict(pairs).sigmoid()
    expected = torch.nn.functional.binary_cross_entropy(probability, labels)
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_recbole_counts_its_operations_on_a_copy_and_leaves_it_whole(open_model: OpenModel, kind: Any) -> None:
    opened = open_model(kind)
    before = {name: value.clone() for name, value in opened.model.state_dict().items()}
    get_flops(opened.model, opened.train.dataset, opened.config["device"], None, construct_transform(opened.config))
    after = opened.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    with torch.no_grad():
        copied = copy.deepcopy(opened.model)
        copied.user_rows.add_(1.0)
    assert torch.equal(opened.model.user_rows, before["user_rows"])


@pytest.mark.parametrize("kind", MODELS)
def test_recboles_own_trainer_can_train_it_centrally(open_model: OpenModel, kind: Any) -> None:
    opened = open_model(
        kind, epochs=80, learning_rate=0.05, weight_decay=0.0, train_batch_size=512, stopping_step=500, eval_step=1
    )
    with without_tensorboard():
        trainer = Trainer(opened.config, copy.deepcopy(opened.model))
    trainer.fit(opened.train, opened.valid, verbose=False)
    losses = list(trainer.train_loss_dict.values())
    assert losses[-1] < 0.85 * losses[0]


def test_initial_values_are_those_of_the_seed(open_model: OpenModel) -> None:
    one, two = open_model(FedNCF, seed=4).model, open_model(FedNCF, seed=4).model
    other = open_model(FedNCF, seed=5).model
    assert torch.equal(one.user_rows, two.user_rows)
    assert not torch.equal(one.user_rows, other.user_rows)
    expected = one.recommender.initial_user_rows(4, 0.05).float()
    assert torch.equal(one.user_rows[1:], expected)
    assert float(one.user_rows[0].abs().sum()) == 0.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"embedding_size": 0}, "embedding_size: must be a whole number"),
        ({"mlp_hidden_size": []}, "mlp_hidden_size: must be a list of widths"),
        ({"mlp_hidden_size": [4, 0]}, "mlp_hidden_size: must be a list of widths"),
        ({"init_std": -1.0}, "init_std: must be positive"),
    ],
)
def test_sizes_that_make_no_model(open_model: OpenModel, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_model(FedNCF, **options)
