"""Gradient inversion: reading a client's attribute out of the adversary's gradient that it sends.

Unlearning by an adversary makes every client send something new: a gradient that was computed with the attribute as
its label. `invert_gradients` plays a server that looks at it, with attacks from reading a sign to solving for all
noise, under defences from randomised response to secure aggregation.

**What to expect.** An unaggregated gradient of one local step gives the label away whatever the adversary draws:
`exact` needs neither optimisation nor luck. Drawing latents and weights (VAE, DSVAE) stops attacks that know
nothing of it, and no others. A sum over many clients is what helps, and noise at the size of the gradient.
"""

from fedrec_unlearn.attacks.gradient_inversion.analytic import bias_sign, exact, gram, matched_label, row_sum
from fedrec_unlearn.attacks.gradient_inversion.clients import Population, Target, observe
from fedrec_unlearn.attacks.gradient_inversion.defences import DEFENCES, Defence, response_accuracy
from fedrec_unlearn.attacks.gradient_inversion.matching import GradientMatching, match_gradients
from fedrec_unlearn.attacks.gradient_inversion.observation import Observation
from fedrec_unlearn.attacks.gradient_inversion.table import (
    ATTACKS,
    InversionResult,
    invert_gradients,
    wilson_interval,
)

__all__ = [
    "ATTACKS",
    "DEFENCES",
    "Defence",
    "GradientMatching",
    "InversionResult",
    "Observation",
    "Population",
    "Target",
    "bias_sign",
    "exact",
    "gram",
    "invert_gradients",
    "match_gradients",
    "matched_label",
    "observe",
    "response_accuracy",
    "row_sum",
    "wilson_interval",
]
