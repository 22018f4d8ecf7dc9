"""The layers of an adversary as its computation reads them: by name, or as views of one vector."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class Layers(NamedTuple):
    """Parameters of an adversary or their gradients: as told, or with one copy a client (C, ...) each.

    Layers a kind lacks are None: mean and deviation for mlp, the last one's deviation where it is not drawn, its bias
    for dsvae.
    """

    encoder_weight: Tensor
    """(h, width)."""
    encoder_bias: Tensor
    """(h,)."""
    mean_weight: Tensor | None
    """(z, h)."""
    mean_bias: Tensor | None
    """(z,)."""
    deviation_weight: Tensor | None
    """(z, h)."""
    deviation_bias: Tensor | None
    """(z,)."""
    last_weight: Tensor
    """(K, z), or (K, h) for mlp."""
    last_deviation: Tensor | None
    """(K, z) or (K,)."""
    last_bias: Tensor | None
    """(K,)."""

    @property
    def copied(self) -> bool:
        """Whether there is one copy a client."""
        return self.encoder_bias.dim() == 2

    @classmethod
    def of(cls, parameters: Mapping[str, Tensor]) -> Layers:
        """From parameters by name."""
        return cls(*(parameters.get(name) for name in cls._fields))  # type: ignore[arg-type]

    def named(self) -> dict[str, Tensor]:
        """By name, those there are."""
        return {name: layer for name, layer in self._asdict().items() if layer is not None}

    def vector(self) -> Tensor:
        """One after the other, row-major: (n,), or (C, n) with one copy a client."""
        lead = self.encoder_bias.shape[:-1]
        return torch.cat([layer.reshape(*lead, -1) for layer in self if layer is not None], -1)


class VectorOfLayers:
    """Where layers lie in a vector: in the order of `Layers`.

    Args:
        shapes: of the parameters by name.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = [shapes.get(name) for name in Layers._fields]
        self._sizes = [math.prod(shape) for shape in self._shapes if shape is not None]

    def layers(self, flat: Tensor) -> Layers:
        """Views of a vector (n,), or of one a client (C, n)."""
        lead = flat.shape[:-1]
        parts = iter(flat.split_with_sizes(self._sizes, -1))
        return Layers(*(None if s is None else next(parts).view(*lead, *s) for s in self._shapes))  # type: ignore[arg-type]
