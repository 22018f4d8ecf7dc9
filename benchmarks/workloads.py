"""Workloads of the federation for the programs here: interactions read by the package, a model, a state."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from fedrec_unlearn.config import Config, DataConfig
from fedrec_unlearn.data import load_dataset
from fedrec_unlearn.data.text import DataWarning
from fedrec_unlearn.data.types import Dataset, UserItems
from fedrec_unlearn.federation.engine import IntArray, Workload
from fedrec_unlearn.federation.local_data import ClientData
from fedrec_unlearn.federation.state import RunState, initial_state
from fedrec_unlearn.federation.transport import make_transport
from fedrec_unlearn.federation.vectorised import VectorisedEngine
from fedrec_unlearn.models import make_model, make_objective

CPU = torch.device("cpu")


def read_dataset(name: str, data_dir: Path | None) -> Dataset:
    """A data set by its card's name; nothing here looks at times, so their gaps are not warned of.

    Raises:
        DataError: not found.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return load_dataset(DataConfig(name=name, dir=None if data_dir is None else str(data_dir)))


def all_interactions(dataset: Dataset) -> UserItems:
    """Everything as training items: nothing is held out where only time is measured."""
    return UserItems.from_pairs(dataset.user, dataset.item, dataset.n_users, dataset.n_items)


@dataclass(frozen=True)
class Federation:
    """A workload with an engine and a state, on the CPU and without item features."""

    work: Workload
    engine: VectorisedEngine
    state: RunState
    users: IntArray
    """All clients that can train."""

    @classmethod
    def of(cls, config: Config, train: UserItems, dtype: torch.dtype = torch.float32) -> Federation:
        """Build one.

        Args:
            config: model, federation and seed.
            train: the clients' items.
            dtype: of all tables; float64 for comparing two computations.
        """
        model = make_model(config.model, train.n_users, train.n_items)
        work = Workload(
            model,
            make_objective(config.federation),
            ClientData(train, CPU, dtype),
            config.federation,
            config.seed,
            make_transport(config.federation.transport, train.n_items),
        )
        state = initial_state(model, config, CPU)
        state.private, server = state.private.to(dtype), state.server
        server.items = server.items.to(dtype)
        server.dense = {name: value.to(dtype) for name, value in server.dense.items()}
        server.moments = {name: value.to(dtype) for name, value in server.moments.items()}
        return cls(work, VectorisedEngine(work), state, work.eligible())

    def entries(self) -> int:
        """Positives and negatives of all clients in one pass."""
        counts = torch.as_tensor(self.work.clients.counts)
        unseen = self.work.model.n_items - counts
        return int((counts + torch.minimum(counts * self.work.num_negatives, unseen)).sum())
