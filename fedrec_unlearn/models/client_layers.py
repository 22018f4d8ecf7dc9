"""A layer's forward and backward steps for one vector a client, with shared weights or a copy a client."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """W x + b: x (C, k), W (o, k) or (C, o, k), b (o,) or (C, o) give (C, o)."""
    if weight.dim() == 2:
        return functional.linear(x, weight, bias)
    column = x.unsqueeze(2)
    if bias is None:
        return torch.bmm(weight, column).squeeze(2)
    return torch.baddbmm(bias.unsqueeze(2), weight, column).squeeze(2)


def back(cotangent: Tensor, weight: Tensor) -> Tensor:
    """Gradient in a layer's input: that in its output (C, o), W (o, k) or (C, o, k) give (C, k)."""
    if weight.dim() == 2:
        return cotangent @ weight
    return torch.bmm(cotangent.unsqueeze(1), weight).squeeze(1)


def outer(cotangent: Tensor, x: Tensor, summed: bool) -> Tensor:
    """Gradient of a weight from that in the output (C, o) and the input (C, k).

    Returns:
        (o, k) summed over the clients, else (C, o, k).
    """
    if summed:
        return cotangent.T @ x
    return cotangent.unsqueeze(2) * x.unsqueeze(1)


def total(cotangent: Tensor, summed: bool) -> Tensor:
    """Gradient of a bias from that in the output, (C, o): (o,) summed over the clients, else (C, o)."""
    return cotangent.sum(0) if summed else cotangent


def through_relu(cotangent: Tensor, activation: Tensor) -> Tensor:
    """Gradient in a ReLU's input from that in its output, both (C, h); 0 where the output is 0."""
    # the sign of a ReLU's output is its derivative; comparing gives a bool, slower to multiply with
    return cotangent * activation.sign()
