"""Classifiers that read an attribute from a private row, with gradients in closed form.

Three kinds, from plain to guarded:

* `mlp`: one hidden layer, logits straight from it.
* `vae`: the hidden layer gives mean and deviation of a latent vector, a fixed last layer with a bias reads its draw.
* `dsvae`: as `vae`, and what the last layer does is drawn anew for every client and step as well (FedAU²).

The description of DSVAE this follows stops before its layers, so they are a reconstruction: with x the row,

    h = ReLU(W1 x + b1)          μ = Wm h + bm          σ = softplus(Ws h + bs)
    z = μ + σ ⊙ e1               W = M + softplus(S) ⊙ e2          logits = W z
    L = CE + β_z KL(z ‖ N(0, I)) + β_w KL(W ‖ N(0, I))

with e1 and e2 standard normal. The last layer has no bias: a bias's gradient is ŷ − y, whose only negative entry is
the label. Every softplus(S) starts at 0.1, small against the weights it blurs, and grows where the divergence asks
for it. Two lesser heads are kept for comparison: `logit` draws one number a logit (logits = M z + softplus(S) ⊙ e2
with S of length K, its divergence that of the noise alone, N(0, softplus(S)²)), and `none` draws nothing but z.

Source: FedAU² (arXiv 2511.22872); PRECODE (Scheliga et al. 2022) for the drawn latent; Kingma & Welling 2014,
appendix B for the divergence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedrec_unlearn.errors import ModelError
from fedrec_unlearn.models.adversary_layers import Layers, VectorOfLayers
from fedrec_unlearn.models.adversary_passes import SMALLEST_DEVIATION, Head, Passes
from fedrec_unlearn.seeds import Purpose, stream_key, uniform

Kind = Literal["mlp", "vae", "dsvae"]
Parameters = Mapping[str, Tensor] | Layers

INITIAL_DEVIATION = 0.1
"""softplus(S) of every drawn weight or logit before training."""

__all__ = ["SMALLEST_DEVIATION", "Adversary", "AdversaryOutput", "Descent", "Head", "Kind"]


class AdversaryOutput(NamedTuple):
    """What an adversary makes of a block of rows."""

    logits: Tensor
    """(C, K)."""
    divergence: Tensor
    """(C,): β_z KL(z) + β_w KL(W), 0 for mlp."""
    latent: Tensor
    """(C, z), what the last layer reads (mlp: the hidden layer, (C, h))."""
    last_weight: Tensor
    """The last layer as used: (C, K, z) where it is drawn or copied per client, else (K, z)."""


class Descent(NamedTuple):
    """What a step against the adversary's loss needs, and what the step tells."""

    into: Tensor
    """Gradient in the rows, (C, width)."""
    gradient: Tensor
    """Gradient in the parameters: (n,) summed over the clients, or (C, n); in the order of `Adversary.shapes`."""
    entropy: Tensor
    """Cross-entropy without the clients' weights, (C, 1)."""
    correct: Tensor
    """(C, 1), 1 where argmax of the logits is the class, else 0."""


class Adversary:
    """A classifier of private rows; it owns no tensors.

    Args:
        kind: `mlp`, `vae` or `dsvae`.
        width: length of a row.
        n_classes: K, at least 2.
        hidden_size: h.
        latent_size: z, used by vae and dsvae.
        head: what dsvae draws at its output; without effect on the other kinds.
        beta_latent, beta_weight: β_z and β_w.

    Raises:
        ModelError: fewer than two classes, or a size below 1.
    """

    def __init__(
        self,
        kind: Kind,
        width: int,
        n_classes: int,
        hidden_size: int = 16,
        latent_size: int = 16,
        head: Head = "weight",
        beta_latent: float = 1e-3,
        beta_weight: float = 1e-3,
    ) -> None:
        if n_classes < 2:
            raise ModelError(f"an adversary tells at least 2 classes apart, not {n_classes}")
        if min(width, hidden_size, latent_size) < 1:
            raise ModelError(
                f"sizes of an adversary must be at least 1 (width {width}, hidden {hidden_size}, latent {latent_size})"
            )
        self.kind, self.width, self.n_classes = kind, width, n_classes
        self.head: Head = head if kind == "dsvae" else "none"
        self.latent_size = latent_size
        self.beta_latent, self.beta_weight = beta_latent, beta_weight
        drawn = kind != "mlp"
        read = latent_size if drawn else hidden_size
        self.shapes: dict[str, tuple[int, ...]] = {
            "encoder_weight": (hidden_size, width),
            "encoder_bias": (hidden_size,),
        }
        if drawn:
            for name in ("mean", "deviation"):
                self.shapes |= {f"{name}_weight": (latent_size, hidden_size), f"{name}_bias": (latent_size,)}
        self.shapes["last_weight"] = (n_classes, read)
        noise: tuple[int, ...] = {"weight": (n_classes, read), "logit": (n_classes,), "none": ()}[self.head]
        if noise:
            self.shapes["last_deviation"] = noise
        if kind != "dsvae":
            self.shapes["last_bias"] = (n_classes,)
        self._vector = VectorOfLayers(self.shapes)
        self._passes = Passes(self.head, latent_size, noise, beta_latent, beta_weight)
        self.n_draws = (latent_size if drawn else 0) + (math.prod(noise) if noise else 0)

    def initial(self, key: int) -> dict[str, Tensor]:
        """Initial parameters, float64: weights Glorot uniform, biases 0, softplus(`last_deviation`) 0.1.

        Args:
            key: from `stream_key`; every tensor has a stream of its own under it.

        Source: Glorot & Bengio 2010, eq. 16.
        """
        initial = {}
        for index, (name, shape) in enumerate(self.shapes.items()):
            if name == "last_deviation":
                initial[name] = torch.full(shape, math.log(math.expm1(INITIAL_DEVIATION)), dtype=torch.float64)
            elif name.endswith("bias"):
                initial[name] = torch.zeros(shape, dtype=torch.float64)
            else:
                draw = 2.0 * uniform(stream_key(key, Purpose.INIT_TERM, index), shape) - 1.0
                initial[name] = torch.from_numpy(draw * math.sqrt(6.0 / sum(shape)))
        return initial

    def layers(self, flat: Tensor) -> Layers:
        """Parameters that lie in one vector, as views; every method here takes them in place of parameters by name.

        Args:
            flat: in the order of `shapes`, (n,) or (C, n).
        """
        return self._vector.layers(flat)

    def forward(self, parameters: Parameters, x: Tensor, draws: Tensor) -> AdversaryOutput:
        """Logits and divergence of a block of rows; differentiable, twice too.

        Args:
            parameters: each (*shape), or (C, *shape) with one copy a client.
            x: rows, (C, width).
            draws: standard normal, (C, n_draws): e1, then e2.
        """
        layers = _layers(parameters)
        run = self._passes.forward(layers, x, draws)
        return AdversaryOutput(run.logits, self._passes.divergence(layers, run), run.latent, run.last_weight)

    def loss(self, parameters: Parameters, x: Tensor, target: Tensor, draws: Tensor) -> Tensor:
        """Cross-entropy plus divergence of each client, (C,); differentiable.

        Args:
            parameters, x, draws: see `forward`.
            target: labels, int64 (C,), or soft labels (C, K).
        """
        layers = _layers(parameters)
        run = self._passes.forward(layers, x, draws)
        entropy = -(self._soft(target, run.logits) * run.logits.log_softmax(1)).sum(1)
        return entropy + self._passes.divergence(layers, run)

    def gradients(
        self, parameters: Parameters, x: Tensor, target: Tensor, draws: Tensor, weight: Tensor, summed: bool
    ) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor]:
        """Gradients of Σ_c weight_c · loss_c in closed form, without autograd.

        Args:
            parameters, x, target, draws: see `loss`; soft labels must add up to 1.
            weight: (C,), what each client's loss is multiplied by.
            summed: sum the parameters' gradients over the clients.

        Returns:
            gradient in x, (C, width); gradients of the parameters, each (*shape) if `summed`, else (C, *shape);
            cross-entropy alone, without the weight, (C,), so that ln K is what guessing has; whether argmax names
            the target's largest class, (C,), 1 or 0 in x's dtype.

        Raises:
            ModelError: `summed` with one copy of the parameters a client.
        """
        layers = _layers(parameters)
        if summed and layers.copied:
            raise ModelError("gradients of one copy a client cannot be summed: each copy stands elsewhere")
        run = self._passes.forward(layers, x, draws)
        label = target if target.dim() == 1 else target.argmax(1)
        correct = (run.logits.argmax(1) == label).to(x.dtype)
        soft = self._soft(target, run.logits)
        into, gradients, entropy = self._passes.backward(layers, run, x, soft, weight.unsqueeze(1), summed)
        return into, gradients.named(), entropy.squeeze(1), correct

    def descent(
        self, layers: Layers, x: Tensor, one_hot: Tensor, draws: Tensor, weight: Tensor, summed: bool
    ) -> Descent:
        """`gradients` for many small steps: parameters and gradients are one vector each.

        Args:
            layers: from `layers`; one copy a client only where not `summed`.
            x, draws: see `forward`.
            one_hot: (C, K); a row of zeros stands for no class, and asks for weight 0.
            weight: (C, 1).
            summed: see `gradients`.
        """
        run = self._passes.forward(layers, x, draws)
        correct = one_hot.gather(1, run.logits.argmax(1, keepdim=True))
        into, gradients, entropy = self._passes.backward(layers, run, x, one_hot, weight, summed)
        return Descent(into, gradients.vector(), entropy, correct)

    def margin(self, parameters: Parameters, x: Tensor, target: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Lead of the label's logit over the best other one, and the norm of its gradient in the row.

        Args:
            parameters, x, draws: see `forward`.
            target: labels, int64 (C,).

        Returns:
            lead (C,), negative where the adversary is wrong; Euclidean norm (C,). Their quotient is the distance
            to the decision boundary to first order.

        Source: Elsayed et al. 2018, eq. 3.
        """
        layers = _layers(parameters)
        run = self._passes.forward(layers, x, draws)
        label = target.unsqueeze(1)
        rival = run.logits.scatter(1, label, -torch.inf).argmax(1, keepdim=True)
        lead = (run.logits.gather(1, label) - run.logits.gather(1, rival)).squeeze(1)
        pull = torch.zeros_like(run.logits).scatter_(1, label, 1.0).scatter_(1, rival, -1.0)
        return lead, torch.linalg.vector_norm(self._passes.slope(layers, run, pull), dim=1)

    @staticmethod
    def _soft(target: Tensor, logits: Tensor) -> Tensor:
        if target.dim() == 2:
            return target
        return torch.zeros_like(logits).scatter_(1, target.unsqueeze(1), 1.0)


def _layers(parameters: Parameters) -> Layers:
    return parameters if isinstance(parameters, Layers) else Layers.of(parameters)
