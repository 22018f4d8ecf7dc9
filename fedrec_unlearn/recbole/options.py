"""RecBole's flat configuration read as this package's: which key stands for which option.

RecBole's own keys keep their meaning: `epochs` are passes over the clients, `learning_rate` is the step size of the
server's optimiser, `learner` that optimiser, `weight_decay` the decay of the rows a client touches, and the
`sample_num` of `train_neg_sample_args` the negatives of each positive. Everything else of a federation has the name it
has in this package, without its section: `clients_per_round`, `transport`; `unlearn_method`, `attack_folds` and
`secemb_noise_multiplier` where the section says what it is about.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_origin

import yaml

from fedrec_unlearn.config import AttackConfig, Config
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.config_options import did_you_mean, options, options_by_name
from fedrec_unlearn.errors import ConfigError

OWN = {
    "objective": "auto",
    "private_parameters": None,
    "item_parameters": None,
    "sensitive_fields": None,
    "unlearn": None,
    "unlearn_method": "moments",
    "init_std": 0.05,
}
"""Options that exist for RecBole alone, or mean something else there, with their defaults."""

FROM_RECBOLE = {
    "federation.server_learning_rate": "learning_rate",
    "federation.server_optimizer": "learner",
    "federation.l2": "weight_decay",
    "federation.num_negatives": "train_neg_sample_args",
    "federation.rounds": "epochs",
    "seed": "seed",
}
"""Our options that a key of RecBole's stands for."""

_NOT_HERE = {
    "federation.objective",  # the model's own loss, or `objective`
    "federation.checkpoint_every",
    "federation.snapshot_every",
    "unlearn.attributes",  # `unlearn`
    "unlearn.method",
    "unlearn.epsilons",  # a strength is named
    "unlearn.selection_share",
    "unlearn.tolerance",
    "attack.attributes",  # `sensitive_fields`
    "attack.surfaces",  # the private rows
    "attack.users",
}

_PREFIXES = {"federation": "", "unlearn": "unlearn_", "attack": "attack_", "secemb": "secemb_"}


@cache
def option_keys() -> dict[str, str]:
    """RecBole key -> dotted name of our option, for every option of ours that RecBole has no key for."""
    found = {}
    for option in options():
        if option.section in _PREFIXES and option.name not in _NOT_HERE and option.name not in FROM_RECBOLE:
            found[_PREFIXES[option.section] + option.name.rpartition(".")[2]] = option.name
    return found


def default_of(key: str) -> Any:
    """Default of one of our keys."""
    if key in OWN:
        return OWN[key]
    return {option.name: option.default for option in options()}[option_keys()[key]]


def own_keys() -> list[str]:
    """Every key that is ours."""
    return [*OWN, *(key for key in option_keys() if key not in OWN)]


def sensitive_fields(config: Any) -> tuple[str, ...]:
    """Attributes to attack: `sensitive_fields` and what is to be unlearned.

    Raises:
        ConfigError: not a name or a list of names.
    """
    return tuple(dict.fromkeys((*_names(config, "sensitive_fields"), *fields_to_unlearn(config))))


def fields_to_unlearn(config: Any) -> tuple[str, ...]:
    """Attributes of `unlearn`.

    Raises:
        ConfigError: not a name or a list of names.
    """
    return _names(config, "unlearn")


def _names(config: Any, key: str) -> tuple[str, ...]:
    value = config[key]
    if value is None or value is False:
        return ()
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"{key}: must be the name of a user attribute or a list of names, not {value!r}")
    return tuple(names)


def to_config(config: Any, *, num_negatives: int, objective: str, rounds: int = 1) -> Config:
    """This package's configuration for a RecBole run.

    Args:
        config: RecBole's configuration.
        num_negatives: negatives of each positive, 0 where none are drawn.
        objective: name of the loss on scores; labelled data count as `bce`.
        rounds: rounds at most.

    Raises:
        ConfigError: a value that does not fit; named by RecBole's key.
    """
    learner = str(config["learner"]).lower()
    if learner not in ("adam", "sgd"):
        raise ConfigError(
            f"learner: {config['learner']!r}; the server's optimiser is adam or sgd, and a client's steps are plain "
            "gradient steps"
        )
    given: dict[str, Any] = {
        "seed": config["seed"],
        "federation.rounds": rounds,
        "federation.num_negatives": max(1, num_negatives),
        "federation.objective": "bpr" if objective == "bpr" else "bce",
        "federation.server_optimizer": learner,
        "federation.server_learning_rate": config["learning_rate"],
        "federation.l2": config["weight_decay"],
    }
    given |= {name: _listed(name, config[key]) for key, name in option_keys().items() if config[key] is not None}
    attributes = fields_to_unlearn(config)
    if attributes:
        given["unlearn.attributes"] = list(attributes)
        given["unlearn.method"] = config["unlearn_method"] or OWN["unlearn_method"]
    return _loaded(given)


def attack_options(config: Any) -> AttackConfig:
    """How to attack: `attack_attackers`, `attack_folds`, ... and `sensitive_fields`.

    Raises:
        ConfigError: a value that does not fit; named by RecBole's key.
    """
    names = {key: name for key, name in option_keys().items() if name.startswith("attack.")}
    given: dict[str, Any] = {name: _listed(name, config[key]) for key, name in names.items() if config[key] is not None}
    given["attack.attributes"] = list(sensitive_fields(config))
    return _loaded(given).attack


def _listed(name: str, value: Any) -> Any:
    """The value; a single one, or texts between commas, as a list where the option is one."""
    if get_origin(options_by_name()[name].annotation) is not tuple or isinstance(value, (list, tuple)):
        return value
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else [value]


def _loaded(given: Mapping[str, Any]) -> Config:
    try:
        return load_config(None, given)
    except ConfigError as error:
        raise ConfigError(in_recboles_names(str(error))) from None


def in_recboles_names(message: str) -> str:
    """A message about our options with the keys a RecBole user knows them by."""
    names = {name: key for key, name in option_keys().items()} | FROM_RECBOLE
    names |= {"unlearn.attributes": "unlearn", "unlearn.method": "unlearn_method"}
    for name in sorted(names, key=len, reverse=True):
        if "." in name:
            message = message.replace(name, names[name])
    return message


def check_sampling(config: Any) -> None:
    """Raise `ConfigError` for ways to draw negatives that clients do not have."""
    sampling = config["train_neg_sample_args"] or {}
    if sampling.get("dynamic"):
        raise ConfigError(
            "train_neg_sample_args: dynamic: clients draw their negatives once a round, before they know any score; "
            "set dynamic: False"
        )
    if sampling.get("distribution", "uniform") not in ("uniform", "none"):
        raise ConfigError(
            f"train_neg_sample_args: distribution: {sampling['distribution']!r}: clients draw among the items they "
            "have not seen, all alike, because nobody tells them how popular an item is; set distribution: uniform"
        )


def check_valid_metric(config: Any) -> None:
    """Raise `ConfigError` where `valid_metric`, which decides the pass that is kept, is not among `metrics`."""
    name, _, length = str(config["valid_metric"]).lower().partition("@")
    asked = [str(metric).lower() for metric in config["metrics"]]
    if name not in asked:
        raise ConfigError(
            f"valid_metric: {config['valid_metric']} is not computed; metrics are {', '.join(config['metrics'])}: add "
            "it there, or let another one decide"
        )
    if length.isdigit() and int(length) not in config["topk"]:
        raise ConfigError(f"valid_metric: {config['valid_metric']}: topk is {config['topk']}; add {length} to it")


def check_keys(config: Any) -> None:
    """See that no key the user gave is one of ours misspelt.

    RecBole takes any key; what it does not know it ignores. A key that is near one of ours, and neither RecBole's nor a
    field of the data, is taken for a mistake.

    Raises:
        ConfigError: names the key and what it may have been.
    """
    known = _keys_of_recbole() | set(own_keys()) | set(config.internal_config_dict)
    for key in config.external_config_dict:
        if key in known or key.isupper():
            continue
        near = difflib.get_close_matches(key, own_keys(), n=2, cutoff=0.8)
        if near:
            raise ConfigError(f"unknown option {key}{did_you_mean(near)}")


@cache
def _keys_of_recbole() -> frozenset[str]:
    """Every key in RecBole's own files and lists."""
    lists = importlib.import_module("recbole.utils.argument_list")
    known = {key for name in vars(lists) if name.endswith("_arguments") for key in getattr(lists, name)}
    folder = Path(importlib.import_module("recbole").__file__ or "").parent / "properties"
    for file in folder.glob("**/*.yaml"):
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
        known |= set(values) if isinstance(values, dict) else set()
    return frozenset(known)
