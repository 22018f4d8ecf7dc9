"""Attacks on a finished run: what can be told of a user from what the federation keeps or sends."""

from fedrec_unlearn.attacks.attackers import (
    ATTACKERS,
    AttackerBuilder,
    AttackerSpec,
    resolve_attacker,
    scaled,
    scaled_and_dense,
)
from fedrec_unlearn.attacks.attribute_inference import AttackWarning, Progress, infer_attribute
from fedrec_unlearn.attacks.folds import shuffled_labels, smallest_class, stratified_folds
from fedrec_unlearn.attacks.results import AttackMetric, AttackResult
from fedrec_unlearn.attacks.surfaces import update_support, update_values

__all__ = [
    "ATTACKERS",
    "AttackMetric",
    "AttackResult",
    "AttackWarning",
    "AttackerBuilder",
    "AttackerSpec",
    "Progress",
    "infer_attribute",
    "resolve_attacker",
    "scaled",
    "scaled_and_dense",
    "shuffled_labels",
    "smallest_class",
    "stratified_folds",
    "update_support",
    "update_values",
]
