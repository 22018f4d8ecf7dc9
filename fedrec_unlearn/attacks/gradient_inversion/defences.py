"""What a client can do to its label or its gradient before it sends it, and what the transport can do.

| defence | what it changes | what an attacker is left with |
|---|---|---|
| label-RR | the label: kept with probability e^ε / (e^ε + K − 1) | a perfect reading of what may be another label |
| soft labels | the label: a share goes to all classes, or comes from them | signs, while the label is surer than ŷ |
| pruning | the gradient: only its largest entries are sent | the signs of what is sent |
| clip and noise | the gradient: cut to a length, noise on every entry | differential privacy, at its price |
| secure aggregation | nothing: the server sees a sum over m clients | the classes of the m, not whose is which |

Source: Warner 1965 and Ghazi et al. 2021 (label-RR); Struppek et al. 2023 (soft labels); Zhu et al. 2019, section 5
(pruning); Abadi et al. 2016 (clip and noise); Bonawitz et al. 2017 (secure aggregation).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedrec_unlearn.errors import AttackError


@dataclass(frozen=True)
class Defence:
    """What happens between a client's label and what the server sees; several of them at once if wished.

    Raises:
        AttackError: a value is out of range.
    """

    name: str
    flip_epsilon: float | None = None
    """ε of randomised response on the label (None: the label as it is)."""
    smoothing: float = 0.0
    """Share of the label that is spread evenly over all classes; negative values sharpen it; below 1."""
    kept_share: float = 1.0
    """Share of the gradient's entries that are sent, those of the largest size; the others are zero."""
    clip: float | None = None
    """Euclidean length a client's whole gradient is cut down to (None: not)."""
    noise: float = 0.0
    """Standard deviation of the Gaussian noise on every entry, in units of `clip` (or absolute without one)."""
    members: int = 1
    """Clients whose gradients are summed before the server sees them."""

    def __post_init__(self) -> None:
        for good, problem in (
            (self.flip_epsilon is None or self.flip_epsilon >= 0, "flip_epsilon must be 0 or more"),
            (self.smoothing < 1, "smoothing must be below 1"),
            (0 < self.kept_share <= 1, "kept_share must lie in (0, 1]"),
            (self.clip is None or self.clip > 0, "clip must be positive"),
            (self.noise >= 0, "noise must be 0 or more"),
            (self.members >= 1, "members must be at least 1"),
        ):
            if not good:
                raise AttackError(f"defence {self.name!r}: {problem}")

    def reported(self, labels: Tensor, n_classes: int, draws: np.random.Generator) -> Tensor:
        """The labels clients compute with, int64 (C,), after randomised response.

        Args:
            labels: true classes, int64 (C,).
            n_classes: K.
            draws: source of the flips.
        """
        if self.flip_epsilon is None:
            return labels
        kept = draws.random(len(labels)) < response_accuracy(self.flip_epsilon, n_classes)
        other = labels + torch.from_numpy(draws.integers(1, n_classes, len(labels)))
        return torch.where(torch.from_numpy(kept), labels, other % n_classes)

    def target(self, reported: Tensor, n_classes: int, dtype: torch.dtype) -> Tensor:
        """What the loss compares with: the reported classes, (C,), or soft labels of them, (C, K)."""
        if self.smoothing == 0.0:
            return reported
        hard = torch.nn.functional.one_hot(reported, n_classes).to(dtype)
        return hard * (1.0 - self.smoothing) + self.smoothing / n_classes

    def released(self, gradients: dict[str, Tensor], draws: np.random.Generator) -> dict[str, Tensor]:
        """Gradients as they leave the clients.

        Args:
            gradients: each (C, *shape).
            draws: source of the noise.
        """
        flat = torch.cat([tensor.flatten(1) for tensor in gradients.values()], dim=1)
        if self.kept_share < 1.0:
            kept = max(1, round(self.kept_share * flat.shape[1]))
            bound = flat.abs().topk(kept, dim=1).values[:, -1:]
            flat = torch.where(flat.abs() >= bound, flat, 0.0)
        if self.clip is not None:
            length = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
            flat = flat * (self.clip / length.clamp(min=self.clip))
        if self.noise > 0.0:
            scale = self.noise * (1.0 if self.clip is None else self.clip)
            flat = flat + scale * torch.from_numpy(draws.standard_normal(tuple(flat.shape))).to(flat.dtype)
        parts = torch.split(flat, [tensor[0].numel() for tensor in gradients.values()], dim=1)
        return {name: part.reshape(tensor.shape) for part, (name, tensor) in zip(parts, gradients.items(), strict=True)}


def response_accuracy(epsilon: float, n_classes: int) -> float:
    """Probability that randomised response keeps the label, and the best accuracy an attacker on it can have."""
    return 1.0 / (1.0 + (n_classes - 1) * math.exp(-epsilon))


DEFENCES = (
    Defence("none"),
    Defence("label_rr", flip_epsilon=1.0),
    Defence("soft_labels", smoothing=0.5),
    Defence("pruning", kept_share=0.01),
    Defence("clip_noise", clip=1.0, noise=1.0),
    Defence("secure_aggregation", members=64),
)
"""No defence, and one setting of each, in the order of the table."""
