"""AttackAUC and AttackBAcc: what `infer_attribute` finds in the rows, for our models and for stock ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.recbole import FederatedTrainer, FedMF, make_trainer
from fedrec_unlearn.recbole import metrics as metrics_module
from tests.recbole.conftest import SAMPLED, Opened

OpenModel = Callable[..., Opened]

ATTACKED: dict[str, Any] = {
    **SAMPLED,
    "epochs": 2,
    "eval_step": 1,
    "metrics": ["NDCG", "AttackAUC", "AttackBAcc"],
    "sensitive_fields": ["gender", "occupation"],
    "attack_attackers": ["logistic", "knn"],
    "attack_folds": 3,
    "attack_seeds": [0],
    "metric_decimal_place": 6,
}


def test_they_are_the_strongest_attackers_figures(open_model: OpenModel) -> None:
    opened = open_model(FedMF, **ATTACKED)
    trainer = FederatedTrainer(opened.config, opened.model)
    _, valid = trainer.fit(opened.train, opened.valid, verbose=False)
    assert set(valid) == {"ndcg@10"}  # attackers are not trained at every validation
    tested = trainer.evaluate(opened.test)
    results = trainer.attack()
    for name in ("gender", "occupation"):
        own = [result for result in results if result.attribute == name]
        strongest = max(own, key=lambda result: result.distance_from_chance)
        assert tested[f"attackbacc@{name}"] == pytest.approx(strongest.balanced_accuracy.mean, abs=1e-6)
        areas = [result.auc.mean for result in own]
        assert tested[f"attackauc@{name}"] == pytest.approx(max(areas, key=lambda area: abs(area - 0.5)), abs=1e-6)


def test_one_attack_serves_both(open_model: OpenModel, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    stock = metrics_module.attack_rows

    def counted(*given: Any) -> Any:
        calls.append(given[1][0].name)
        return stock(*given)

    monkeypatch.setattr(metrics_module, "attack_rows", counted)
    opened = open_model(FedMF, **ATTACKED)
    trainer = FederatedTrainer(opened.config, opened.model)
    trainer.fit(opened.train, None, verbose=False)
    trainer.evaluate(opened.test)
    assert calls == ["gender", "occupation"]


@pytest.mark.parametrize("name", ["BPR", "LightGCN", "NeuMF"])
def test_recboles_own_trainer_is_audited_too(open_model: OpenModel, name: str) -> None:
    opened = open_model(name, **{**ATTACKED, "n_layers": 1})
    trainer = make_trainer(opened.config, opened.model)
    trainer.fit(opened.train, opened.valid, verbose=False)
    tested = trainer.evaluate(opened.test)
    assert 0.0 <= tested["attackauc@gender"] <= 1.0
    assert 0.0 <= tested["attackbacc@occupation"] <= 1.0


def test_rows_that_carry_the_attribute_are_read_and_noise_is_not(open_model: OpenModel) -> None:
    opened = open_model(FedMF, **{**ATTACKED, "sensitive_fields": ["gender"], "attack_seeds": [0, 1, 2]})
    trainer = FederatedTrainer(opened.config, opened.model)
    trainer.fit(opened.train, None, verbose=False)
    clients = trainer.clients
    assert clients is not None
    labels = torch.from_numpy(clients.dataset.attributes["gender"].labels)
    rows = torch.randn(clients.state.private.shape, generator=torch.Generator().manual_seed(1))
    clients.state.private.copy_(rows)
    clients.publish()
    noise = trainer.evaluate(opened.test)
    clients.state.private[:, 0] += 4.0 * labels
    clients.publish()
    planted = trainer.evaluate(opened.test)
    assert planted["attackbacc@gender"] > 0.9
    assert abs(noise["attackbacc@gender"] - 0.5) < 0.25
    assert planted["attackauc@gender"] > 0.95


def test_they_can_decide_which_pass_is_kept(open_model: OpenModel) -> None:
    opened = open_model(FedMF, **{**ATTACKED, "valid_metric": "AttackBAcc@gender", "epochs": 3})
    trainer = FederatedTrainer(opened.config, opened.model)
    score, valid = trainer.fit(opened.train, opened.valid, verbose=False)
    assert valid["attackbacc@gender"] == score
    assert trainer.valid_metric_bigger is False


def test_attributes_must_be_named(open_model: OpenModel) -> None:
    opened = open_model("BPR", **{**ATTACKED, "sensitive_fields": None})
    trainer = make_trainer(opened.config, opened.model)
    with pytest.raises(ConfigError, match=r"metrics: Attack\w+ needs the attributes to attack, .*sensitive_fields"):
        trainer.fit(opened.train, opened.valid, verbose=False)
