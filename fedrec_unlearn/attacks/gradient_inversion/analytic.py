"""Attacks that compute the label from the gradient of the last layer, in closed form.

All rest on one fact: with cross-entropy, the gradient of the logits is ŷ − y, and its only negative entry is the
label's. They differ in how they get at its sign:

* `bias_sign`: a last bias has it as its gradient.
* `row_sum`: the last weight's gradient is (ŷ − y) zᵀ; where z cannot be negative, a row's sum has its sign.
* `gram`: whatever z is, two of these rows have a negative inner product exactly if their signs differ, and the label's
  is the row that differs from all others.
* `exact`: whatever is drawn can be solved for, because it is in the gradient too.

Drawing z and the last weights anew, as DSVAE does, is no protection against the last two: they need one gradient of
one client. What they cannot undo is a sum over many clients.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec_unlearn.attacks.gradient_inversion.observation import (
    Observation,
    hidden_layer,
    label_gradient,
    last_weights,
    latent_moments,
)
from fedrec_unlearn.errors import AttackError

ROUNDING = 1e-6
"""Relative error of what is left of single-precision gradients that nearly cancel."""

TIE = 1e-3
"""Weight of a row's length against the cosines: enough to decide between equals."""


def bias_sign(seen: Observation) -> Tensor:
    """The class whose last bias has the smallest gradient, the only negative one for a single client.

    Returns:
        Class of each client, int64 (C,).

    Raises:
        AttackError: the adversary's last layer has no bias.

    Source: Zhao et al. 2020 (iDLG), eq. 3.
    """
    if "last_bias" not in seen.gradients:
        raise AttackError(f"bias_sign: a last layer without bias ({seen.adversary.kind}) cannot be attacked through it")
    return seen.gradients["last_bias"].argmin(dim=1)


def row_sum(seen: Observation) -> Tensor:
    """The class whose row of the last weight's gradient has the smallest sum.

    Right where the last layer reads non-negative numbers, as after a ReLU or sigmoid. Where it reads a latent vector
    with both signs, the sum's sign is that of the class times that of the vector's sum, which only chance knows.

    Returns:
        Class of each client, int64 (C,).

    Source: Zhao et al. 2020 (iDLG), eq. 4.
    """
    return label_gradient(seen, loss_weight(seen)).sum(dim=2).argmin(dim=1)


def gram(seen: Observation) -> Tensor:
    """The class whose row of the last weight's gradient points away from all other rows.

    The inner product of the rows of classes i and j is (ŷ − y)_i (ŷ − y)_j ‖z‖². With three or more classes its signs
    name the label, no matter what z is. Cosines are summed, so that all rows count alike.

    With two classes the rows are each other's negative and both labels fit. What is possible then: the hidden layer
    can be read exactly (`hidden_layer`), so z is known up to its noise; the row against its mean is the label's.

    Returns:
        Class of each client, int64 (C,).
    """
    rows = label_gradient(seen, loss_weight(seen))
    if rows.shape[1] == 2:
        hidden = hidden_layer(seen)
        expected = hidden if seen.adversary.kind == "mlp" else latent_moments(seen, hidden)[0]
        return (rows * expected.unsqueeze(1)).sum(dim=2).argmin(dim=1)
    length: Tensor = torch.linalg.vector_norm(rows, dim=2, keepdim=True)
    unit = rows / length.clamp(min=torch.finfo(rows.dtype).tiny)
    others = unit.sum(dim=1, keepdim=True) - unit
    cosines = (unit * others).sum(dim=2)
    # where a defence left too few rows to compare, the label's is the longest: it makes up for all others
    longest = (length / length.amax(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)).squeeze(2)
    return (cosines - TIE * longest).argmin(dim=1)


def exact(seen: Observation) -> Tensor:
    """Solve the gradient for everything the client drew, then read the sign of ŷ − y.

    With a last bias that is `bias_sign`. Without one, for a client with loss weight w:

    1. the gradient of M gives w (ŷ − y) zᵀ, hence ŷ − y up to one factor t, whose sign is not known yet;
    2. divided into the gradient of S it gives e2, hence the last layer W as it was drawn;
    3. the gradient of the mean's layer gives its input h and, with μ computed from h, w Wᵀ (ŷ − y) = g − w β_z μ;
    4. Wᵀ times the vector of step 1 is that of step 3 times t: its sign is t's. Where w is not known yet, the same
       equation has two unknowns and z rows, and gives both.

    Exact up to rounding on the gradient of one local step of one client, whatever was drawn. Where step 3 leaves
    nothing but rounding, the client's ŷ is its label, and what the adversary names without noise is taken.

    Returns:
        Class of each client, int64 (C,).
    """
    if "last_bias" in seen.gradients:
        return bias_sign(seen)
    weight = loss_weight(seen)
    rows = label_gradient(seen, weight)
    drawn = last_weights(seen, rows, weight)
    # rows = p zᵀ: multiplied by its own heaviest column it is p up to a factor
    heaviest = torch.linalg.vector_norm(rows, dim=1).argmax(dim=1)
    column = rows.gather(2, heaviest[:, None, None].expand(-1, rows.shape[1], 1))
    pull = (rows @ (rows.transpose(1, 2) @ column)).squeeze(2)
    back = torch.bmm(pull.unsqueeze(1), drawn).squeeze(1)
    mean, _ = latent_moments(seen, hidden_layer(seen))
    known = seen.adversary.beta_latent * mean
    into = seen.gradients["mean_bias"]
    if seen.adversary.head != "weight" and not _all_equal(seen.class_weights):
        weight = _second_coefficient(into, back, known).clamp(*seen.class_weights.aminmax())
    into_latent = into - weight.unsqueeze(1) * known
    lost = into_latent.abs().amax(dim=1) < ROUNDING * into.abs().amax(dim=1)
    sign = torch.where((back * into_latent).sum(dim=1) < 0, -1.0, 1.0).to(pull.dtype)
    named = (mean @ seen.parameters["last_weight"].T).argmax(dim=1)
    return torch.where(lost, named, (pull * sign.unsqueeze(1)).argmin(dim=1))


def matched_label(rows: Tensor, latent: Tensor, predicted: Tensor) -> Tensor:
    """The dummy label whose gradient of a bias-free last weight is closest to the one seen.

    For a dummy latent z' and prediction ŷ' it is y* = ŷ' − ⟨∇W, z'⟩ / ‖z'‖², and with the client's own z and ŷ it
    is the label. With another z' the client's ŷ − y comes in scaled by ⟨z, z'⟩ / ‖z'‖²: a latent that points the
    other way turns its sign around, which is what drawing z is for.

    Args:
        rows: ∇W, (C, K, z), without the divergence's part (`label_gradient`).
        latent: z', (C, z), not all zero.
        predicted: ŷ', (C, K).

    Returns:
        y*, (C, K), not bound to [0, 1].

    Source: FedAU² (arXiv 2511.22872), eq. 7, written out.
    """
    along = torch.bmm(rows, latent.unsqueeze(2)).squeeze(2)
    return predicted - along / (latent * latent).sum(dim=1, keepdim=True)


def loss_weight(seen: Observation) -> Tensor:
    """What each client's loss was multiplied by, (C,), as far as the gradient tells.

    Columns of (ŷ − y) zᵀ add up to zero, so the columns' sums of a drawn last weight's gradient are w β_w times
    those of M: w follows by least squares. Note what that says where classes are weighed: **w is the label**, in
    the clear. Where the last weight is not drawn its gradient is proportional to w, which moves no sign; then the mean
    weight is returned.
    """
    weights, beta = seen.class_weights, seen.adversary.beta_weight
    if seen.adversary.head != "weight" or beta == 0.0 or _all_equal(weights):
        return weights.mean().expand(seen.n)
    shared = beta * seen.parameters["last_weight"].sum(dim=0)
    found = seen.gradients["last_weight"].sum(dim=1) @ shared / (shared @ shared)
    return found.clamp(float(weights.min()), float(weights.max()))


def _all_equal(values: Tensor) -> bool:
    return bool((values == values[0]).all())


def _second_coefficient(given: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """b of the least-squares fit given ≈ a · first + b · second, for each row, (C,)."""
    tiny = torch.finfo(given.dtype).tiny
    along = (first * second).sum(dim=1, keepdim=True) / (first * first).sum(dim=1, keepdim=True).clamp(min=tiny)
    apart = second - along * first
    return (given * apart).sum(dim=1) / (apart * apart).sum(dim=1).clamp(min=tiny)
