"""Defaults of federated runs: of models there are, valid as they stand, below what the user says."""

from __future__ import annotations

from pathlib import Path

import pytest
from recbole.config import Config
from recbole.utils import get_model

from fedrec_unlearn.recbole import FedNCF, make_config
from fedrec_unlearn.recbole.defaults import model_defaults, models_with_defaults
from fedrec_unlearn.recbole.native import FEDERATED_MODELS
from fedrec_unlearn.recbole.options import attack_options, check_sampling, to_config

MODELS = models_with_defaults()


def test_every_model_of_ours_has_a_file_and_every_file_a_model() -> None:
    assert set(FEDERATED_MODELS) <= set(MODELS)
    assert [get_model(name).__name__ for name in MODELS] == MODELS


@pytest.mark.parametrize("name", MODELS)
def test_they_are_options_clients_can_follow(atomic_folder: Path, name: str) -> None:
    config = make_config(name, "tiny", {"gpu_id": "", "data_path": str(atomic_folder)}, federated=True)
    check_sampling(config)
    given = model_defaults(name)
    federation = to_config(config, num_negatives=1, objective="bpr").federation
    assert federation.user_learning_rate == given["user_learning_rate"]
    assert federation.server_learning_rate == given["learning_rate"]
    assert federation.l2 == given["weight_decay"]
    assert federation.clients_per_round == given["clients_per_round"]
    assert attack_options(config).attackers == tuple(given["attack_attackers"])


def test_a_change_to_what_is_returned_reaches_no_later_run() -> None:
    first = model_defaults("FedNCF")
    first["train_neg_sample_args"]["sample_num"] = 99
    first["mlp_hidden_size"].append(1)
    first["attack_attackers"].clear()
    second = model_defaults("FedNCF")
    assert second["train_neg_sample_args"]["sample_num"] != 99
    assert second["mlp_hidden_size"][-1] != 1
    assert second["attack_attackers"]


@pytest.mark.parametrize("model", ["FedNCF", FedNCF], ids=["by name", "by class"])
def test_recboles_own_config_puts_them_below_files_and_files_below_the_dict(
    tmp_path: Path, atomic_folder: Path, model: str | type
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("user_learning_rate: 3.5\nembedding_size: 9\n")
    values = {"gpu_id": "", "data_path": str(atomic_folder), "embedding_size": 5}
    config = Config(model, "tiny", config_file_list=[str(file)], config_dict=values)
    assert config["mlp_hidden_size"] == model_defaults("FedNCF")["mlp_hidden_size"]
    assert config["eval_step"] == model_defaults("FedNCF")["eval_step"] != 1  # RecBole's own is 1
    assert (
        config["train_neg_sample_args"]["sample_num"] == model_defaults("FedNCF")["train_neg_sample_args"]["sample_num"]
    )
    assert (config["user_learning_rate"], config["embedding_size"]) == (3.5, 5)
