"""The options of attacks; a section of `fedrec_unlearn.config`, in a file of its own for its length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedrec_unlearn.config_check import need

ATTACKERS = ("logistic", "mlp", "boosted_trees", "knn")
"""Attackers of attribute inference that are used unless others are named, in the order reports list them."""

KNOWN_ATTACKERS = (*ATTACKERS, "svm")
"""All attackers that come with the package."""

SURFACES = (
    "user_embedding",
    "update_support",
    "update_values",
    "decoded_support",
    "trajectory",
    "directions",
    "shuffled_labels",
)
"""What an attacker may look at: the user's private row; the ids of the item rows a user uploads in a round; their values;
which of those ids are the user's own items, as far as the way negatives are drawn tells; the private row at five
moments of training; the directions it moved in between. The last one is a control that must end at chance: the private
row, with the labels shuffled among users."""


@dataclass(frozen=True)
class AttackConfig:
    """Attribute inference against a trained run."""

    attributes: tuple[str, ...] = ()
    """User attributes to infer (empty: all the data set has)."""
    attackers: tuple[str, ...] = ATTACKERS
    """Classifiers to train, each tuned by inner cross-validation."""
    users: Literal["all", "audit"] = "all"
    """Whom to attack: all users, or only those that played no part in choosing unlearn.epsilon."""
    surfaces: tuple[str, ...] = ("user_embedding",)
    """What the attacker sees: user_embedding, update_support, update_values, decoded_support, trajectory, directions (these two need federation.snapshot_every), shuffled_labels (a control: the embedding, with labels dealt out at random)."""
    folds: int = 5
    """Outer folds over users, stratified by class."""
    inner_folds: int = 3
    """Folds in which an attacker's hyper-parameters are chosen, inside each outer training part."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of fold assignment and of attackers; the spread over them is reported."""
    jobs: int = 1
    """Processes that fit attackers at the same time."""

    def __post_init__(self) -> None:
        for option, given, known in (
            ("attack.attackers", self.attackers, KNOWN_ATTACKERS),
            ("attack.surfaces", self.surfaces, SURFACES),
        ):
            need(len(given) > 0, option, "needs at least one entry")
            for name in given:
                need(name in known, option, f"unknown entry {name!r}; known: {', '.join(known)}")
        need(self.folds >= 2, "attack.folds", "must be at least 2")
        need(self.inner_folds >= 2, "attack.inner_folds", "must be at least 2")
        need(len(self.seeds) >= 1, "attack.seeds", "needs at least one seed")
        need(self.jobs >= 1, "attack.jobs", "must be at least 1")
