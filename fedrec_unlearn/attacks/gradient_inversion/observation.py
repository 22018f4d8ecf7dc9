"""What a server that does not play by the rules sees of a client: one gradient of the adversary, and the model.

The attacker is the server of the federation, or whoever reads its traffic. It knows the architecture, the shared
parameters, β_z, β_w and the weights of the classes, and gets the gradient of one local step. It does not know the
client's row, label and noise, and wants the label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from fedrec_unlearn.models.adversary import Adversary


LARGEST_DRAW = 6.0
"""Standard normal draws are smaller but for one in 500 million."""


@dataclass(frozen=True)
class Observation:
    """Gradients of C clients, seen one by one (or of C groups of clients, seen as means over the group)."""

    adversary: Adversary
    parameters: Mapping[str, Tensor]
    """Shared parameters, each (*shape)."""
    gradients: Mapping[str, Tensor]
    """Each (C, *shape), of the parameters' dtype."""
    class_weights: Tensor
    """(K,): what the loss of a client is multiplied by, by its class."""

    @property
    def n(self) -> int:
        """C, the number of gradients."""
        return len(self.gradients["last_weight"])

    def cast(self, dtype: torch.dtype) -> Observation:
        """The same in another floating point type."""
        return replace(
            self,
            parameters={name: tensor.to(dtype) for name, tensor in self.parameters.items()},
            gradients={name: tensor.to(dtype) for name, tensor in self.gradients.items()},
            class_weights=self.class_weights.to(dtype),
        )


def label_gradient(seen: Observation, weight: Tensor) -> Tensor:
    """Gradient of the last weight without the part that its own divergence adds.

    That part, w β_w M where the last weight is drawn and zero elsewhere, is a function of what the attacker knows.

    Args:
        seen: what the attacker sees.
        weight: (C,), the clients' loss weights w the attacker supposes.

    Returns:
        (C, K, z): w (ŷ − y) zᵀ for each client.
    """
    rows = seen.gradients["last_weight"]
    if seen.adversary.head != "weight":
        return rows
    return rows - weight.reshape(-1, 1, 1) * seen.adversary.beta_weight * seen.parameters["last_weight"]


def hidden_layer(seen: Observation) -> Tensor:
    """The hidden layer of each client, read exactly out of the gradient of the layer that reads it.

    The gradient of a weight is the outer product of its output's gradient g and its input, that of the bias is g:
    their quotient is the input. Of the rows the one with the largest |g| is taken.

    Returns:
        (C, h); the same for mlp, whose last layer reads the hidden layer.
    """
    kind = "last" if seen.adversary.kind == "mlp" else "mean"
    outer, pull = seen.gradients[f"{kind}_weight"], seen.gradients[f"{kind}_bias"]
    largest = pull.abs().argmax(dim=1, keepdim=True)
    row = outer.gather(1, largest.unsqueeze(2).expand(-1, -1, outer.shape[2])).squeeze(1)
    return row / _apart_from_zero(pull.gather(1, largest))


def latent_moments(seen: Observation, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Mean μ and deviation σ of the latent vector that a hidden layer (C, h) leads to, each (C, z)."""
    known = seen.parameters
    mean = functional.linear(hidden, known["mean_weight"], known["mean_bias"])
    deviation = functional.softplus(functional.linear(hidden, known["deviation_weight"], known["deviation_bias"]))
    return mean, deviation


def last_weights(seen: Observation, rows: Tensor, weight: Tensor) -> Tensor:
    """The last layer each client drew, solved for its noise.

    The gradient of S is (w (ŷ − y) zᵀ ⊙ e2 + w β_w (s − 1/s)) ⊙ σ'(S) with s = softplus(S): divided by the gradient
    of the last weight it is e2, and the layer is M + s ⊙ e2.

    Args:
        seen: what the attacker sees.
        rows: from `label_gradient`, with the same weight.
        weight: (C,), the clients' loss weights the attacker supposes.

    Returns:
        (C, K, z); copies of the shared layer where it is not drawn. What a defence made impossible (a draw beyond
        `LARGEST_DRAW`) is cut off.
    """
    shared = seen.parameters["last_weight"]
    if seen.adversary.head != "weight":
        return shared.expand(seen.n, -1, -1)
    raw = seen.parameters["last_deviation"]
    blur = functional.softplus(raw)
    divergence = weight.reshape(-1, 1, 1) * seen.adversary.beta_weight * (blur - blur.reciprocal())
    noise = (seen.gradients["last_deviation"] / raw.sigmoid() - divergence) / _apart_from_zero(rows)
    return shared + blur * noise.clamp(-LARGEST_DRAW, LARGEST_DRAW)


def _apart_from_zero(values: Tensor) -> Tensor:
    tiny = torch.finfo(values.dtype).tiny
    return torch.where(values.abs() < tiny, torch.full_like(values, tiny), values)
