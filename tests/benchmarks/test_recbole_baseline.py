"""The baseline trains RecBole's own model and reports what RecBole reports."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import recbole_baseline
from benchmarks.atomic_files import movielens_pairs, write_atomic, write_atomic_split
from benchmarks.recbole_baseline import epoch_seconds, fit, open_run, train_recbole
from fedrec_unlearn.config import DataConfig, SplitConfig
from fedrec_unlearn.data.load import load_dataset
from fedrec_unlearn.data.splits import make_split

if importlib.util.find_spec("recbole") is None:
    pytest.skip("recbole is not installed", allow_module_level=True)
if sys.version_info >= (3, 12):
    pytest.skip("RecBole needs Python 3.11", allow_module_level=True)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def blocks() -> tuple[np.ndarray, np.ndarray]:
    """40 users in two groups; a group has 10 of its own 15 items, so the other items of the group are good guesses."""
    rows = [(user, 15 * (user % 2) + (user + step) % 15) for user in range(40) for step in range(10)]
    users, items = np.array(rows).T
    return users, items


@pytest.mark.parametrize("model", recbole_baseline.MODELS)
def test_every_model_learns_which_items_belong_together(tmp_path: Path, model: str) -> None:
    write_atomic(tmp_path, "blocks", blocks())
    options = {"train_batch_size": 64, "metric_decimal_place": 8}
    run = open_run(model, tmp_path, "blocks", tmp_path / "saved", learning_rate=0.01, epochs=15, overrides=options)
    assert run.sizes() == {"n_users": 40, "n_items": 30, "n_train": 320, "n_valid": 40, "n_test": 40}
    result = fit(run)
    # a user's held-out item is one of 22 unseen; guessing finds it in the first ten with probability 10/22
    assert result["test"]["recall@10"] > 0.8
    assert result["best_valid"] == pytest.approx(result["valid"]["ndcg@10"])
    assert len(run.epoch_cpu_seconds) == result["epochs_run"]
    assert result["best_epoch"] < result["epochs_run"] <= 15


def test_the_model_tested_is_that_of_the_best_epoch(tmp_path: Path) -> None:
    write_atomic(tmp_path, "blocks", blocks())
    run = open_run("BPR", tmp_path, "blocks", tmp_path / "saved", learning_rate=0.05, epochs=12)
    result = fit(run)
    again = run.trainer.evaluate(run.valid, load_best_model=False)
    assert again["ndcg@10"] == pytest.approx(result["valid"]["ndcg@10"])


def test_models_see_user_and_item_ids_only(tmp_path: Path) -> None:
    write_atomic(tmp_path, "ml-100k", blocks())
    (tmp_path / "ml-100k/ml-100k.user").write_text("user_id:token\tgender:token\n0\tM\n1\tF\n")
    run = open_run("DeepFM", tmp_path, "ml-100k", tmp_path / "saved")
    assert run.model.token_field_names == ["user_id", "item_id"]
    assert run.model.float_field_names == []


def test_the_learning_rate_is_the_one_with_the_best_validation_value(tmp_path: Path) -> None:
    write_atomic(tmp_path, "blocks", blocks())
    rates = (1e-6, 0.05)
    result = train_recbole("BPR", tmp_path, "blocks", learning_rates=rates, epochs=8)
    assert result["learning_rate"] == max(rates, key=lambda rate: result["tuning"][f"{rate:g}"]) == 0.05
    assert result["best_valid"] == result["tuning"]["0.05"]


def test_one_split_seed_gives_runs_of_other_seeds_the_same_split(tmp_path: Path) -> None:
    write_atomic(tmp_path, "blocks", blocks())
    runs = [open_run("BPR", tmp_path, "blocks", tmp_path, seed=seed, split_seed=2020) for seed in (1, 2)]
    tests = [run.test.dataset.inter_feat for run in runs]
    assert all(torch.equal(tests[0][column], tests[1][column]) for column in ("user_id", "item_id"))
    weights = [run.model.user_embedding.weight for run in runs]
    assert not torch.equal(weights[0], weights[1])


def test_our_split_of_ml_100k_is_the_one_recbole_trains_on(tmp_path: Path) -> None:
    write_atomic(tmp_path, "ml-100k", movielens_pairs("ml-100k", None))
    run = open_run("BPR", tmp_path, "ml-100k", tmp_path / "saved", seed=2020)
    assert run.sizes() == {"n_users": 943, "n_items": 1682, "n_train": 80808, "n_valid": 9596, "n_test": 9596}
    folder = Path(str(importlib.util.find_spec("recbole").origin)).parent / "dataset_example"  # type: ignore[union-attr]
    dataset = load_dataset(DataConfig(name="ml-100k", dir=str(folder)))
    split = make_split(dataset, SplitConfig(seed=2020))
    for name in ("train", "valid", "test"):
        theirs, ours = getattr(run, name).dataset, getattr(split, name)
        tokens = [theirs.id2token(column, theirs.inter_feat[column]) for column in ("user_id", "item_id")]
        user = np.repeat(np.arange(dataset.n_users), ours.counts)
        pairs = zip(dataset.user_tokens[user].tolist(), dataset.item_tokens[ours.items].tolist(), strict=True)
        assert set(pairs) == set(zip(*tokens, strict=True))


def test_epoch_seconds_trains_as_many_epochs_as_it_says(tmp_path: Path) -> None:
    users, items = blocks()
    parts = {name: (users[k::3], items[k::3]) for k, name in enumerate(("train", "valid", "test"))}
    write_atomic_split(tmp_path, "blocks", parts)
    run = open_run("BPR", tmp_path, "blocks", tmp_path / "saved", given_split=True)
    before = run.model.item_embedding.weight.clone()
    seconds = epoch_seconds(run, repeats=2, warmup=1)
    assert len(run.epoch_cpu_seconds) == 3
    assert seconds == pytest.approx(sum(run.epoch_cpu_seconds[1:]) / 2)
    assert not torch.equal(before, run.model.item_embedding.weight)


def test_the_command_prints_one_json_object_last_and_writes_nothing_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data/ml-100k"
    data.mkdir(parents=True)
    rows = zip(*blocks(), strict=True)
    (data / "u.data").write_text("".join(f"{user}\t{item}\t5\t0\n" for user, item in rows))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    arguments = ["--data-dir", str(tmp_path / "data"), "--model", "BPR", "--epochs", "1", "--seeds", "1,2"]
    assert recbole_baseline.main(arguments) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [run["seed"] for run in summary["runs"]] == [1, 2]
    mean = sum(run["test"]["ndcg@10"] for run in summary["runs"]) / 2
    assert summary["test_mean"]["ndcg@10"] == pytest.approx(mean)
    assert list((tmp_path / "here").iterdir()) == []


def test_a_missing_data_set_ends_the_command_with_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--data-dir", str(tmp_path), "--dataset", "ml-1m", "--model", "BPR"]
    assert recbole_baseline.main(arguments) == 3
    assert "recbole_baseline: ml-1m: none of these files exists" in capsys.readouterr().err
