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
from fedrec_unlearn.attacks.decoding import decoded_support
from fedrec_unlearn.attacks.folds import shuffled_labels, smallest_class, stratified_folds
from fedrec_unlearn.attacks.results import AttackMetric, AttackResult
from fedrec_unlearn.attacks.surfaces import update_support, update_values
from fedrec_unlearn.attacks.trajectory import direction_features, one_step_direction, trajectory_features

__all__ = [
    "ATTACKERS",
    "AttackMetric",
    "AttackResult",
    "AttackWarning",
    "AttackerBuilder",
    "AttackerSpec",
    "Progress",
    "decoded_support",
    "direction_features",
    "infer_attribute",
    "one_step_direction",
    "resolve_attacker",
    "scaled",
    "scaled_and_dense",
    "shuffled_labels",
    "smallest_class",
    "stratified_folds",
    "trajectory_features",
    "update_support",
    "update_values",
]
