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
from torch.nn import functional

from fedrec_unlearn.errors import ModelError
from fedrec_unlearn.models.client_layers import affine, back, outer, through_relu
from fedrec_unlearn.seeds import Purpose, stream_key, uniform

Kind = Literal["mlp", "vae", "dsvae"]
Head = Literal["weight", "logit", "none"]
Parameters = Mapping[str, Tensor]

INITIAL_DEVIATION = 0.1
"""softplus(S) of every drawn weight or logit before training."""

SMALLEST_DEVIATION = 1e-6
"""Added to σ, so that its logarithm stays finite for rows that reversal has pushed far out."""


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


class _Pass(NamedTuple):
    """A forward pass with what its gradients need."""

    hidden: Tensor
    latent: Tensor
    logits: Tensor
    last_weight: Tensor
    drawn: _Latent | None = None
    blur: _Blur | None = None


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
        self._noise_shape = noise
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

    def forward(self, parameters: Parameters, x: Tensor, draws: Tensor) -> AdversaryOutput:
        """Logits and divergence of a block of rows; differentiable, twice too.

        Args:
            parameters: each (*shape), or (C, *shape) with one copy a client.
            x: rows, (C, width).
            draws: standard normal, (C, n_draws): e1, then e2.
        """
        run = self._run(parameters, x, draws)
        return AdversaryOutput(run.logits, self._divergence(parameters, run), run.latent, run.last_weight)

    def loss(self, parameters: Parameters, x: Tensor, target: Tensor, draws: Tensor) -> Tensor:
        """Cross-entropy plus divergence of each client, (C,); differentiable.

        Args:
            parameters, x, draws: see `forward`.
            target: labels, int64 (C,), or soft labels (C, K).
        """
        run = self._run(parameters, x, draws)
        entropy = -(self._soft(target, run.logits) * run.logits.log_softmax(1)).sum(1)
        return entropy + self._divergence(parameters, run)

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
        copies = parameters["encoder_bias"].dim() == 2
        if summed and copies:
            raise ModelError("gradients of one copy a client cannot be summed: each copy stands elsewhere")
        run = self._run(parameters, x, draws)
        soft = self._soft(target, run.logits)
        log_probability = run.logits.log_softmax(1)
        label = target if target.dim() == 1 else target.argmax(1)
        correct = (run.logits.argmax(1) == label).to(x.dtype)
        entropy = (soft * log_probability).sum(1).neg_()
        column = weight.unsqueeze(1)
        pull = log_probability.exp().sub_(soft).mul_(column)
        gradients = self._last_gradients(parameters, run, pull, weight, summed)
        into = back(pull, run.last_weight)
        if run.drawn is not None:
            noise, mean, pre_deviation, deviation = run.drawn
            beta = self.beta_latent
            into_mean = torch.addcmul(into, mean, column, value=beta)
            spread = deviation - deviation.reciprocal()
            into_deviation = into.mul_(noise).addcmul_(spread, column, value=beta).mul_(pre_deviation.sigmoid())
            for name, cotangent in (("mean", into_mean), ("deviation", into_deviation)):
                gradients[f"{name}_weight"] = outer(cotangent, run.hidden, summed)
                gradients[f"{name}_bias"] = cotangent.sum(0) if summed else cotangent
            into = back(into_mean, parameters["mean_weight"])
            into += back(into_deviation, parameters["deviation_weight"])
        into = through_relu(into, run.hidden)
        gradients["encoder_weight"] = outer(into, x, summed)
        gradients["encoder_bias"] = into.sum(0) if summed else into
        return back(into, parameters["encoder_weight"]), gradients, entropy, correct

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
        run = self._run(parameters, x, draws)
        label = target.unsqueeze(1)
        rival = run.logits.scatter(1, label, -torch.inf).argmax(1, keepdim=True)
        lead = (run.logits.gather(1, label) - run.logits.gather(1, rival)).squeeze(1)
        pull = torch.zeros_like(run.logits).scatter_(1, label, 1.0).scatter_(1, rival, -1.0)
        into = back(pull, run.last_weight)
        if run.drawn is not None:
            into_deviation = into * run.drawn.noise * run.drawn.pre_deviation.sigmoid()
            into = back(into, parameters["mean_weight"]) + back(into_deviation, parameters["deviation_weight"])
        into = through_relu(into, run.hidden)
        return lead, torch.linalg.vector_norm(back(into, parameters["encoder_weight"]), dim=1)

    def _run(self, parameters: Parameters, x: Tensor, draws: Tensor) -> _Pass:
        hidden = affine(x, parameters["encoder_weight"], parameters["encoder_bias"]).relu()
        last = parameters["last_weight"]
        if self.kind == "mlp":
            return _Pass(hidden, hidden, affine(hidden, last, parameters["last_bias"]), last)
        mean = affine(hidden, parameters["mean_weight"], parameters["mean_bias"])
        pre = affine(hidden, parameters["deviation_weight"], parameters["deviation_bias"])
        deviation = functional.softplus(pre) + SMALLEST_DEVIATION
        first = draws[:, : self.latent_size]
        latent = torch.addcmul(mean, deviation, first)
        drawn = _Latent(first, mean, pre, deviation)
        if self.head == "none":
            bias = parameters.get("last_bias")
            return _Pass(hidden, latent, affine(latent, last, bias), last, drawn)
        blur = functional.softplus(parameters["last_deviation"])
        noise = draws[:, self.latent_size :].reshape(-1, *self._noise_shape)
        if self.head == "logit":
            logits = torch.addcmul(affine(latent, last, None), blur, noise)
        else:
            last = torch.addcmul(last, blur, noise)
            logits = affine(latent, last, None)
        return _Pass(hidden, latent, logits, last, drawn, _Blur(blur, noise))

    def _divergence(self, parameters: Parameters, run: _Pass) -> Tensor:
        if run.drawn is None:
            return run.logits.new_zeros(len(run.logits))
        deviation = run.drawn.deviation
        terms = run.drawn.mean.square() + deviation.square() - 2.0 * deviation.log() - 1.0
        total = 0.5 * self.beta_latent * terms.sum(1)
        if run.blur is None:
            return total
        blur = run.blur.deviation
        terms = blur.square() - 2.0 * blur.log() - 1.0
        if self.head == "weight":
            terms = terms + parameters["last_weight"].square()
        return total + 0.5 * self.beta_weight * terms.sum(tuple(range(-len(self._noise_shape), 0)))

    def _last_gradients(
        self, parameters: Parameters, run: _Pass, pull: Tensor, weight: Tensor, summed: bool
    ) -> dict[str, Tensor]:
        """Gradients of the last layer, from those of the logits (`pull`, weights included)."""
        straight = outer(pull, run.latent, summed)
        gradients = {"last_weight": straight}
        if "last_bias" in self.shapes:
            gradients["last_bias"] = pull.sum(0) if summed else pull
        if run.blur is None:
            return gradients
        blur, noise = run.blur
        if self.head == "logit":
            drawn = pull * noise
        else:
            drawn = noise * (outer(pull, run.latent, False) if summed else straight)
        if summed:
            drawn, scale = drawn.sum(0), weight.sum()
        else:
            scale = weight.view(-1, *(1 for _ in self._noise_shape))
        drawn = torch.addcmul(drawn, blur - blur.reciprocal(), scale, value=self.beta_weight)
        gradients["last_deviation"] = drawn * parameters["last_deviation"].sigmoid()
        if self.head == "weight":
            gradients["last_weight"] = torch.addcmul(straight, parameters["last_weight"], scale, value=self.beta_weight)
        return gradients

    @staticmethod
    def _soft(target: Tensor, logits: Tensor) -> Tensor:
        if target.dim() == 2:
            return target
        return torch.zeros_like(logits).scatter_(1, target.unsqueeze(1), 1.0)
