"""The loop the engine is timed against does the work of the federation, and no other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.lean_loop import LeanLoop
from benchmarks.workloads import Federation
from fedrec_unlearn.config import Config, FederationConfig, ModelConfig
from fedrec_unlearn.data.types import UserItems
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.federation.reference import ReferenceEngine

N_USERS, N_ITEMS = 7, 30


def interactions() -> UserItems:
    """Users with 1 to 28 of 30 items, so that some have fewer unseen items than training items."""
    draws = np.random.default_rng(3)
    counts = np.array([1, 2, 5, 9, 14, 22, 28])
    items = [draws.choice(N_ITEMS, size=count, replace=False) for count in counts]
    return UserItems.from_pairs(np.repeat(np.arange(N_USERS), counts), np.concatenate(items), N_USERS, N_ITEMS)


def settings(model: str, local_epochs: int, **federation: object) -> Config:
    options = {"user_learning_rate": 0.2, "client_learning_rate": 0.1, "clients_per_round": 0, **federation}
    return Config(
        model=ModelConfig(name=model, embedding_dim=5, hidden_sizes=(6, 4), init_std=0.5),  # type: ignore[arg-type]
        federation=FederationConfig(local_epochs=local_epochs, **options),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("local_epochs", [1, 4])
@pytest.mark.parametrize("model", ["mf", "fm", "ncf", "deepfm"])
def test_two_rounds_of_the_loop_equal_two_rounds_of_the_reference_engine(
    model: str, local_epochs: int, l2: float
) -> None:
    train = interactions()
    ours = Federation.of(settings(model, local_epochs, l2=l2), train)
    loop = LeanLoop(ours.work, ours.state, train)
    reference = ReferenceEngine(ours.work)
    users = np.array([6, 0, 3, 5, 1])
    expected = [reference.train_clients(ours.state, users, number) for number in (4, 5)]
    for number in (4, 5):
        loop.train(users, number)
    items, dense = loop.contribution()
    torch.testing.assert_close(items, expected[0].items + expected[1].items, rtol=1e-4, atol=1e-5)
    assert dense.keys() == expected[0].dense.keys()
    for name, value in dense.items():
        torch.testing.assert_close(value, expected[0].dense[name] + expected[1].dense[name], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loop.private_rows(), ours.state.private, rtol=1e-4, atol=1e-5)


def test_reset_forgets_what_was_trained() -> None:
    train = interactions()
    ours = Federation.of(settings("ncf", 2), train)
    loop = LeanLoop(ours.work, ours.state, train)
    users = np.arange(N_USERS)
    loop.train(users, 0)
    first = loop.contribution()[0]
    assert not torch.equal(loop.private_rows(), ours.state.private)
    loop.reset(ours.state)
    assert torch.equal(loop.private_rows(), ours.state.private)
    loop.train(users, 0)
    assert torch.equal(loop.contribution()[0], first)


@pytest.mark.parametrize(
    "option", [{"objective": "bce"}, {"num_negatives": 2}, {"ring": True}, {"client_weighting": "uniform"}]
)
def test_work_the_loop_is_not_written_for_is_refused(option: dict[str, object]) -> None:
    train = interactions()
    ours = Federation.of(settings("mf", 1, **option), train)
    with pytest.raises(ConfigError, match=f"federation.{next(iter(option))}"):
        LeanLoop(ours.work, ours.state, train)
