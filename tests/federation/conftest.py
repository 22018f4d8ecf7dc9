"""A small federation: users with very different numbers of items, every model and option."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from fedrec_unlearn.config import Config, FederationConfig, ModelConfig
from fedrec_unlearn.data.types import UserItems
from fedrec_unlearn.federation.engine import Workload
from fedrec_unlearn.federation.local_data import ClientData
from fedrec_unlearn.federation.state import RunState, initial_state
from fedrec_unlearn.federation.transport import make_transport
from fedrec_unlearn.models import make_model, make_objective

N_USERS, N_ITEMS, FIELDS = 19, 31, (3, 4)


@dataclass
class Federation:
    work: Workload
    state: RunState
    config: Config
    train: UserItems


def ragged(sizes: list[int], n_items: int, seed: int = 5) -> UserItems:
    """Users with `sizes` random items each, rated 1 to 5."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(len(sizes)), sizes)
    item = np.concatenate([rng.choice(n_items, size, replace=False) for size in sizes])
    rating = rng.integers(1, 6, len(user)).astype(float)
    return UserItems.from_pairs(user, item, len(sizes), n_items, rating)


@pytest.fixture
def make_federation() -> Callable[..., Federation]:
    """Makes a workload and its first state: model's name, whether with item features, options of `federation`."""

    def make(model: str = "mf", features: bool = False, **options: Any) -> Federation:
        federation = FederationConfig(**{"client_learning_rate": 0.1, "user_learning_rate": 0.2, **options})
        select_by = "rmse" if federation.objective == "mse" else "ndcg@10"
        config = Config(
            seed=3,
            model=ModelConfig(name=model, embedding_dim=6, hidden_sizes=(8, 5), init_std=0.3),  # type: ignore[arg-type]
            federation=federation,
            evaluation=dataclasses.replace(Config().evaluation, select_by=select_by),
        )
        dtype = torch.float64 if federation.ring else torch.float32
        table = None
        if features:
            draw = torch.rand((N_ITEMS, sum(FIELDS)), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
            table = (draw > 0.5).to(dtype) / 2
        rng = np.random.default_rng(8)
        train = ragged([0, 1, N_ITEMS, N_ITEMS - 1, *rng.integers(2, 16, N_USERS - 4).tolist()], N_ITEMS)
        work = Workload(
            model=make_model(config.model, N_USERS, N_ITEMS, FIELDS if features else ()),
            objective=make_objective(federation),
            clients=ClientData(train, torch.device("cpu"), dtype, rating_mean=3.0),
            config=federation,
            seed=config.seed,
            transport=make_transport(federation.transport, N_ITEMS),
            features=table,
        )
        return Federation(work, initial_state(work.model, config, torch.device("cpu"), 3.0), config, train)

    return make
