"""RecBole's Config and trainer leave the process and the current folder as they were."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import pickle
import sys
from pathlib import Path

import pytest
import torch

from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.recbole import make_config, make_trainer

if importlib.util.find_spec("recbole") is None:
    pytest.skip("recbole is not installed", allow_module_level=True)
if sys.version_info >= (3, 12):
    pytest.skip("RecBole needs Python 3.11", allow_module_level=True)


def test_the_command_line_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["test", "--learning_rate=7", "--model=FM"])
    config = make_config("BPR", "ml-100k", {"gpu_id": ""})
    assert config["learning_rate"] == 0.001
    assert config["model"] == "BPR"


def test_text_options_are_read_as_literals_and_never_run(tmp_path: Path) -> None:
    harmful = f"__import__('pathlib').Path({str(tmp_path / 'made')!r}).touch()"
    config = make_config("BPR", "ml-100k", {"gpu_id": "", "topk": "[5, 10]", "shuffle": "False", "note": harmful})
    assert config["topk"] == [5, 10]
    assert config["shuffle"] is False
    assert config["note"] == harmful
    assert not (tmp_path / "made").exists()


def test_files_are_read_and_the_dict_wins(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("epochs: 7\nlearning_rate: 0.5\n")
    config = make_config("BPR", "ml-100k", {"gpu_id": "", "epochs": 3}, [tmp_path / "a.yaml"])
    assert (config["epochs"], config["learning_rate"]) == (3, 0.5)


def test_a_missing_file_and_an_unknown_model_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml does not exist"):
        make_config("BPR", "ml-100k", {}, [tmp_path / "nowhere.yaml"])
    with pytest.raises(ConfigError, match="no model named 'bpr'"):
        make_config("bpr", "ml-100k", {"gpu_id": ""})


def test_training_writes_nothing_but_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    config = make_config("BPR", "ml-100k", {"gpu_id": "", "epochs": 1, "train_batch_size": 50000})
    data = importlib.import_module("recbole.data")
    train, valid, test = data.data_preparation(config, data.create_dataset(config))
    trainer = make_trainer(config, importlib.import_module("recbole.utils").get_model("BPR")(config, train.dataset))
    trainer.fit(train, valid, verbose=False)
    trainer.evaluate(test)
    assert list(tmp_path.iterdir()) == []
    assert [Path(trainer.saved_model_file)] == list(Path(config["checkpoint_dir"]).iterdir())


def test_checkpoints_nobody_asked_for_go_away_with_the_config() -> None:
    config = make_config("BPR", "ml-100k", {"gpu_id": ""})
    folder = Path(config["checkpoint_dir"])
    assert folder.is_dir()
    del config
    gc.collect()
    assert not folder.exists()


def test_a_given_checkpoint_folder_is_kept(tmp_path: Path) -> None:
    config = make_config("BPR", "ml-100k", {"gpu_id": "", "checkpoint_dir": str(tmp_path)})
    assert config["checkpoint_dir"] == str(tmp_path)
    del config
    gc.collect()
    assert tmp_path.is_dir()


@pytest.mark.parametrize("before", [None, "3"])
def test_asking_for_the_cpu_does_not_hide_gpus_from_the_process(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    config = make_config("BPR", "ml-100k", {"gpu_id": ""})
    assert config["device"].type == "cpu"
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


def test_data_path_is_honoured_for_ml_100k_too(tmp_path: Path) -> None:
    config = make_config("BPR", "ml-100k", {"gpu_id": "", "data_path": str(tmp_path)})
    assert config["data_path"] == str(tmp_path / "ml-100k")


def test_a_config_survives_pickling() -> None:
    config = make_config("BPR", "ml-100k", {"gpu_id": ""})
    again = pickle.loads(pickle.dumps(config))
    assert again.final_config_dict == config.final_config_dict
