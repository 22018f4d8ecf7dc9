"""From a configuration to the parts of a run: data, split, model, workload, evaluator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrec_unlearn.config import Config
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.data import Dataset, Split, load_dataset, make_split
from fedrec_unlearn.errors import RunError
from fedrec_unlearn.federation.checkpoint import Standing, load_state
from fedrec_unlearn.federation.device import resolve_device
from fedrec_unlearn.federation.engine import Workload
from fedrec_unlearn.federation.evaluation import Evaluator
from fedrec_unlearn.federation.local_data import ClientData
from fedrec_unlearn.federation.run_folder import RunFolder, read_json
from fedrec_unlearn.federation.state import RunState
from fedrec_unlearn.models import make_model, make_objective
from fedrec_unlearn.pipeline.terms import check_not_a_feature, make_term
from fedrec_unlearn.pipeline.transports import transport_of


@contextmanager
def torch_threads(config: Config) -> Iterator[None]:
    """Run with `config.threads` CPU threads, and put the number back afterwards."""
    before = torch.get_num_threads()
    if config.threads:
        torch.set_num_threads(config.threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Assembly:
    """The parts of a run, before or after training."""

    config: Config
    device: torch.device
    dataset: Dataset
    split: Split
    workload: Workload
    evaluator: Evaluator
    rating_mean: float

    @classmethod
    def of(cls, config: Config) -> Assembly:
        """Read, split and build everything a configuration names; writes nothing.

        Raises:
            FedRecError: whatever is wrong with the configuration, the data or the device.
        """
        device = resolve_device(config.device)
        check_not_a_feature(config)
        asked = dict.fromkeys((*config.attack.attributes, *config.unlearn.attributes))
        dataset = load_dataset(config.data, tuple(asked))
        split = make_split(dataset, config.split)
        table, fields = item_feature_table(dataset, config.data.item_features)
        model = make_model(config.model, dataset.n_users, dataset.n_items, fields)
        dtype = torch.float64 if config.federation.ring else torch.float32
        features = None if table is None else table.to(device=device, dtype=dtype)
        evaluator = Evaluator(model, split, config, device, features)
        objective = make_objective(config.federation)
        mean = float(split.train.ratings.mean()) if objective.needs_ratings and split.train.ratings is not None else 0.0
        clients = ClientData(split.train, device, dtype, mean)
        negatives = config.federation.num_negatives if objective.needs_negatives else 0
        workload = Workload(
            model=model,
            objective=objective,
            clients=clients,
            config=config.federation,
            seed=config.seed,
            transport=transport_of(config, clients, negatives),
            features=features,
            term=make_term(config, dataset, model, device),
        )
        return cls(config, device, dataset, split, workload, evaluator, mean)

    def describe_data(self) -> dict[str, Any]:
        """The `data` field of run.json."""
        attributes = {}
        for name, attribute in self.dataset.attributes.items():
            known = attribute.labels[attribute.labels >= 0]
            counts = np.bincount(known, minlength=len(attribute.classes))
            attributes[name] = {
                "classes": dict(zip(attribute.classes, counts.tolist(), strict=True)),
                "missing": int((attribute.labels < 0).sum()),
            }
        return {
            "name": self.config.data.name,
            "n_users": self.dataset.n_users,
            "n_items": self.dataset.n_items,
            "n_train": len(self.split.train.items),
            "n_valid": len(self.split.valid.items),
            "n_test": len(self.split.test.items),
            "attributes": attributes,
            "fingerprint": self.fingerprint(),
        }

    def describe_model(self) -> dict[str, Any]:
        """The `model` field of run.json: which tensors are private, item rows, dense."""
        model = self.workload.model
        return {
            "name": model.name,
            "private": model.user_layout.shapes(model.n_users),
            "item_rows": model.item_layout.shapes(model.n_items),
            "dense": {name: list(shape) for name, shape in model.dense_shapes.items()},
        }

    @property
    def term_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the shared parameters beside the recommender's: those of adversaries."""
        return {} if self.workload.term is None else self.workload.term.shapes

    def load(self, path: Path) -> tuple[RunState, Standing]:
        """A state of this run from one of its files.

        Raises:
            RunError: missing, damaged, or another run's.
        """
        return load_state(path, self.workload.model, self.device, self.term_shapes)

    def fingerprint(self) -> str:
        """Hash of what training and evaluation read: tells a resumed run that its data is still the same.

        Who has which item in which part, the ratings under the mse objective, and item features.
        """
        digest = hashlib.sha256()
        for part in (self.split.train, self.split.valid, self.split.test):
            read = [part.indptr, part.items]
            if self.workload.objective.needs_ratings and part.ratings is not None:
                read.append(part.ratings.view(np.int64))
            for values in read:
                digest.update(np.ascontiguousarray(values).tobytes())
        if self.workload.features is not None:
            digest.update(self.workload.features.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]


def item_feature_table(dataset: Dataset, names: tuple[str, ...]) -> tuple[Tensor | None, tuple[int, ...]]:
    """Item features as one table for FM and DeepFM.

    Args:
        dataset: has the features.
        names: which of them, in order.

    Returns:
        float64 (n_items, sum of fields): an item's values, each 1 / number of values it has in that field;
        and the number of values of each field. (None, ()) without names.
    """
    if not names:
        return None, ()
    blocks, fields = [], []
    for name in names:
        feature = dataset.item_features[name]
        block = torch.zeros(dataset.n_items, len(feature.values), dtype=torch.float64)
        counts = np.diff(feature.indptr)
        rows = torch.from_numpy(np.repeat(np.arange(dataset.n_items), counts))
        block[rows, torch.from_numpy(feature.indices)] = torch.from_numpy(
            np.repeat(1.0 / np.maximum(counts, 1), counts)
        )
        blocks.append(block)
        fields.append(len(feature.values))
    return torch.cat(blocks, dim=1), tuple(fields)


def reopen(run: Path) -> tuple[RunFolder, Assembly]:
    """The parts of an existing run, its data read again and seen to be the same.

    Raises:
        RunError: not a run folder, or the data has changed since.
    """
    folder = RunFolder(Path(run))
    described = read_json(folder.run)
    assembly = Assembly.of(load_config(folder.config))
    data = described.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("fingerprint"), str):
        raise RunError(f"{folder.run} does not tell which data the run was trained on; restore it or train again")
    then, now = data["fingerprint"], assembly.fingerprint()
    if then != now:
        raise RunError(
            f"{folder.path}: the data it was trained on has changed (fingerprint {then}, now {now}); "
            "point $FEDREC_DATA, or data.dir in its config.yaml, at the same files"
        )
    return folder, assembly


def trained_state(folder: RunFolder, assembly: Assembly, part: str = "best") -> tuple[RunState, Standing]:
    """A run's state: `best` by validation (`latest` before the first evaluation), `latest`, or `before` unlearning.

    Raises:
        RunError: no such part, or the file is missing or damaged.
    """
    if part == "before":
        if not folder.before.exists():
            raise RunError(
                f"{folder.path} has no state before unlearning: it was not unlearned, or unlearned while it trained; "
                "compare it with a run without unlearning"
            )
        return load_state(folder.before, assembly.workload.model, assembly.device)
    if part not in ("best", "latest"):
        raise RunError(f"a run has the parts best, latest and before, not {part!r}")
    return assembly.load(folder.best if part == "best" and folder.best.exists() else folder.latest)
