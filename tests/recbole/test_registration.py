"""Our models and metrics under RecBole's own functions, and what stays as it was."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.evaluator.register import metric_types, metrics_dict, smaller_metrics
from recbole.utils import get_model, get_trainer

import fedrec_unlearn.recbole as plugin
from tests.recbole.conftest import SAMPLED, Opened

OpenModel = Callable[..., Opened]


def script(folder: Path, text: str, *arguments: str) -> Any:
    """Runs a program in a folder; returns the last line of its output as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_models_are_found_by_name_with_their_trainer() -> None:
    for name in ("FedMF", "FedNCF", "FedFM", "FedDeepFM"):
        assert get_model(name) is getattr(plugin, name)
        assert get_trainer(None, name) is plugin.FederatedTrainer
    assert get_model("BPR").__name__ == "BPR"


def test_metrics_are_found_and_registering_again_changes_nothing() -> None:
    plugin.register()
    assert metrics_dict["attackauc"] is plugin.AttackAUC
    assert smaller_metrics.count("attackbacc") == 1
    assert "attackbacc" in metric_types


@pytest.mark.parametrize("dataset_path", [True, False])
def test_run_recbole_trains_our_model_and_leaves_the_folder_alone(
    tmp_path: Path, atomic_folder: Path, dataset_path: bool
) -> None:
    found = script(
        tmp_path,
        """
        import json, os, sys, warnings
        warnings.simplefilter("ignore")
        import torch
        torch.set_num_threads(1)
        import fedrec_unlearn.recbole
        from recbole.quick_start import run_recbole
        options = json.loads(sys.argv[1])
        result = run_recbole(model="FedMF", dataset=sys.argv[2], config_dict=options)
        print(json.dumps({"ndcg": float(result["test_result"]["ndcg@10"]), "files": os.listdir(".")}))
        """,
        json.dumps({"epochs": 2, "show_progress": False} | ({"data_path": str(atomic_folder)} if dataset_path else {})),
        "tiny" if dataset_path else "ml-100k",
        "--epochs=77",  # a script's own argument, which no option of a federated run may come from
        "--metrics=Nonsense",
        "--f=kernel-1.json",
    )
    assert found["files"] == []
    assert 0.0 < found["ndcg"] < 1.0


def test_stock_models_behave_as_they_always_did(
    tmp_path: Path, atomic_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["script.py", "--epochs=7"])
    values = {"data_path": str(atomic_folder), "gpu_id": ""}
    stock = Config("BPR", "tiny", config_dict=dict(values))
    assert (stock["epochs"], stock["checkpoint_dir"], stock["clients_per_round"]) == (7, "saved", None)
    ours = Config("FedMF", "tiny", config_dict=dict(values))
    assert (ours["epochs"], ours["clients_per_round"]) == (300, 64)
    assert ours["checkpoint_dir"] != "saved"
    asked = Config("FedMF", "tiny", config_dict={**values, "checkpoint_dir": "mine"})
    assert asked["checkpoint_dir"] == "mine"
    named = Config(config_dict={**values, "model": "FedMF", "dataset": "tiny"})
    assert named["epochs"] == 300
    assert list(tmp_path.iterdir()) == []


def test_a_trainer_on_recboles_own_config_makes_no_folder_either(
    tmp_path: Path, atomic_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = Config("BPR", "tiny", config_dict={"data_path": str(atomic_folder), "gpu_id": "", "epochs": 1})
    train, valid, test = data_preparation(config, create_dataset(config))
    trainer = plugin.FederatedTrainer(config, get_model("BPR")(config, train.dataset))
    trainer.fit(train, valid, verbose=False)
    assert trainer.evaluate(test)
    assert Path(trainer.saved_model_file).is_file()
    assert list(tmp_path.iterdir()) == []
    values = {"data_path": str(atomic_folder), "gpu_id": "", "epochs": 1, "checkpoint_dir": "saved"}
    asked = Config("BPR", "tiny", config_dict=values)
    other = plugin.FederatedTrainer(asked, get_model("BPR")(asked, train.dataset))
    other.fit(train, valid, verbose=False)
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


@pytest.mark.parametrize(
    "arguments", [["pytest", "-q", "--tb=short", "--seed=3"], ["ipykernel_launcher.py", "--f=k.json"]]
)
def test_the_arguments_of_pytest_and_jupyter_are_nobodys_options(
    atomic_folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", arguments)
    values = {"data_path": str(atomic_folder), "gpu_id": ""}
    for config in (
        Config("FedMF", "tiny", config_dict=dict(values)),
        Config("BPR", "tiny", config_dict=dict(values)),  # of RecBole's own for its own model
        plugin.make_config("BPR", "tiny", values),
    ):
        assert config["seed"] == 2020
        assert config["tb"] is None
        assert config["f"] is None


@pytest.mark.parametrize(
    "options",
    [
        {**SAMPLED, "metrics": ["Recall", "AttackAUC"]},
        {
            "metrics": ["AttackBAcc", "AUC", "LogLoss"],
            "valid_metric": "AUC",
            "eval_args": {"split": {"RS": [0.8, 0.1, 0.1]}, "mode": "labeled"},
        },
        {**SAMPLED, "metrics": "AttackAUC", "valid_metric": "AttackAUC@gender"},
    ],
    ids=["ranking", "value", "alone"],
)
def test_attack_metrics_stand_beside_metrics_of_either_kind(atomic_folder: Path, options: dict[str, Any]) -> None:
    values = {"data_path": str(atomic_folder), "gpu_id": "", **options}
    for config in (Config("FM", "tiny", config_dict=dict(values)), plugin.make_config("FM", "tiny", values)):
        asked = options["metrics"]
        assert config["metrics"] == ([asked] if isinstance(asked, str) else asked)
        assert config["valid_metric_bigger"] is ("Attack" not in str(options["valid_metric"]))


def test_importing_the_package_does_not_import_recbole(tmp_path: Path) -> None:
    found = script(
        tmp_path,
        """
        import json, sys
        import fedrec_unlearn, fedrec_unlearn.cli
        print(json.dumps(sorted(name for name in ("recbole", "torch", "flwr") if name in sys.modules)))
        """,
    )
    assert found == []


def test_without_recbole_or_on_a_newer_python_the_remedy_is_told(tmp_path: Path) -> None:
    program = """
        import importlib.util, json, sys
        import numpy, pandas, scipy, torch
        {patch}
        try:
            import fedrec_unlearn.recbole
        except Exception as error:
            print(json.dumps([type(error).__name__, str(error)]))
        """
    missing = (
        "f = importlib.util.find_spec; importlib.util.find_spec = lambda n, *a: None if n == 'recbole' else f(n, *a)"
    )
    name, words = script(tmp_path, program.format(patch=missing))
    assert name == "DependencyError"
    assert "pip install 'fedrec-unlearn[recbole]'" in words
    name, words = script(tmp_path, program.format(patch="sys.version_info = (3, 12, 1, 'final', 0)"))
    assert name == "DependencyError"
    assert "use Python 3.11" in words
