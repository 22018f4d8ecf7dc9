"""`run_fedrec`: RecBole's `run_recbole` with users as clients, and with unlearning and attacks where asked for."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Mapping, Sequence
from logging import getLogger
from pathlib import Path
from typing import Any

from fedrec_unlearn.attacks import AttackResult
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.progress import Progress, SilentProgress
from fedrec_unlearn.recbole.clients import strongest
from fedrec_unlearn.recbole.configuration import make_config
from fedrec_unlearn.recbole.options import fields_to_unlearn, sensitive_fields
from fedrec_unlearn.recbole.trainer import FederatedTrainer


def run_fedrec(
    model: str | type | None = None,
    dataset: str | None = None,
    config_file_list: Sequence[str | Path] | None = None,
    config_dict: Mapping[str, Any] | None = None,
    saved: bool = True,
    *,
    resume: str | Path | None = None,
    verbose: bool = True,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train a RecBole model with every user as a client, test it, and unlearn and attack what the options name.

    The arguments are those of RecBole's `run_recbole`; the command line is not read and nothing is written outside
    `checkpoint_dir`. Defaults of federated runs come from this package (`properties/`), then RecBole's, then
    the files, then the dict.

    Args:
        model: name of a RecBole model or of FedMF, FedNCF, FedFM, FedDeepFM; or a model class. Unset: `model` of the
            files or the dict.
        dataset: RecBole's name of the data set. Unset: `dataset` of the files or the dict.
        config_file_list: YAML files, later ones win.
        config_dict: options that win over the files: `clients_per_round`, `sensitive_fields`, `unlearn`, ...
        saved: keep the best pass by `valid_metric`, in `checkpoint_dir`; without it the last pass is tested.
        resume: a checkpoint of an interrupted run to go on from.
        verbose: log a line for each pass.
        progress: told of passes, of rounds of unlearning and of attacks.

    Returns:
        RecBole's `best_valid_score`, `valid_score_bigger`, `best_valid_result` and `test_result`; `trainer`, which
        holds the state tested last, and `checkpoint`, its file. With `sensitive_fields` or `unlearn`, `attack`: by
        attribute what every attacker reads from the users' rows, the strongest first. With `unlearn`,
        `test_result_before` and `attack_before` tell of the state before, `test_result` and `attack` of the state
        after, and `unlearned` what was done. Under secemb with noise, `privacy`: ε, δ and what they rest on.

    Raises:
        ConfigError, DataError, ModelError, DependencyError: whatever does not go together; told before training.
        Interrupted: Ctrl-C.
    """
    values = dict(config_dict or {})
    model = model if model is not None else _named("model", config_file_list, values)
    dataset = dataset if dataset is not None else _named("dataset", config_file_list, values)
    config = make_config(model, dataset, values, config_file_list or (), federated=True)
    trainer, train, valid, test = _prepared(config)
    trainer.progress = progress or SilentProgress()
    if resume is not None:
        trainer.resume(resume)
    trainer.prepare(train)
    score, best = trainer.fit(
        train, valid, verbose=verbose, saved=saved, show_progress=bool(config["show_progress"]) and verbose
    )
    result = {
        "best_valid_score": score,
        "valid_score_bigger": config["valid_metric_bigger"],
        "best_valid_result": best,
        "test_result": trainer.evaluate(test),
        "trainer": trainer,
        "checkpoint": trainer.saved_model_file if saved else None,
    }
    if trainer.privacy is not None:
        result["privacy"] = trainer.privacy
    if sensitive_fields(config):
        result["attack"] = _by_attribute(trainer.attack())
    if fields_to_unlearn(config):
        result["test_result_before"], result["attack_before"] = result["test_result"], result["attack"]
        result["unlearned"] = trainer.unlearn()
        result["test_result"] = trainer.evaluate(test)
        result["attack"] = _by_attribute(trainer.attack())
    return result


def objective_function(
    config_dict: Mapping[str, Any] | None = None,
    config_file_list: Sequence[str | Path] | None = None,
    saved: bool = True,
) -> dict[str, Any]:
    """One trial of a search: what RecBole's `HyperTuning` calls for each combination of hyper-parameters.

    Args:
        config_dict: options of the trial, `model` and `dataset` among them or in the files.
        config_file_list: YAML files.
        saved: test the best pass rather than the last.

    Returns:
        `model`, `best_valid_score`, `valid_score_bigger`, `best_valid_result` and `test_result`.
    """
    values = dict(config_dict or {})
    values["unlearn"] = None  # a search is for the recommender
    result = run_fedrec(config_file_list=config_file_list, config_dict=values, saved=saved, verbose=False)
    kept = ("best_valid_score", "valid_score_bigger", "best_valid_result", "test_result")
    return {"model": result["trainer"].config["model"], **{name: result[name] for name in kept}}


def _named(key: str, files: Sequence[str | Path] | None, values: Mapping[str, Any]) -> Any:
    if values.get(key) is not None:
        return values[key]
    import yaml

    found = None
    for file in files or ():
        if not Path(file).is_file():
            raise ConfigError(f"--config_files: {file} does not exist")
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        found = content.get(key, found) if isinstance(content, dict) else found
    if found is None:
        raise ConfigError(f"{key}: not given; name one, for example {'BPR' if key == 'model' else 'ml-100k'}")
    return found


def _prepared(config: Any) -> tuple[FederatedTrainer, Any, Any, Any]:
    """Trainer and loaders, made in the order of RecBole's own `run_recbole` and with its seeds."""
    data, tools = importlib.import_module("recbole.data"), importlib.import_module("recbole.utils")
    folder = Path(os.path.normpath(config["data_path"]))
    if not (folder / f"{config['dataset']}.inter").exists() and not config["benchmark_filename"]:
        known = sorted(p.name for p in folder.parent.glob("*") if (p / f"{p.name}.inter").is_file())
        raise ConfigError(
            f"dataset: {os.fspath(folder)} has no {config['dataset']}.inter; set data_path to the folder above it"
            + (f", or choose among {', '.join(known)}" if known else "")
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        # raised inside RecBole, about its own use of torch
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        warnings.filterwarnings("ignore", message=r"torch\.sparse\.SparseTensor")
        tools.init_seed(config["seed"], config["reproducibility"])
        loaded = data.create_dataset(config)
        train, valid, test = data.data_preparation(config, loaded)
        tools.init_seed(config["seed"] + config["local_rank"], config["reproducibility"])
        kind = config.model_class
        recommender = kind(config, train.dataset).to(config["device"])
    getLogger().info(recommender)
    return FederatedTrainer(config, recommender), train, valid, test


def _by_attribute(results: Sequence[AttackResult]) -> dict[str, list[dict[str, Any]]]:
    """Results as plain values, by attribute, the strongest attacker first."""
    found: dict[str, list[AttackResult]] = {}
    for result in results:
        found.setdefault(result.attribute, []).append(result)
    ordered = {}
    for name, group in found.items():
        first = strongest(group)
        ordered[name] = [entry.to_json() for entry in (first, *(other for other in group if other is not first))]
    return ordered
