"""Whole runs are started as a user would, and their folders read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import datasets, quality
from benchmarks.experiments import CONFIGS, train
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.errors import RunError

OPTIONS = {"data.name": "synthetic", "federation.rounds": 6, "evaluation.every": 3, "attack.attributes": "gender"}


def test_a_run_ends_with_metrics_times_and_memory(tmp_path: Path) -> None:
    finished = train("demo", tmp_path / "run", None, {**OPTIONS, "model.embedding_dim": 8})
    assert finished.run["status"] == "finished"
    assert finished.run["rounds_done"] == 6
    assert finished.config.model.embedding_dim == 8
    assert 0 <= finished.test("ndcg@10") <= 1
    assert 0 < finished.popularity("ndcg@10") <= 1
    assert finished.round_seconds > 0
    assert finished.evaluation_seconds > 0
    assert finished.cpu_seconds > 0


def test_a_failed_run_quotes_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"(?s)demo\.yaml ended with status 3.*no-such-data"):
        train("demo", tmp_path / "run", tmp_path, {"data.name": "no-such-data"})


def test_a_partial_data_set_is_taken_only_where_the_whole_is_absent(tmp_path: Path) -> None:
    assert datasets.found_name("yelp2018", tmp_path) == "yelp2018"
    (tmp_path / "yelp2018-partial").mkdir()
    assert datasets.found_name("yelp2018", tmp_path) == "yelp2018-partial"
    (tmp_path / "yelp2018").mkdir()
    assert datasets.found_name("yelp2018", tmp_path) == "yelp2018"


def test_the_spread_is_the_sample_standard_deviation() -> None:
    runs = [{"test": {"ndcg@10": value}} for value in (0.1, 0.2, 0.3)]
    assert quality.spread(runs, ["ndcg@10"])["ndcg@10"] == pytest.approx({"mean": 0.2, "std": 0.1})
    assert quality.spread(runs[:1], ["ndcg@10"])["ndcg@10"] == {"mean": 0.1, "std": 0.0}


@pytest.mark.parametrize("name", [*(f"{data}-mf" for data in datasets.DATASETS), quality.LEAVE_ONE_OUT])
def test_evaluations_fall_on_whole_passes(name: str) -> None:
    users = {"yelp2018": 13_455, "gowalla": 29_858, "ml-1m": 6_040}
    config = load_config(CONFIGS / f"{name}.yaml")
    per_pass = -(-users[config.data.name] // config.federation.clients_per_round)
    assert config.evaluation.every % per_pass == 0
    assert config.federation.rounds % per_pass == 0


@pytest.mark.parametrize("model", list(quality.RIVALS))
def test_the_four_models_are_trained_under_one_protocol(model: str) -> None:
    config, base = (load_config(CONFIGS / f"ml-100k-{name}.yaml") for name in (model, "mf"))
    assert config.model.name == model
    assert (config.data, config.split, config.evaluation.topk) == (base.data, base.split, base.evaluation.topk)
    assert config.evaluation.select_by == "ndcg@10"
