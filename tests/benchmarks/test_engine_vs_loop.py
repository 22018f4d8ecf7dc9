"""The sample the loop is timed on stands for all clients, and arms that disagree are seen."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks import engine_vs_loop, growth
from benchmarks.lean_loop import LeanLoop


def test_a_systematic_sample_is_distinct_and_has_all_sizes_in_their_shares() -> None:
    counts = np.random.default_rng(0).integers(1, 500, size=1003)
    sample = engine_vs_loop.systematic_sample(counts, 100, seed=1)
    assert len(np.unique(sample)) == 100
    # every tenth by size: each tenth part of the order holds ten of the sample
    ranks = np.argsort(np.argsort(counts, kind="stable"), kind="stable")[sample]
    assert np.all(np.abs(np.bincount(ranks * 10 // 1003, minlength=10) - 10) <= 1)
    assert abs(counts[sample].mean() / counts.mean() - 1) < 0.02


def test_every_client_is_as_likely_as_any_other_in_a_systematic_sample() -> None:
    counts = np.array([1, 1, 1, 5, 9, 40, 40, 700])
    drawn = np.zeros(len(counts))
    for seed in range(1200):
        drawn[engine_vs_loop.systematic_sample(counts, 3, seed)] += 1
    assert np.all(np.abs(drawn / 1200 - 3 / 8) < 0.06)


def test_a_sample_as_large_as_the_population_is_the_population() -> None:
    sample = engine_vs_loop.systematic_sample(np.array([3, 1, 2]), 10, seed=0)
    assert sorted(sample.tolist()) == [0, 1, 2]


@pytest.mark.parametrize("model", ["mf", "fm", "ncf", "deepfm"])
def test_the_two_arms_agree(model: str) -> None:
    train = growth.synthetic_items(users=30, items=60, seed=0)
    assert engine_vs_loop.deviation(engine_vs_loop.settings(model, 2), train, np.arange(30)) < 1e-6


def test_a_loop_that_trains_on_other_negatives_deviates(monkeypatch: pytest.MonkeyPatch) -> None:
    train = growth.synthetic_items(users=30, items=60, seed=0)
    stock = LeanLoop.train
    monkeypatch.setattr(LeanLoop, "train", lambda self, users, number: stock(self, users, number + 1))
    config = engine_vs_loop.settings("mf", 1)
    assert engine_vs_loop.deviation(config, train, np.arange(30)) > engine_vs_loop.TOLERANCE


def test_stages_add_up_to_the_pass_and_leave_the_federation_as_it_was() -> None:
    from benchmarks.stages import timed_stages
    from benchmarks.workloads import Federation
    from fedrec_unlearn.federation import bilinear, kernels

    before = (bilinear.train_block, kernels.weighted_rows)
    ours = Federation.of(engine_vs_loop.settings("mf", 1), growth.synthetic_items(users=40, items=60, seed=0))
    plain = ours.engine.train_clients(ours.state, ours.users, 0)
    again = Federation.of(engine_vs_loop.settings("mf", 1), growth.synthetic_items(users=40, items=60, seed=0))
    with timed_stages() as stages:
        timed = again.engine.train_clients(again.state, again.users, 0)
    assert torch.equal(plain.items, timed.items)
    assert stages.calls["local_data.ClientData.local"] >= 1
    assert all(seconds >= 0 for seconds in stages.seconds.values())
    assert (bilinear.train_block, kernels.weighted_rows) == before
