"""On ml-100k as RecBole ships it, in each of the three ways to call: trains, evaluates, saves, loads."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedrec_unlearn.recbole import FederatedTrainer, make_config, run_fedrec

STOCK = ("BPR", "NeuMF", "FM", "DeepFM", "WideDeep", "AutoInt")
"""Context-aware models train on labels and on the fields of users and items there, as RecBole has it by default."""
OURS = ("FedMF", "FedNCF", "FedFM", "FedDeepFM")


def options(folder: Path) -> dict[str, Any]:
    return {"gpu_id": "", "epochs": 1, "eval_step": 1, "show_progress": False, "checkpoint_dir": str(folder)}


def figures(result: Any) -> list[float]:
    found = [float(value) for value in result.values()]
    assert found
    assert np.isfinite(found).all()
    return found


@pytest.mark.parametrize("model", STOCK)
def test_run_fedrec(tmp_path: Path, model: str) -> None:
    result = run_fedrec(model, "ml-100k", config_dict=options(tmp_path), verbose=False)
    tested = figures(result["test_result"])
    again = run_fedrec(model, "ml-100k", config_dict={**options(tmp_path), "epochs": 0}, saved=False, verbose=False)
    trainer = again["trainer"]
    trainer.load(result["checkpoint"])
    assert figures(trainer.evaluate(_loaders(trainer.config)[2])) == tested


@pytest.mark.parametrize("model", STOCK)
def test_federated_trainer_with_recboles_objects(tmp_path: Path, model: str) -> None:
    config = make_config(model, "ml-100k", options(tmp_path))
    train, valid, test = _loaders(config)
    kind = importlib.import_module("recbole.utils").get_model(model)
    trainer = FederatedTrainer(config, kind(config, train.dataset))
    trainer.fit(train, valid, verbose=False)
    tested = figures(trainer.evaluate(test))
    path = trainer.save(tmp_path / "other.pth")
    fresh = FederatedTrainer(config, kind(config, train.dataset))
    fresh.load(path)
    assert figures(fresh.evaluate(test)) == tested
    assert figures(fresh.evaluate(test, model_file=trainer.saved_model_file)) == tested


@pytest.mark.parametrize("model", OURS)
def test_run_recbole_by_name(tmp_path: Path, model: str) -> None:
    run_recbole = importlib.import_module("recbole.quick_start").run_recbole
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = run_recbole(model, "ml-100k", config_dict=options(tmp_path))
    figures(result["test_result"])
    (saved,) = tmp_path.iterdir()
    assert torch.load(saved, weights_only=True)["config"]["model"] == model


def _loaders(config: Any) -> Any:
    data, tools = importlib.import_module("recbole.data"), importlib.import_module("recbole.utils")
    tools.init_seed(config["seed"], config["reproducibility"])
    return data.data_preparation(config, data.create_dataset(config))
