"""What of a configuration asks for attribute unlearning: checked, and turned into a term of the clients' loss."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from fedrec_unlearn.config import Config
from fedrec_unlearn.config_unlearn import UnlearnWarning
from fedrec_unlearn.data import Dataset
from fedrec_unlearn.data.types import MISSING, Attribute
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.federation.term import UserTerm
from fedrec_unlearn.models import Recommender
from fedrec_unlearn.unlearning.adversarial import AdversarialTerm


def attributes_to_unlearn(config: Config, dataset: Dataset) -> list[Attribute]:
    """The attributes of `unlearn.attributes`, each with at least two classes.

    Raises:
        ConfigError: an attribute all users share.

    Warns:
        UnlearnWarning: users whose attribute is not known; they are left out.
    """
    found = []
    for name in config.unlearn.attributes:
        attribute = dataset.attributes[name]
        known = attribute.labels[attribute.labels != MISSING]
        classes = np.unique(known)
        if len(classes) < 2:
            what = f"all users are {attribute.classes[int(classes[0])]!r}" if len(classes) else "no user has a value"
            raise ConfigError(f"unlearn.attributes: {name}: {what}; there is nothing to unlearn")
        missing = len(attribute.labels) - len(known)
        if missing:
            warnings.warn(
                f"{name} is not known of {missing:,} of {len(attribute.labels):,} users; they take no part in "
                "unlearning it, and nothing is promised for them",
                UnlearnWarning,
                stacklevel=2,
            )
        found.append(attribute)
    return found


def check_not_a_feature(config: Config) -> None:
    """Raise `ConfigError` where an attribute to unlearn is a feature the model is given.

    What a model takes as input stays readable in what it computes, whatever is unlearned beside.
    """
    for name in config.unlearn.attributes:
        if name in config.data.item_features:
            raise ConfigError(
                f"unlearn.attributes: {name} is also in data.item_features: the model is given what it is to forget; "
                "leave it out of data.item_features"
            )


def make_term(config: Config, dataset: Dataset, model: Recommender, device: torch.device) -> UserTerm | None:
    """The term an adversarial method adds to the clients' loss; None for other methods.

    Raises:
        ConfigError: unlearning without a strength: `unlearn.epsilon` is 0 and was not chosen.

    Warns:
        UnlearnWarning: updates travel in the clear.
    """
    if not config.unlearn.adversarial:
        return None
    if config.unlearn.epsilon == 0:
        raise ConfigError("unlearn.epsilon: 0 means that it is chosen first; name a strength, for example 0.1")
    if not config.unlearn.secure_sums:
        warnings.warn(
            "unlearn.secure_sums is off: a client's update of the adversary alone tells its class to whoever sees it; "
            "use this for comparison only",
            UnlearnWarning,
            stacklevel=2,
        )
    dtype = torch.float64 if config.federation.ring else torch.float32
    attributes = attributes_to_unlearn(config, dataset)
    return AdversarialTerm.of(config.unlearn, attributes, model.user_layout.width, config.seed, device, dtype)
