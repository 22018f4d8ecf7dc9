"""RecBole's Config and trainer, made so that they stay inside the folders they are given.

Stock RecBole reads `sys.argv`, runs `eval` on text options, hides the GPU from the whole process when it is told to
use the CPU, and writes `./saved`, `./log` and `./log_tensorboard`. A library must do none of this.
"""

from __future__ import annotations

import ast
import functools
import importlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedrec_unlearn.errors import ConfigError, DependencyError
from fedrec_unlearn.recbole._compat import prepare


def __getattr__(name: str) -> Any:
    # a class of this module, so that a pickled instance finds it again, but made only when somebody asks for it
    if name == "Config":
        return _config_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def _config_class() -> type:
    prepare()
    base: Any = importlib.import_module("recbole.config").Config

    class Config(base):  # type: ignore[misc]
        """RecBole's Config without the command line, without `eval` and without a folder nobody asked for.

        Where `checkpoint_dir` is not given, checkpoints go to a temporary folder that lives as long as this object.
        """

        def __init__(self, model: Any, dataset: str, files: list[str], values: dict[str, Any], federated: bool) -> None:
            self._federated_defaults = federated
            super().__init__(model, dataset, files, values)

        def _load_internal_config_dict(self, model: str, model_class: type, dataset: str) -> None:
            super()._load_internal_config_dict(model, model_class, dataset)
            if self._federated_defaults:
                from fedrec_unlearn.recbole.defaults import model_defaults

                self.internal_config_dict.update(model_defaults(model))

        def _load_cmd_line(self) -> dict[str, Any]:
            return {}

        def _convert_config_dict(self, config_dict: dict[str, Any]) -> dict[str, Any]:
            return {key: _literal(value) for key, value in config_dict.items()}

        def _merge_external_config_dict(self) -> None:
            super()._merge_external_config_dict()
            if "checkpoint_dir" not in self.external_config_dict:
                folder = tempfile.mkdtemp(prefix="fedrec-recbole-")
                weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
                self.external_config_dict["checkpoint_dir"] = folder

        def _init_device(self) -> None:
            before = os.environ.get("CUDA_VISIBLE_DEVICES")
            super()._init_device()
            if self.final_config_dict["gpu_id"] == "":
                os.environ.pop("CUDA_VISIBLE_DEVICES")
                if before is not None:
                    os.environ["CUDA_VISIBLE_DEVICES"] = before

    Config.__module__, Config.__qualname__ = __name__, "Config"
    return Config


def _literal(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value


def make_config(
    model: str | type,
    dataset: str,
    config_dict: Mapping[str, Any] | None = None,
    config_files: Sequence[str | Path] = (),
    *,
    federated: bool = False,
) -> Any:
    """RecBole's configuration from values and files alone.

    Args:
        model: name of a RecBole model, or a model class.
        dataset: RecBole's name of the data set; its files are `<data_path>/<dataset>/<dataset>.inter` and so on.
        config_dict: options that win over the files, under RecBole's names. `data_path` is honoured for ml-100k too,
            which stock RecBole always reads from its own folder.
        config_files: YAML files, later ones win.
        federated: take this package's defaults for a run with clients (`properties/`) where files and dict say nothing.

    Raises:
        ConfigError: a file is missing, or RecBole does not know the model.
        DependencyError: RecBole, or a package this model needs, is not available; see `prepare`.
    """
    for file in config_files:
        if not Path(file).is_file():
            raise ConfigError(f"--config_files: {file} does not exist")
    config_class = _config_class()
    if isinstance(model, str):
        _check_model(model)
    config = config_class(model, dataset, [str(file) for file in config_files], dict(config_dict or {}), federated)
    if "data_path" in config.external_config_dict:
        config["data_path"] = str(Path(config.external_config_dict["data_path"]) / config["dataset"])
    return config


def _check_model(name: str) -> None:
    try:
        importlib.import_module("recbole.utils").get_model(name)
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"model: RecBole has no model named {name!r}; case matters (BPR, NeuMF, DeepFM)") from error
    except ImportError as error:
        raise DependencyError(f"model: RecBole's {name} needs a package that is not installed ({error})") from error


def make_trainer(config: Any, model: Any) -> Any:
    """The trainer RecBole uses for this model, with a tensorboard writer that writes nothing.

    Args:
        config: from `make_config`.
        model: an instance of a RecBole model.
    """
    from_recbole = importlib.import_module("recbole.utils")
    with without_tensorboard():
        return from_recbole.get_trainer(config["MODEL_TYPE"], config["model"])(config, model)


class _SilentWriter:
    """Takes what RecBole's trainers send to tensorboard and keeps none of it."""

    def add_scalar(self, *args: Any, **kwargs: Any) -> None:
        pass

    def add_hparams(self, *args: Any, **kwargs: Any) -> None:
        pass


@contextmanager
def without_tensorboard() -> Iterator[None]:
    """Inside, a RecBole trainer that is made opens no `./log_tensorboard` folder."""
    trainers: Any = importlib.import_module("recbole.trainer.trainer")
    stock = trainers.get_tensorboard
    trainers.get_tensorboard = lambda logger: _SilentWriter()
    try:
        yield
    finally:
        trainers.get_tensorboard = stock
