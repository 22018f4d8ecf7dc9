"""run_fedrec in one call: train, test, unlearn, attack; and one trial of a search."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from fedrec_unlearn.config_unlearn import UnlearnWarning
from fedrec_unlearn.errors import ConfigError, ModelError
from fedrec_unlearn.recbole import FederatedTrainer, objective_function, run_fedrec
from tests.recbole.conftest import FEATURES, SAMPLED


def options(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        **SAMPLED,
        "gpu_id": "",
        "data_path": str(folder),
        "load_col": {"inter": ["user_id", "item_id"]},
        "embedding_size": 6,
        "epochs": 4,
        "eval_step": 1,
        "clients_per_round": 10,
        "show_progress": False,
        "attack_attackers": ["logistic", "knn"],
        "attack_folds": 3,
        "attack_seeds": [0, 1],
        **more,
    }


def test_one_call_trains_unlearns_and_attacks(
    atomic_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlearnWarning)
        result = run_fedrec(
            "BPR", "tiny", config_dict=options(atomic_folder, unlearn="gender", sensitive_fields="occupation")
        )
    assert result["unlearned"]["attributes"] == ["gender"]
    assert result["test_result"].keys() == result["test_result_before"].keys() == {"recall@10", "ndcg@10"}
    for when in ("attack_before", "attack"):
        assert list(result[when]) == ["occupation", "gender"]
        first, second = result[when]["gender"]
        assert {first["attacker"], second["attacker"]} == {"logistic", "knn"}
        far = [abs(entry["balanced_accuracy"]["mean"] - entry["chance"]) for entry in (first, second)]
        assert far[0] >= far[1]
        assert 0.5 <= first["majority"] < 1.0
    assert result["attack"]["gender"] != result["attack_before"]["gender"]
    trainer = result["trainer"]
    assert isinstance(trainer, FederatedTrainer)
    assert torch.load(result["checkpoint"], weights_only=True)["unlearned"] == ["gender"]
    assert list(tmp_path.iterdir()) == []


def test_without_attributes_it_is_run_recboles_dictionary(atomic_folder: Path) -> None:
    result = run_fedrec("FedMF", "tiny", config_dict=options(atomic_folder), saved=False)
    assert set(result) == {
        "best_valid_score",
        "valid_score_bigger",
        "best_valid_result",
        "test_result",
        "trainer",
        "checkpoint",
    }
    assert result["checkpoint"] is None
    assert result["valid_score_bigger"] is True


def test_files_name_model_and_data_set_and_the_dict_wins(atomic_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model: FedMF\ndataset: tiny\nepochs: 2\nembedding_size: 3\n")
    result = run_fedrec(config_file_list=[file], config_dict=options(atomic_folder, epochs=1, embedding_size=5))
    config = result["trainer"].config
    assert (config["model"], config["epochs"], config["embedding_size"]) == ("FedMF", 1, 5)


def test_the_same_run_gives_the_same_figures_whatever_the_command_line(
    atomic_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_fedrec("NeuMF", "tiny", config_dict=options(atomic_folder))
    monkeypatch.setattr("sys.argv", ["script.py", "--seed=1", "--epochs=1", "--tb=short"])
    second = run_fedrec("NeuMF", "tiny", config_dict=options(atomic_folder, block_mib=0.1))
    assert first["test_result"] == second["test_result"]


def test_an_attribute_that_is_also_an_input_is_warned_of(atomic_folder: Path) -> None:
    values = options(atomic_folder, **FEATURES, unlearn="occupation")
    with pytest.warns(UnlearnWarning, match="occupation: LOADED AS A MODEL INPUT"):
        run_fedrec("FM", "tiny", config_dict=values)


@pytest.mark.parametrize(
    ("model", "dataset", "values", "error", "words"),
    [
        ("LightGCN", "tiny", {}, ModelError, "interactions of all users"),
        ("bpr", "tiny", {}, ConfigError, "no model named 'bpr'"),
        ("BPR", "tinny", {}, ConfigError, r"has no tinny\.inter; .*choose among tiny"),
        (None, "tiny", {}, ConfigError, "model: not given; name one, for example BPR"),
        ("BPR", None, {}, ConfigError, "dataset: not given; name one, for example ml-100k"),
        ("BPR", "tiny", {"clients_per_rounds": 4}, ConfigError, "did you mean clients_per_round"),
    ],
)
def test_mistakes_are_told(
    atomic_folder: Path, model: Any, dataset: Any, values: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        run_fedrec(model, dataset, config_dict=options(atomic_folder, **values))


def test_a_trial_of_a_search_tells_what_recbole_asks_for(atomic_folder: Path) -> None:
    values = options(atomic_folder, model="FedMF", dataset="tiny", learning_rate=0.02, unlearn="gender")
    result = objective_function(values)
    assert set(result) == {"model", "best_valid_score", "valid_score_bigger", "best_valid_result", "test_result"}
    assert result["model"] == "FedMF"


@pytest.mark.skipif(importlib.util.find_spec("hyperopt") is None, reason="hyperopt is not installed")
@pytest.mark.parametrize("own", [True, False], ids=["our objective_function", "RecBole's"])
def test_recboles_hyper_tuning_searches(
    atomic_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    from recbole.quick_start import objective_function as stock
    from recbole.trainer import HyperTuning

    ours = objective_function
    monkeypatch.chdir(tmp_path)

    lines = "".join(f"{key}: {value!r}\n" for key, value in options(atomic_folder).items())
    (tmp_path / "fixed.yaml").write_text(f"model: FedMF\ndataset: tiny\n{lines}")
    (tmp_path / "space").write_text("learning_rate choice [0.001,0.05]\nuser_learning_rate choice [0.01,3.0]\n")
    search = HyperTuning(
        ours if own else stock,
        algo="exhaustive",
        params_file=str(tmp_path / "space"),
        fixed_config_file_list=[str(tmp_path / "fixed.yaml")],
        display_file=None,
    )
    search.run()
    assert len(search.params2result) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fixed.yaml", "space"]
    best = search.params2result[search.params2str(search.best_params)]["best_valid_score"]
    assert best == max(trial["best_valid_score"] for trial in search.params2result.values())
