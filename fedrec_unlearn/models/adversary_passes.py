"""Forward and backward pass of an adversary, in closed form.

`models.adversary` tells what is computed; this is how. Small blocks are the usual case, so that starting an operation
costs more than what it does: there are few of them, and they read memory in one piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from fedrec_unlearn.models.adversary_layers import Layers
from fedrec_unlearn.models.client_layers import affine, back, outer, through_relu, total

Head = Literal["weight", "logit", "none"]

SMALLEST_DEVIATION = 1e-6
"""Added to σ, so that its logarithm stays finite for rows that reversal has pushed far out."""


class _Latent(NamedTuple):
    """How a latent vector came about; each (C, z)."""

    noise: Tensor
    """e1."""
    mean: Tensor
    pre_deviation: Tensor
    deviation: Tensor


class _Blur(NamedTuple):
    """How dsvae's last layer came about."""

    deviation: Tensor
    """softplus(S)."""
    noise: Tensor
    """e2, (C, K, z) or (C, K)."""


class Pass(NamedTuple):
    """A forward pass with what its gradients need."""

    hidden: Tensor
    latent: Tensor
    logits: Tensor
    last_weight: Tensor
    drawn: _Latent | None = None
    blur: _Blur | None = None


@dataclass(frozen=True)
class Passes:
    """The computation of an adversary, apart from its parameters.

    Args:
        head: what is drawn at the output; `none` for mlp and vae.
        latent_size: z.
        noise_shape: of e2, what one client draws at the output.
        beta_latent, beta_weight: β_z and β_w.
    """

    head: Head
    latent_size: int
    noise_shape: tuple[int, ...]
    beta_latent: float
    beta_weight: float

    def forward(self, layers: Layers, x: Tensor, draws: Tensor) -> Pass:
        """Logits of a block of rows; differentiable, twice too.

        Args:
            layers: as told by `Layers`, or with one copy a client.
            x: rows, (C, width).
            draws: standard normal, (C, z + numbers in `noise_shape`): e1, then e2; not read for mlp.
        """
        hidden = affine(x, layers.encoder_weight, layers.encoder_bias).relu_()
        last = layers.last_weight
        if layers.mean_weight is None or layers.deviation_weight is None:
            return Pass(hidden, hidden, affine(hidden, last, layers.last_bias), last)
        mean = affine(hidden, layers.mean_weight, layers.mean_bias)
        pre = affine(hidden, layers.deviation_weight, layers.deviation_bias)
        deviation = functional.softplus(pre).add_(SMALLEST_DEVIATION)
        if layers.last_deviation is None:
            latent = torch.addcmul(mean, deviation, draws)
            logits = affine(latent, last, layers.last_bias)
            return Pass(hidden, latent, logits, last, _Latent(draws, mean, pre, deviation))
        first, second = draws.split_with_sizes([self.latent_size, draws.shape[1] - self.latent_size], 1)
        latent = torch.addcmul(mean, deviation, first)
        blur = functional.softplus(layers.last_deviation)
        noise = second.reshape(-1, *self.noise_shape)
        if self.head == "logit":
            logits = torch.addcmul(affine(latent, last, None), blur, noise)
        else:
            last = torch.addcmul(last, blur, noise)
            logits = affine(latent, last, None)
        return Pass(hidden, latent, logits, last, _Latent(first, mean, pre, deviation), _Blur(blur, noise))

    def divergence(self, layers: Layers, run: Pass) -> Tensor:
        """β_z KL(z) + β_w KL(W) of each client, (C,); 0 for mlp."""
        if run.drawn is None:
            return run.logits.new_zeros(len(run.logits))
        deviation = run.drawn.deviation
        terms = run.drawn.mean.square() + deviation.square() - 2.0 * deviation.log() - 1.0
        of_latent = 0.5 * self.beta_latent * terms.sum(1)
        if run.blur is None:
            return of_latent
        blur = run.blur.deviation
        terms = blur.square() - 2.0 * blur.log() - 1.0
        if self.head == "weight":
            terms = terms + layers.last_weight.square()
        return of_latent + 0.5 * self.beta_weight * terms.sum(tuple(range(-len(self.noise_shape), 0)))

    def backward(
        self, layers: Layers, run: Pass, x: Tensor, soft: Tensor, weight: Tensor, summed: bool
    ) -> tuple[Tensor, Layers, Tensor]:
        """Gradients of Σ_c weight_c · loss_c in closed form.

        Args:
            layers, run, x: of the pass forward; what it computed is used up.
            soft: labels, (C, K), each row adding up to 1; or zeros where the weight is 0.
            weight: (C, 1).
            summed: sum the parameters' gradients over the clients.

        Returns:
            gradient in x, (C, width); gradients of the parameters; cross-entropy without the weights, (C, 1).
        """
        log_probability = run.logits.log_softmax(1)
        entropy = (soft * log_probability).sum(1, keepdim=True).neg_()
        pull = log_probability.exp_().sub_(soft).mul_(weight)
        gradients, into = self._last_gradients(layers, run, pull, weight, summed)
        if run.drawn is not None and layers.mean_weight is not None and layers.deviation_weight is not None:
            noise, mean, pre_deviation, deviation = run.drawn
            beta = self.beta_latent
            into_mean = torch.addcmul(into, mean, weight, value=beta)
            into_deviation = into.mul_(noise).addcmul_(deviation, weight, value=beta)
            into_deviation.addcdiv_(weight, deviation, value=-beta).mul_(pre_deviation.sigmoid())
            gradients["mean_weight"] = outer(into_mean, run.hidden, summed)
            gradients["mean_bias"] = total(into_mean, summed)
            gradients["deviation_weight"] = outer(into_deviation, run.hidden, summed)
            gradients["deviation_bias"] = total(into_deviation, summed)
            into = back(into_mean, layers.mean_weight).add_(back(into_deviation, layers.deviation_weight))
        into = through_relu(into, run.hidden)
        gradients["encoder_weight"] = outer(into, x, summed)
        gradients["encoder_bias"] = total(into, summed)
        return back(into, layers.encoder_weight), Layers.of(gradients), entropy

    def slope(self, layers: Layers, run: Pass, pull: Tensor) -> Tensor:
        """Gradient in x, (C, width), of Σ_k pull_k · logit_k; pull is (C, K)."""
        into = back(pull, run.last_weight)
        if run.drawn is not None and layers.mean_weight is not None and layers.deviation_weight is not None:
            into_deviation = into * run.drawn.noise * run.drawn.pre_deviation.sigmoid()
            into = back(into, layers.mean_weight) + back(into_deviation, layers.deviation_weight)
        return back(through_relu(into, run.hidden), layers.encoder_weight)

    def _last_gradients(
        self, layers: Layers, run: Pass, pull: Tensor, weight: Tensor, summed: bool
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Gradients of the last layer and in what it reads, from those of the logits (`pull`, weights included)."""
        gradients = {} if layers.last_bias is None else {"last_bias": total(pull, summed)}
        if run.blur is None or layers.last_deviation is None:
            gradients["last_weight"] = outer(pull, run.latent, summed)
            return gradients, back(pull, run.last_weight)
        blur, noise = run.blur
        scale = weight.sum() if summed else weight.view(-1, *(1 for _ in self.noise_shape))
        beta = self.beta_weight
        if self.head == "logit":
            straight = outer(pull, run.latent, summed)
            drawn = pull * noise
            into = back(pull, run.last_weight)
        else:
            column = pull.unsqueeze(2)
            each = column * run.latent.unsqueeze(1)
            straight, drawn = (each.sum(0), each.mul_(noise)) if summed else (each, each * noise)
            straight.addcmul_(layers.last_weight, scale, value=beta)
            into = (run.last_weight * column).sum(1)
        if summed:
            drawn = drawn.sum(0)
        drawn.addcmul_(blur, scale, value=beta).addcdiv_(scale, blur, value=-beta)
        gradients["last_weight"] = straight
        gradients["last_deviation"] = drawn.mul_(layers.last_deviation.sigmoid())
        return gradients, into
