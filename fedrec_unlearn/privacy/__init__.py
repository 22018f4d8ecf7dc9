"""Differential privacy of what a round publishes: clipping a client's update, and accounting for the noise on sums."""

from __future__ import annotations

from fedrec_unlearn.privacy.accounting import (
    PrivacySpent,
    noise_multiplier_for,
    ring_noise_multiplier,
    ring_sigma,
    spent,
)
from fedrec_unlearn.privacy.clipping import Clipped, clip_update, ring_limit, rounded_sensitivity
from fedrec_unlearn.privacy.schedule import Neighbours, Sampling, Schedule

__all__ = [
    "Clipped",
    "Neighbours",
    "PrivacySpent",
    "Sampling",
    "Schedule",
    "clip_update",
    "noise_multiplier_for",
    "ring_limit",
    "ring_noise_multiplier",
    "ring_sigma",
    "rounded_sensitivity",
    "spent",
]
