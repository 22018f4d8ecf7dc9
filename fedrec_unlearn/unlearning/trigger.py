"""The selective unlearning trigger (SUT): how strongly a client reverses its adversary's gradient in a step.

It scales the reversed gradient alone. The adversary goes on learning from every client, whatever the trigger says.
"""

from __future__ import annotations

import torch
from torch import Tensor


def binary_trigger(epsilon: float, correct: Tensor) -> Tensor:
    """ε where the adversary names the client's class, else 0.

    Args:
        epsilon: ε, at least 0.
        correct: (C,), 1 where argmax of this very step's forward pass is the class, else 0.

    Returns:
        ε_u, (C,).

    Source: FedAU² (arXiv 2511.22872), the binary variant after Eq. 6.
    """
    return correct * epsilon


def continuous_trigger(epsilon: float, scale: float, lead: Tensor, slope: Tensor) -> Tensor:
    """τ times the estimated distance to the decision boundary, within [0, ε].

    Args:
        epsilon: the largest strength, at least 0.
        scale: τ, strength per unit of distance in the row's space.
        lead: (C,), the class's logit less the best other one; negative where the adversary is wrong.
        slope: (C,), norm of the lead's gradient in the row. Where it vanishes the boundary is out of reach: ε for a
            positive lead, else 0.

    Returns:
        ε_u, (C,).

    Source: FedAU² (arXiv 2511.22872), Eq. 6; Elsayed et al. 2018, eq. 3 for the distance.
    """
    return (scale * lead / slope.clamp(min=torch.finfo(slope.dtype).tiny)).clamp(0.0, epsilon)
