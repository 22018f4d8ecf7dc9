"""A small data set in RecBole's layout, and stock models on it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("recbole") is None:
    pytest.skip("recbole is not installed", allow_module_level=True)
if sys.version_info >= (3, 12):
    pytest.skip("RecBole needs Python 3.11", allow_module_level=True)

N_USERS, N_ITEMS = 41, 37


@dataclass(frozen=True)
class Opened:
    """A RecBole model with its configuration and data."""

    config: Any
    model: Any
    train: Any
    valid: Any
    test: Any


@pytest.fixture(scope="session")
def atomic_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with `tiny/tiny.inter`, `.user` and `.item`: 41 users, 37 items, gender known of all but three."""
    folder = tmp_path_factory.mktemp("atomic")
    (folder / "tiny").mkdir()
    draw = np.random.default_rng(5)
    likes = draw.normal(size=(N_USERS, 3)) @ draw.normal(size=(3, N_ITEMS))
    lines = ["user_id:token\titem_id:token\trating:float\ttimestamp:float"]
    for user in range(N_USERS):
        chosen = np.argsort(-likes[user] + draw.normal(size=N_ITEMS) * 0.5)[: 8 + user % 7]
        lines += [f"u{user}\ti{item}\t{1 + (user + item) % 5}\t{1000 + item}" for item in chosen]
    (folder / "tiny" / "tiny.inter").write_text("\n".join(lines) + "\n")
    users = ["user_id:token\tage:token\tgender:token\toccupation:token"]
    for user in range(N_USERS):
        gender = "" if user in (3, 8, 20) else "MF"[int(likes[user, 0] > 0)]
        users.append(f"u{user}\t{18 + 3 * (user % 17)}\t{gender}\tjob{user % 4}")
    (folder / "tiny" / "tiny.user").write_text("\n".join(users) + "\n")
    items = ["item_id:token\tyear:token\tclass:token_seq\tlength:float"]
    items += [f"i{i}\t{1990 + i % 5}\t{'a b' if i % 3 else 'c'}\t{i / 10}" for i in range(N_ITEMS)]
    (folder / "tiny" / "tiny.item").write_text("\n".join(items) + "\n")
    return folder


SAMPLED = {
    "train_neg_sample_args": {"distribution": "uniform", "sample_num": 1},
    "eval_args": {"split": {"RS": [0.8, 0.1, 0.1]}, "group_by": "user", "order": "RO", "mode": "full"},
    "metrics": ["Recall", "NDCG"],
    "valid_metric": "NDCG@10",
}
"""Options that let a context-aware model train and rank as a general one does."""

FEATURES = {
    "load_col": {
        "inter": ["user_id", "item_id"],
        "user": ["user_id", "age", "occupation"],
        "item": ["item_id", "year", "class"],
    }
}
"""Fields beside the ids, of users and of items."""


@pytest.fixture
def open_model(atomic_folder: Path) -> Callable[..., Opened]:
    """Opens a model on the small data set: `open_model("NeuMF", dropout_prob=0.0)`."""

    def opened(name: str | type, **options: Any) -> Opened:
        from fedrec_unlearn.recbole import make_config

        data, tools = importlib.import_module("recbole.data"), importlib.import_module("recbole.utils")
        own = {
            "gpu_id": "",
            "data_path": str(atomic_folder),
            "load_col": {"inter": ["user_id", "item_id"]},
            "embedding_size": 6,
            "mf_embedding_size": 4,
            "mlp_embedding_size": 5,
            "mlp_hidden_size": [7, 3],
            "show_progress": False,
            **SAMPLED,
        }
        config = make_config(name, "tiny", {**own, **options})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tools.init_seed(3, True)
            train, valid, test = data.data_preparation(config, data.create_dataset(config))
            kind = tools.get_model(name) if isinstance(name, str) else name
            return Opened(config, kind(config, train.dataset), train, valid, test)

    return opened
