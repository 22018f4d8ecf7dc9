"""Attacks that search for an input and a label whose gradient is the one seen: DLG and its variants.

Dummy rows, soft labels and, if asked for, dummy noise of all clients and restarts are optimised together by Adam;
each is a problem of its own with moments of its own, so what is found for one client does not depend on the others.

What a search found is read in two ways. `label`: the largest entry of the soft label, as published. `residual`: the
class whose soft label exceeds the prediction most. The gradient fixes ŷ − y up to the error in z, but not y: a dummy
row with another ŷ' moves y' along, so that the residual is right far more often than the label itself.

Source: Zhu et al. 2019 (Deep Leakage from Gradients), Algorithm 1, with Adam in place of L-BFGS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedrec_unlearn.attacks.gradient_inversion.observation import Observation


@dataclass(frozen=True)
class GradientMatching:
    """How a search is carried out."""

    learn_noise: bool = False
    """Optimise the noise too; else the attacker keeps draws of its own, as it does not know the client's."""
    read: Literal["label", "residual"] = "label"
    """What of the result names the class."""
    start: Literal["random", "each_class"] = "random"
    """Where soft labels start: anywhere, or one restart near each class."""
    restarts: int = 2
    """Searches per client where they start anywhere; that with the smallest distance counts."""
    steps: int = 300
    """Steps of Adam; its rate falls to zero over them along a cosine."""
    learning_rate: float = 0.1
    """Rate of the first step."""

    def __call__(self, seen: Observation, draws: np.random.Generator) -> Tensor:
        """Class of each client, int64 (C,)."""
        known = seen.cast(torch.float32)
        classes = known.adversary.n_classes
        restarts = classes if self.start == "each_class" else self.restarts
        shape = (restarts, known.n)
        row, label, noise = (
            torch.from_numpy(draws.standard_normal((*shape, length)).astype(np.float32))
            for length in (known.adversary.width, classes, known.adversary.n_draws)
        )
        if self.start == "each_class":
            label += HEAD_START * torch.eye(classes).unsqueeze(1)
        soft, predicted, _ = match_gradients(
            known,
            row,
            label,
            noise,
            learn_noise=self.learn_noise,
            steps=self.steps,
            learning_rate=self.learning_rate,
        )
        return (soft if self.read == "label" else soft - predicted).argmax(dim=1)


HEAD_START = 2.0
"""Added to the logit of the class a soft label starts near."""


def match_gradients(
    seen: Observation,
    row: Tensor,
    label: Tensor,
    noise: Tensor,
    *,
    learn_noise: bool,
    steps: int,
    learning_rate: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Dummy labels whose gradients come closest to those seen.

    Args:
        seen: C gradients.
        row: where the search for the rows starts, (R, C, width), for R restarts.
        label: where the search for the labels starts, (R, C, K): logits of the soft label.
        noise: the attacker's draws, (R, C, n_draws).
        learn_noise: optimise the draws too, from there on.
        steps: steps of Adam.
        learning_rate: of the first step.

    Returns:
        Of the best restart and step of each client: soft label (C, K), prediction (C, K) and the squared distance
        between gradients relative to the squared length of the one seen, (C,).
    """
    restarts, clients = row.shape[:2]
    moving = [tensor.detach().flatten(0, 1).clone() for tensor in (row, label, noise)]
    for tensor in moving[: 3 if learn_noise else 2]:
        tensor.requires_grad_()
    aim = {name: tensor.repeat(restarts, *(1 for _ in tensor.shape[1:])) for name, tensor in seen.gradients.items()}
    length = _squared(list(aim.values())).clamp(min=torch.finfo(row.dtype).tiny)
    optimiser = torch.optim.Adam([tensor for tensor in moving if tensor.requires_grad], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    best = torch.full_like(length, torch.inf)
    kept = [torch.zeros_like(moving[1], requires_grad=False) for _ in range(2)]
    for _ in range(steps):
        soft, predicted, gradients = _dummy_gradients(seen, *moving)
        distance = _squared([gradients[name] - tensor for name, tensor in aim.items()]) / length
        with torch.no_grad():
            better = distance < best
            best = torch.where(better, distance, best)
            kept = [torch.where(better.unsqueeze(1), n, k) for n, k in zip((soft, predicted), kept, strict=True)]
        optimiser.zero_grad()
        distance.sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    nearest, winner = best.detach().reshape(restarts, clients).min(dim=0)
    index = winner * clients + torch.arange(clients)
    return kept[0][index], kept[1][index], nearest


def _dummy_gradients(
    seen: Observation, row: Tensor, label: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Soft label, prediction and gradients that a client with this row, label and noise would send."""
    copies = {
        name: tensor.expand(len(row), *tensor.shape).detach().requires_grad_()
        for name, tensor in seen.parameters.items()
    }
    soft = label.softmax(dim=1)
    output = seen.adversary.forward(copies, row, noise)
    logarithm = output.logits.log_softmax(dim=1)
    loss = (output.divergence - (soft * logarithm).sum(dim=1)) * (soft @ seen.class_weights)
    gradients = torch.autograd.grad(loss.sum(), list(copies.values()), create_graph=True)
    return soft, logarithm.exp(), dict(zip(copies, gradients, strict=True))


def _squared(tensors: list[Tensor]) -> Tensor:
    return torch.stack([(tensor * tensor).flatten(1).sum(dim=1) for tensor in tensors]).sum(dim=0)
