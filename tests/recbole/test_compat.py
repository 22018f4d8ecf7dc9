"""Each cure against what RecBole gives on the releases it was written for."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedrec_unlearn.errors import DependencyError, RunError
from fedrec_unlearn.recbole import _compat, make_config, make_trainer, prepare

if importlib.util.find_spec("recbole") is None:
    pytest.skip("recbole is not installed", allow_module_level=True)
if sys.version_info >= (3, 12):
    pytest.skip("RecBole needs Python 3.11", allow_module_level=True)

# i2 has neither genres nor year, u2 neither gender nor income, the second rating is missing
INTER = "user_id:token\titem_id:token\trating:float\nu1\ti1\t5\nu1\ti2\t\nu2\ti1\t3\nu2\ti3\t1\n"
USER = "user_id:token\tgender:token\tincome:float\nu1\tM\t10\nu2\t\t\nu9\tF\t30\n"
ITEM = "item_id:token\tclass:token_seq\tvec:float_seq\tyear:token\ni1\ta b\t1 2 3\t1999\ni2\t\t\t\ni3\tb\t4 5\t2000\n"


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """RecBole's `data_path` with the data set `toy`, full of gaps, and the data set `pairs`, ids only."""
    (tmp_path / "data/toy").mkdir(parents=True)
    for suffix, text in (("inter", INTER), ("user", USER), ("item", ITEM)):
        (tmp_path / f"data/toy/toy.{suffix}").write_text(text)
    (tmp_path / "data/pairs").mkdir()
    rows = [f"u{user}\ti{item}" for user in range(12) for item in range(20) if (user + item) % 2]
    (tmp_path / "data/pairs/pairs.inter").write_text("user_id:token\titem_id:token\n" + "\n".join(rows) + "\n")
    return tmp_path / "data"


def options(folder: Path, **more: Any) -> dict[str, Any]:
    return {"data_path": str(folder), "gpu_id": "", "load_col": None, "epochs": 2, **more}


def toy_dataset(folder: Path, **more: Any) -> Any:
    config = make_config("FM", "toy", options(folder, threshold=None, **more))
    return importlib.import_module("recbole.data").create_dataset(config)


def trained(folder: Path) -> Any:
    config = make_config("BPR", "pairs", options(folder, train_batch_size=16))
    data = importlib.import_module("recbole.data")
    train, valid, _ = data.data_preparation(config, data.create_dataset(config))
    model = importlib.import_module("recbole.utils").get_model("BPR")(config, train.dataset)
    trainer = make_trainer(config, model)
    trainer.fit(train, valid, verbose=False)
    return trainer


def test_prepare_gives_the_same_names_when_called_again() -> None:
    names = prepare()
    assert prepare() == names
    assert set(names) <= set(_compat.CURES)


def test_a_cure_that_is_in_force_finds_nothing_left_to_cure() -> None:
    prepare()
    assert not _compat.cure_dok_update()


def test_prepare_names_the_remedy_where_recbole_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "recbole" else find(name))
    with pytest.raises(DependencyError, match=r"pip install 'fedrec-unlearn\[recbole\]'"):
        prepare()


def test_prepare_refuses_a_python_that_ray_does_not_support(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compat, "sys", SimpleNamespace(version_info=(3, 12, 1)))
    with pytest.raises(DependencyError, match=r"this is 3\.12.*use Python 3\.11"):
        prepare()


def test_ray_cure_imports_quick_start_and_leaves_no_stand_in_behind() -> None:
    if "ray" not in prepare():
        pytest.skip("ray can be imported here")
    code = (
        "import os, sys; from fedrec_unlearn.recbole import prepare; prepare(); "
        "from recbole.quick_start import run_recbole; ray = sys.modules.get('ray'); "
        "print(ray is not None and not hasattr(ray, '__file__'), 'RAY_CLIENT_MODE' in os.environ)"
    )
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False False"


def test_numpy_cure_lets_stock_config_be_made_and_keeps_names_numpy_has(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare()
    monkeypatch.setattr(sys, "argv", ["test"])
    kept = vars(np).get("bool", np.bool_)
    config = importlib.import_module("recbole.config").Config("BPR", "ml-100k", config_dict={"gpu_id": ""})
    assert config["learning_rate"] == 0.001
    assert vars(np)["float"] is np.float64
    assert vars(np)["bool"] is kept


def test_torch_cure_writes_checkpoints_that_load_as_plain_data(folder: Path) -> None:
    trainer = trained(folder)
    stored = torch.load(trainer.saved_model_file, weights_only=True)
    assert stored["config"]["model"] == "BPR"
    assert stored["config"]["train_batch_size"] == 16
    assert type(stored["best_valid_score"]) is float
    assert [file.name for file in Path(trainer.checkpoint_dir).iterdir()] == [Path(trainer.saved_model_file).name]


def test_torch_cure_resumes_where_the_checkpoint_was_written(folder: Path) -> None:
    trainer = trained(folder)
    best = torch.load(trainer.saved_model_file, weights_only=True)
    with torch.no_grad():
        trainer.model.user_embedding.weight.zero_()
    trainer.resume_checkpoint(trainer.saved_model_file)
    assert trainer.start_epoch == best["epoch"] + 1
    assert torch.equal(trainer.model.user_embedding.weight, best["state_dict"]["user_embedding.weight"])
    moments = trainer.optimizer.state_dict()["state"][0]["exp_avg"]
    assert torch.equal(moments, best["optimizer"]["state"][0]["exp_avg"])
    assert moments.abs().sum() > 0


def test_a_checkpoint_entry_that_is_not_plain_is_named() -> None:
    assert _compat.plain({"a": [np.float64(0.5), None]}, "state") == {"a": [0.5, None]}
    with pytest.raises(RunError, match=r"other_parameter\['graph'\] holds a set"):
        _compat.plain({"graph": {1, 2}}, "other_parameter")


def test_dok_cure_gives_lightgcn_the_normalised_graph(folder: Path) -> None:
    config = make_config("LightGCN", "pairs", options(folder))
    data = importlib.import_module("recbole.data")
    train, _, _ = data.data_preparation(config, data.create_dataset(config))
    model = importlib.import_module("recbole.utils").get_model("LightGCN")(config, train.dataset)
    users, items = (train.dataset.inter_feat[column].numpy() for column in ("user_id", "item_id"))
    graph = np.zeros((model.n_users + model.n_items,) * 2)
    graph[users, model.n_users + items] = graph[model.n_users + items, users] = 1.0
    scale = (graph.sum(axis=1) + 1e-7) ** -0.5
    expected = scale[:, None] * graph * scale[None, :]
    np.testing.assert_allclose(model.norm_adj_matrix.to_dense().numpy(), expected, rtol=1e-5)


def test_empty_sequences_load_as_empty_and_the_others_unchanged(folder: Path) -> None:
    items = toy_dataset(folder).item_feat
    assert [list(cell) for cell in items["vec"]] == [[], [1.0, 2.0, 3.0], [], [4.0, 5.0]]


def test_missing_tokens_become_0_and_missing_numbers_the_mean(folder: Path) -> None:
    data = toy_dataset(folder, normalize_all=False)
    # rows: [PAD], u1, u2, u9; values of pandas 2.3
    assert data.user_feat["gender"].tolist() == [0, 1, 0, 2]
    assert data.user_feat["income"].tolist() == [20.0, 10.0, 20.0, 30.0]
    assert data.item_feat["year"].tolist() == [0, 1, 0, 2]
    assert data.inter_feat["rating"].tolist() == [5.0, 3.0, 3.0, 1.0]
    data._change_feat_format()
    assert data.user_feat["gender"].tolist() == [0, 1, 0, 2]


def test_remap_numbers_the_tokens_of_sequences_in_order_of_appearance(folder: Path) -> None:
    data = toy_dataset(folder)
    assert data.field2id_token["class"].tolist() == ["[PAD]", "a", "b"]
    assert [list(cell) for cell in data.item_feat["class"]] == [[], [1, 2], [], [2]]
    assert data.field2id_token["user_id"].tolist() == ["[PAD]", "u1", "u2", "u9"]
    assert data.field2token_id["gender"] == {"[PAD]": 0, "M": 1, "F": 2}


def test_stock_fm_loads_ml_100k_with_its_default_columns() -> None:
    data = importlib.import_module("recbole.data").create_dataset(make_config("FM", "ml-100k", {"gpu_id": ""}))
    data._change_feat_format()
    # sums of pandas 2.3
    sums = {"age": 20274, "gender": 1216, "occupation": 7710}
    assert {name: int(data.user_feat[name].sum()) for name in sums} == sums
    assert int(data.item_feat["class"].sum()) == 20102


@pytest.mark.parametrize("model", ["BPR", "LightGCN", "NeuMF"])
def test_stock_run_recbole_works_end_to_end(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    prepare()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["test"])
    run_recbole = importlib.import_module("recbole.quick_start").run_recbole
    # seven digits, because training as such must move the score away from a constant
    given = options(folder, show_progress=False, state="ERROR", metric_decimal_place=7)
    result = run_recbole(model=model, dataset="pairs", config_dict=given)
    assert 0.0 < result["test_result"]["ndcg@10"] <= 1.0
