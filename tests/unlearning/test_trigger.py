"""The selective unlearning trigger."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from fedrec_unlearn.models.adversary import Adversary
from fedrec_unlearn.unlearning.trigger import binary_trigger, continuous_trigger


def test_binary_trigger_acts_where_the_adversary_is_right() -> None:
    assert_close(binary_trigger(0.3, torch.tensor([1.0, 0.0, 1.0])), torch.tensor([0.3, 0.0, 0.3]))


def test_continuous_trigger_is_the_scaled_distance_within_bounds() -> None:
    lead, slope = torch.tensor([0.5, -2.0, 30.0, 0.0]), torch.tensor([2.0, 1.0, 1.0, 4.0])
    assert_close(continuous_trigger(1.0, 2.0, lead, slope), torch.tensor([0.5, 0.0, 1.0, 0.0]))


def test_continuous_trigger_where_the_adversary_is_flat() -> None:
    strength = continuous_trigger(0.4, 1.0, torch.tensor([1.0, -1.0, 0.0]), torch.zeros(3))
    assert_close(strength, torch.tensor([0.4, 0.0, 0.0]))


def test_estimated_distance_is_the_distance_for_a_linear_adversary() -> None:
    """A hidden layer in its linear part: the boundary is a hyperplane, and a step of that length reaches it."""
    model = Adversary("mlp", 3, 2, hidden_size=2)
    parameters = {name: value.clone() for name, value in model.initial(4).items()}
    parameters["encoder_bias"] += 50.0
    parameters["last_bias"] -= parameters["last_weight"].sum(1) * 50.0
    x = torch.tensor([[0.3, -0.2, 0.5]], dtype=torch.float64)
    logits = model.forward(parameters, x, x[:, :0]).logits
    label = logits.argmax(1)
    lead, slope = model.margin(parameters, x, label, x[:, :0])
    distance = continuous_trigger(1e9, 1.0, lead, slope)
    moved = x.clone().requires_grad_()
    difference = model.forward(parameters, moved, x[:, :0]).logits @ torch.tensor([1.0, -1.0], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(difference.sum(), moved)
    step = -torch.sign(difference) * distance * gradient / gradient.norm()
    at_boundary = model.forward(parameters, x + step, x[:, :0]).logits
    assert_close(at_boundary[:, 0], at_boundary[:, 1], rtol=0, atol=1e-10)
