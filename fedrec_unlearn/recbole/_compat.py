"""Cures that let RecBole 1.2.1 run beside numpy 2, scipy 1.13+, pandas 3 and torch 2.6+.

RecBole calls names and behaviours that these releases removed. Each cure is one function that first probes whether
its failure exists here, changes nothing if it does not, and says in its docstring what breaks without it. `prepare`
applies those that are needed. Nothing is touched when this module is imported. The cures for pandas are in
`_compat_pandas`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import io
import os
import pickle
import re
import sys
import types
import warnings
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedrec_unlearn.errors import DependencyError, RunError
from fedrec_unlearn.recbole._compat_pandas import cure_empty_sequences, cure_fill_nan, cure_remap, replace_method

SUPPORTED_RECBOLE = "1.2.1"
"""The release whose failures are known; others are used as they are found."""

REMEDY = "pip install 'fedrec-unlearn[recbole]'"
"""Installs RecBole and what its pinned dependencies need."""

_NUMPY_NAMES = {
    "bool": np.bool_,
    "int": np.int_,
    "float": np.float64,
    "complex": np.complex128,
    "object": np.object_,
    "str": np.str_,
    "long": np.int_,
    "unicode": np.str_,
}


def prepare() -> list[str]:
    """Apply the cures that RecBole needs here; calling it again changes nothing.

    Returns:
        Names of the cures in force, in the order of `CURES`; empty where RecBole works as it comes.

    Raises:
        DependencyError: Python is 3.12 or later, or recbole is missing or cannot be imported.
    """
    if sys.version_info >= (3, 12):
        raise DependencyError(
            f"RecBole {SUPPORTED_RECBOLE} needs ray<=2.6.3, which has no release for Python 3.12 and later "
            f"(this is {sys.version_info[0]}.{sys.version_info[1]}): use Python 3.11 for the RecBole plug-in"
        )
    if importlib.util.find_spec("recbole") is None:
        raise DependencyError(
            f"recbole is not installed: {REMEDY} (everything outside fedrec_unlearn.recbole works without it)"
        )
    return list(_cure_all())


@functools.cache
def _cure_all() -> tuple[str, ...]:
    try:
        return tuple(name for name, cure in CURES.items() if cure())
    except ImportError as error:
        raise DependencyError(f"recbole is installed but cannot be imported ({error}): {REMEDY}") from error


def cure_ray() -> bool:
    """Import `recbole.quick_start` although ray 2.6 cannot be imported.

    Without it: `import recbole.quick_start` ends in "module 'numpy' has no attribute 'bool8'", or in "No module named
    'pkg_resources'" with recent setuptools, both raised inside ray. RecBole uses ray for one call, `tune.report` at the
    end of its `objective_function`, which tells a search of ray's how a trial went. The stand-in is visible only during
    the import; afterwards `import ray` fails as before.
    """
    environment = dict(os.environ)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("ray.tune")
        return False
    except (ImportError, AttributeError):
        # a failed import of ray leaves RAY_CLIENT_MODE behind
        for variable in set(os.environ) - set(environment):
            del os.environ[variable]

    def report(**metrics: object) -> None:
        """Nobody listens, as with ray's own outside a search of ray's."""

    tune = types.ModuleType("ray.tune")
    tune.report = report  # type: ignore[attr-defined]
    ray = types.ModuleType("ray")
    ray.tune = tune  # type: ignore[attr-defined]
    hidden: dict[str, types.ModuleType] = {
        name: sys.modules.pop(name) for name in ("ray", "ray.tune") if name in sys.modules
    }
    sys.modules["ray"] = ray
    sys.modules["ray.tune"] = tune
    try:
        importlib.import_module("recbole.quick_start")
    finally:
        del sys.modules["ray"], sys.modules["ray.tune"]
        sys.modules.update(hidden)
    return True


def cure_numpy_names() -> bool:
    """Make `Config` set the numpy aliases RecBole uses from names that numpy 2 still has.

    Without it: every `Config(...)` ends in "`np.float_` was removed in the NumPy 2.0 release". Like the original, the
    replacement adds `np.float`, `np.int`, ... to the numpy module, but only those that are missing.
    """
    if hasattr(np, "float_"):
        return False

    def compatibility_settings(self: Any) -> None:
        for name, value in _NUMPY_NAMES.items():
            # hasattr would warn about the names numpy once had
            if name not in vars(np):
                setattr(np, name, value)

    replace_method(importlib.import_module("recbole.config").Config, "compatibility_settings", compatibility_settings)
    return True


def cure_torch_load() -> bool:
    """Make `Trainer` write checkpoints of plain data, which `torch.load` reads with its default `weights_only=True`.

    Without it: `trainer.evaluate(..., load_best_model=True)` and `trainer.resume_checkpoint` end in "Weights only load
    failed", because RecBole pickles its whole Config into the file. Here the configuration is stored as a dict of
    plain values (others as their text), and the file is replaced atomically. `recbole.quick_start.load_data_and_model`
    wants the pickled Config and cannot read these files.
    """
    import torch

    buffer = io.BytesIO()
    torch.save({"config": Namespace()}, buffer)
    buffer.seek(0)
    try:
        torch.load(buffer)
        return False
    except pickle.UnpicklingError:
        pass

    def save_checkpoint(self: Any, epoch: int, verbose: bool = True, **kwargs: Any) -> None:
        if not self.config["single_spec"] and self.config["local_rank"] != 0:
            return
        file = Path(kwargs.pop("saved_model_file", self.saved_model_file))
        state = {
            "config": {key: _plain_or_text(value) for key, value in self.config.final_config_dict.items()},
            "epoch": epoch,
            "cur_step": self.cur_step,
            "best_valid_score": float(self.best_valid_score),
            "state_dict": self.model.state_dict(),
            "other_parameter": plain(self.model.other_parameter(), "other_parameter"),
            "optimizer": plain(self.optimizer.state_dict(), "optimizer"),
        }
        beside = file.with_name(file.name + ".part")
        with beside.open("wb") as handle:
            torch.save(state, handle)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(beside, file)
        if verbose:
            self.logger.info(f"Saved the current state: {file}")

    replace_method(importlib.import_module("recbole.trainer.trainer").Trainer, "_save_checkpoint", save_checkpoint)
    return True


def plain(value: Any, where: str) -> Any:
    """Copy of nested data in types that `torch.load(weights_only=True)` accepts; numpy scalars become Python's.

    Args:
        value: tensors, numbers, text, None, and dicts, lists and tuples of them.
        where: name of the entry, for the message.

    Raises:
        RunError: something else is inside.
    """
    import torch

    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str, torch.Tensor)):
        # an enum that is also a str or an int is not plain
        if type(value).__module__ in ("builtins", "torch", "torch.nn.parameter"):
            return value
    elif isinstance(value, dict):
        return {plain(key, where): plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    elif type(value) in (list, tuple):
        return type(value)(plain(item, where) for item in value)
    raise RunError(
        f"checkpoint entry {where} holds a {type(value).__name__}, which is not stored: only tensors and plain data are"
    )


def _plain_or_text(value: Any) -> Any:
    try:
        return plain(value, "config")
    except RunError:
        return str(value)


def cure_dok_update() -> bool:
    """Give `scipy.sparse.dok_matrix` back the method `_update`, which took the entries of a dict.

    Without it: LightGCN, NGCF and the other graph models end in "'dok_matrix' object has no attribute '_update'"
    since scipy 1.13.
    """
    from scipy.sparse import dok_matrix

    if hasattr(dok_matrix, "_update"):
        return False

    def update(self: Any, data: dict[tuple[int, int], float]) -> None:
        self._dict.update(data)

    replace_method(dok_matrix, "_update", update)
    return True


def cure_exhaustive_search() -> bool:
    """Give RecBole's exhaustive search the kind of random generator that hyperopt 0.2.6 and later ask for.

    Without it: `HyperTuning(..., algo="exhaustive")`, RecBole's default, ends in "'numpy.random.mtrand.RandomState'
    object has no attribute 'integers'".
    """
    if importlib.util.find_spec("hyperopt") is None or hasattr(np.random.RandomState, "integers"):
        return False
    version = importlib.metadata.version("hyperopt")
    if tuple(int(part) for part in re.findall(r"\d+", version)[:3]) < (0, 2, 6):
        return False
    random = types.ModuleType("numpy.random")
    random.__dict__.update(vars(np.random))
    random.RandomState = np.random.default_rng  # type: ignore[attr-defined]
    facade = types.ModuleType("numpy")
    facade.__dict__.update(vars(np))
    facade.random = random  # type: ignore[attr-defined]
    tuning: Any = importlib.import_module("recbole.trainer.hyper_tuning")
    tuning.np = facade
    return True


CURES: dict[str, Callable[[], bool]] = {
    "ray": cure_ray,
    "numpy_names": cure_numpy_names,
    "torch_load": cure_torch_load,
    "dok_update": cure_dok_update,
    "exhaustive_search": cure_exhaustive_search,
    "empty_sequences": cure_empty_sequences,
    "fill_nan": cure_fill_nan,
    "remap": cure_remap,
}
"""Cure by name; each returns whether it was needed."""
