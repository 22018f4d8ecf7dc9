"""Puts this package's models, trainer and metrics into RecBole, under the names its users write.

What changes in RecBole when `fedrec_unlearn.recbole` is imported, beside the cures of `_compat`:

* `FedMF`, `FedNCF`, `FedFM` and `FedDeepFM` are models, trained by `FederatedTrainer`;
* `AttackAUC` and `AttackBAcc` are metrics;
* for those models only, `Config` leaves the command line alone (pytest's and Jupyter's arguments would become options)
  and takes defaults of this package, and RecBole makes no `./log`, `./log_tensorboard` or `./saved` unless
  `checkpoint_dir` is given.

Stock models in stock `run_recbole` behave as they always did, except that no `Config` takes pytest's arguments for
options.
"""

from __future__ import annotations

import importlib.machinery
import logging
import shutil
import sys
import tempfile
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrec_unlearn.recbole._compat_pandas import replace_method
from fedrec_unlearn.recbole.attributes import read_attributes
from fedrec_unlearn.recbole.binding import private_rows
from fedrec_unlearn.recbole.defaults import model_defaults
from fedrec_unlearn.recbole.metrics import LABELS, METRICS, ROWS, USERS
from fedrec_unlearn.recbole.native import FEDERATED_MODELS
from fedrec_unlearn.recbole.options import sensitive_fields

_done: set[str] = set()


def register() -> None:
    """Make RecBole know this package's models, trainer and metrics; calling it again changes nothing."""
    if _done:
        return
    _done.add("registered")
    _register_models()
    _register_metrics()
    _patch_config()
    _patch_collector()
    _patch_logger()


def _register_models() -> None:
    trainers: Any = importlib.import_module("recbole.trainer")
    package: Any = importlib.import_module("recbole.model.general_recommender")
    from fedrec_unlearn.recbole.trainer import FederatedTrainer

    for name, kind in FEDERATED_MODELS.items():
        path = f"{package.__name__}.{name.lower()}"
        module: Any = types.ModuleType(path, f"{name}, of fedrec_unlearn")
        module.__spec__ = importlib.machinery.ModuleSpec(path, None)
        setattr(module, name, kind)
        sys.modules[path] = module
        setattr(package, name, kind)
        setattr(trainers, f"{name}Trainer", FederatedTrainer)


def _register_metrics() -> None:
    known: Any = importlib.import_module("recbole.evaluator.register")
    for name, kind in METRICS.items():
        known.metrics_dict[name] = kind
        known.metric_information[name] = list(kind.metric_need)
        known.metric_types[name] = kind.metric_type
        if name not in known.smaller_metrics:
            known.smaller_metrics.append(name)


def _patch_config() -> None:
    config_class: Any = importlib.import_module("recbole.config").Config
    stock_init, stock_line = config_class.__init__, config_class._load_cmd_line
    stock_internal, stock_defaults = config_class._load_internal_config_dict, config_class._set_default_parameters

    def init(
        self: Any,
        model: Any = None,
        dataset: Any = None,
        config_file_list: Any = None,
        config_dict: Any = None,
    ) -> None:
        named = model if model is not None else (config_dict or {}).get("model")
        name = named if isinstance(named, str) or named is None else named.__name__
        self._is_federated = name in FEDERATED_MODELS
        stock_init(self, model, dataset, config_file_list, config_dict)

    def load_cmd_line(self: Any) -> Any:
        return {} if getattr(self, "_is_federated", False) or _under_pytest() else stock_line(self)

    def load_internal(self: Any, model: str, model_class: type, dataset: str) -> None:
        stock_internal(self, model, model_class, dataset)
        if model in FEDERATED_MODELS:
            self.internal_config_dict.update(model_defaults(model))
            if "checkpoint_dir" not in self.external_config_dict:
                folder = tempfile.mkdtemp(prefix="fedrec-recbole-")
                weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
                self.internal_config_dict["checkpoint_dir"] = folder

    def set_defaults(self: Any) -> None:
        # attacks read rows, not rankings: they go with metrics of either kind
        asked = self.final_config_dict["metrics"]
        asked = [asked] if isinstance(asked, str) else list(asked)
        others = [metric for metric in asked if metric.lower() not in METRICS]
        self.final_config_dict["metrics"] = others or asked
        stock_defaults(self)
        self.final_config_dict["metrics"] = asked

    replace_method(config_class, "__init__", init)
    replace_method(config_class, "_load_cmd_line", load_cmd_line)
    replace_method(config_class, "_load_internal_config_dict", load_internal)
    replace_method(config_class, "_set_default_parameters", set_defaults)


def _under_pytest() -> bool:
    """Whether the command line is pytest's, whose options are nobody's hyper-parameters."""
    program = Path(sys.argv[0] if sys.argv else "")
    return program.stem in ("pytest", "py.test") or program.parent.name == "pytest"


def _patch_collector() -> None:
    collector: Any = importlib.import_module("recbole.evaluator.collector").Collector
    stock_data, stock_model = collector.data_collect, collector.model_collect

    def data_collect(self: Any, train_data: Any) -> None:
        stock_data(self, train_data)
        if not self.register.need(ROWS):
            return
        data = train_data.dataset
        for attribute in read_attributes(self.config, data, sensitive_fields(self.config)):
            self.data_struct.set(LABELS + attribute.name, torch.from_numpy(attribute.labels))
        trained = np.unique(np.asarray(data.inter_feat[data.uid_field], dtype=np.int64)) - 1
        self.data_struct.set(USERS, torch.from_numpy(trained))

    def model_collect(self: Any, model: Any) -> None:
        stock_model(self, model)
        if self.register.need(ROWS):
            self.data_struct.set(ROWS, private_rows(model, self.config))

    replace_method(collector, "data_collect", data_collect)
    replace_method(collector, "model_collect", model_collect)


def _patch_logger() -> None:
    quick: Any = importlib.import_module("recbole.quick_start.quick_start")
    stock: Callable[[Any], None] = quick.init_logger

    def init_logger(config: Any) -> None:
        if config["model"] not in FEDERATED_MODELS:
            stock(config)
            return
        state = str(config["state"] or "info").upper()
        level = logging.getLevelNamesMapping().get(state, logging.INFO)
        logging.basicConfig(level=level, format="%(asctime)-15s %(levelname)s  %(message)s", datefmt="%d %b %H:%M")

    quick.init_logger = init_logger
