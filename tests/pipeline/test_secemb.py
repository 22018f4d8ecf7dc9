"""Training through the two servers: the bits of ring mode, for every model, and what is refused, counted and told."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedrec_unlearn.config import AttackConfig, Config
from fedrec_unlearn.errors import AttackError, ConfigError, FedRecError, TransportError
from fedrec_unlearn.pipeline import attack, resume, train
from fedrec_unlearn.pipeline import secemb_rounds as rounds_module
from fedrec_unlearn.progress import Interrupted
from fedrec_unlearn.secemb.client import Client

MODELS = ("mf", "ncf", "fm", "deepfm")
FEW = {"federation.rounds": 4, "evaluation.every": 0, "federation.checkpoint_every": 2, "federation.max_items": 30}
RING = {**FEW, "federation.ring": True}
SECEMB = {**FEW, "federation.transport": "secemb"}

Make = Callable[..., Config]


def tensors(run: Path, part: str = "latest") -> dict[str, torch.Tensor]:
    return dict(load_file(run / f"{part}.safetensors"))


def assert_same_bits(one: Path, other: Path) -> None:
    first, second = tensors(one), tensors(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def rounds_of(run: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event["event"] == "round"]


def runs(config: Make, tmp_path: Path, one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[Path, Path]:
    return train(config("one", one)), train(config("other", other))


@pytest.mark.parametrize("model", MODELS)
def test_every_model_ends_with_the_bits_of_ring_mode(config: Make, tmp_path: Path, model: str) -> None:
    options = {"model.name": model, "model.hidden_sizes": [8]}
    plain, hidden = runs(config, tmp_path, {**RING, **options}, {**SECEMB, **options})
    assert_same_bits(plain, hidden)
    assert all(event["saturated"] == event["deferred"] == 0 for event in rounds_of(hidden))


@pytest.mark.parametrize("model", ["mf", "deepfm"])
def test_movielens_ends_with_the_bits_of_ring_mode(config: Make, tmp_path: Path, model: str) -> None:
    """The mission's claim of losslessness on real data: no number differs, whichever way it travelled."""
    pytest.importorskip("recbole", reason="ML-100K is read from the installed recbole package")
    options = {
        "data.name": "ml-100k",
        "model.name": model,
        "model.embedding_dim": 64,
        "federation.rounds": 3,
        "federation.max_items": 200,
        "federation.clients_per_round": 32,
        "federation.checkpoint_every": 3,
    }
    plain, hidden = runs(config, tmp_path, {**RING, **options}, {**SECEMB, **options})
    assert_same_bits(plain, hidden)
    assert rounds_of(hidden)[0]["bytes_up"] < rounds_of(plain)[0]["bytes_up"] / 5


@pytest.mark.parametrize(
    "options",
    [
        {"secemb.encoding": "paper"},
        {"secemb.whole_keys": True},
        {"secemb.ring_bits": 64},
        {"secemb.execution": "counted"},
        {"federation.engine": "reference"},
        {"federation.item_aggregation": "row_mean"},
        {"federation.local_epochs": 3},
        {"federation.objective": "bce", "federation.num_negatives": 2},
        {"federation.client_weighting": "uniform"},
        {"federation.block_mib": 0.01},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_no_option_changes_a_bit(config: Make, tmp_path: Path, options: dict[str, Any]) -> None:
    shared = {name: value for name, value in options.items() if name.startswith("federation.")}
    shared.pop("federation.engine", None)
    plain, hidden = runs(config, tmp_path, {**RING, **shared}, {**SECEMB, **options})
    assert_same_bits(plain, hidden)


def test_an_adversary_travels_with_the_update_and_ends_with_the_same_bits(config: Make, tmp_path: Path) -> None:
    unlearn = {"unlearn.method": "fedau2", "unlearn.attributes": ["gender"], "unlearn.epsilon": 0.05}
    plain, hidden = runs(config, tmp_path, {**RING, **unlearn}, {**SECEMB, **unlearn})
    assert_same_bits(plain, hidden)
    counted = train(config("counted", {**SECEMB, **unlearn, "secemb.execution": "counted"}))
    assert_same_bits(plain, counted)
    assert [event["adversary"] for event in rounds_of(plain)] == [event["adversary"] for event in rounds_of(hidden)]
    assert [event["bytes_up"] for event in rounds_of(hidden)] == [event["bytes_up"] for event in rounds_of(counted)]


def test_bytes_do_not_depend_on_what_clients_hold(config: Make, tmp_path: Path) -> None:
    run = train(config("run", SECEMB))
    assert len({event["bytes_up"] / event["clients"] for event in rounds_of(run)}) == 1
    assert len({event["bytes_down"] / event["clients"] for event in rounds_of(run)}) == 1
    assert all(event["bytes_between"] > 0 for event in rounds_of(run))


def test_counted_bytes_are_those_that_are_sent(config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    for name in ("request", "update"):
        made = getattr(Client, name)

        def counting(self: Client, *args: Any, made: Any = made) -> tuple[bytes, bytes]:
            messages: tuple[bytes, bytes] = made(self, *args)
            sent.append(sum(map(len, messages)))
            return messages

        monkeypatch.setattr(Client, name, counting)
    run = train(config("run", {**SECEMB, "federation.rounds": 1}))
    assert sum(sent) == rounds_of(run)[0]["bytes_up"]


def test_resuming_gives_the_bits_of_not_stopping(config: Make, tmp_path: Path, stop_after: Any) -> None:
    whole = train(config("whole", SECEMB))
    with pytest.raises(Interrupted):
        train(config("cut", SECEMB), progress=stop_after(2))
    assert_same_bits(whole, resume(tmp_path / "cut"))


def test_an_item_without_a_tree_waits_for_another_round(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedrec_unlearn.secemb import client as client_module

    real = client_module.match

    def crowded(code: Any, items: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        trees = real(code, items)
        trees[5:7] = -1  # as if no rearrangement had made room
        return trees

    monkeypatch.setattr(client_module, "match", crowded)
    run = train(config("run", SECEMB))
    assert all(event["deferred"] > 0 for event in rounds_of(run))
    assert all(torch.isfinite(value).all() for value in tensors(run).values())
    monkeypatch.setattr(rounds_module, "match", crowded)
    assert_same_bits(run, train(config("counted", {**SECEMB, "secemb.execution": "counted"})))


def test_numbers_beyond_the_clip_are_saturated_and_counted(config: Make, tmp_path: Path) -> None:
    tight = {**SECEMB, "secemb.clip": 2.0**-10}
    run = train(config("run", tight))
    assert all(event["saturated"] > 0 for event in rounds_of(run))
    assert_same_bits(run, train(config("counted", {**tight, "secemb.execution": "counted"})))


NOISE = {
    **SECEMB,
    "secemb.noise_multiplier": 0.5,
    "secemb.clip_norm": 0.05,
    "federation.client_weighting": "uniform",
    "federation.rounds": 2,
}


def test_noise_is_in_the_sum_differs_between_runs_and_is_accounted_for(config: Make, tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="the extra dp is not installed")
    one, other = runs(config, tmp_path, NOISE, NOISE)
    assert not torch.equal(tensors(one)["items"], tensors(other)["items"])
    told = json.loads((one / "run.json").read_text())["privacy"]
    assert told["noise_multiplier"] == 0.5
    assert 0 < told["epsilon"] < 1000
    assert told["rounds"] == 2
    assert len(told["assumes"]) >= 4
    assert json.loads((train(config("none", SECEMB)) / "run.json").read_text())["privacy"] is None


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"secemb.min_clients": 61}, ConfigError, "secemb.min_clients is 61, and a round has 20 clients"),
        ({"secemb.clip": 1e6}, TransportError, "can leave a ring of 32 bits"),
        ({**NOISE, "secemb.execution": "counted"}, ConfigError, "counted adds no noise"),
        ({**NOISE, "secemb.noise_multiplier": 1e5}, FedRecError, "leaves no room in a ring of 32 bits"),
    ],
)
def test_what_cannot_work_is_refused_before_a_folder_is_made(
    config: Make, tmp_path: Path, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        train(config("run", {**SECEMB, **options}))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"federation.client_weighting": "interactions"}, "needs federation.client_weighting uniform"),
        ({"secemb.clip_norm": 0.0}, "must be positive when noise_multiplier is"),
        ({"secemb.servers": ["https://a"]}, "must be two URLs or none"),
        ({"secemb.servers": ["http://a", "http://b"]}, "must begin with https://"),
        ({"secemb.servers": ["https://a", "https://b"]}, "must name a folder"),
        ({"federation.max_items": 1}, "for one positive item and its negatives"),
        (
            {"unlearn.method": "grl", "unlearn.attributes": ["gender"], "unlearn.epsilon": 0.1},
            "does not go with unlearning during training",
        ),
    ],
)
def test_options_that_contradict_each_other_are_named(
    config: Make, tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        config("run", {**NOISE, **options})


def test_a_last_cohort_that_is_too_small_is_told_before_training(config: Make, tmp_path: Path) -> None:
    users = len(tensors(train(config("first", {**RING, "federation.rounds": 1})))["private"])
    size = users - 1  # leaves one client for the last round of a pass
    with pytest.raises(ConfigError, match="a round has 1 clients"):
        train(config("run", {**SECEMB, "federation.clients_per_round": size}))


def test_what_no_server_sees_is_not_attacked(config: Make, tmp_path: Path) -> None:
    run = train(config("run", SECEMB))
    for surface in ("update_support", "update_values", "decoded_support"):
        with pytest.raises(AttackError, match=f"under the secemb transport no server sees {surface}"):
            attack(run, replace(AttackConfig(), surfaces=(surface,), attackers=("logistic",)))


def test_a_cap_on_items_is_kept_by_every_transport(config: Make, tmp_path: Path) -> None:
    capped = train(config("run", {**FEW, "federation.max_items": 10, "federation.transport": "sparse"}))
    free = train(config("free", {**FEW, "federation.max_items": 0, "federation.transport": "sparse"}))
    for event in rounds_of(capped):
        assert event["interactions"] <= 5 * event["clients"]
    assert rounds_of(free)[0]["interactions"] > rounds_of(capped)[0]["interactions"]
