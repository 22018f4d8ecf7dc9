"""The multi-layer perceptron NCF and DeepFM share, with its first layer split into a user and an item part.

The first layer of an MLP on concatenated embeddings is a sum of one product per embedding. Kept apart, the
item part can be computed once per item instead of once per (user, item) pair.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec_unlearn.models.base import Dense, linear


class SplitMLP:
    """ReLU layers `sizes` over the concatenation of a user part and an item part.

    Args:
        user_width, item_width: lengths of the two parts of the input.
        sizes: widths of the layers, all followed by ReLU.
    """

    def __init__(self, user_width: int, item_width: int, sizes: tuple[int, ...]) -> None:
        self.user_width, self.item_width, self.sizes = user_width, item_width, sizes

    def dense_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters."""
        shapes: dict[str, tuple[int, ...]] = {
            "mlp_user_weight": (self.sizes[0], self.user_width),
            "mlp_item_weight": (self.sizes[0], self.item_width),
            "mlp_0_bias": (self.sizes[0],),
        }
        for layer, (inputs, outputs) in enumerate(zip(self.sizes, self.sizes[1:], strict=False), start=1):
            shapes[f"mlp_{layer}_weight"] = (outputs, inputs)
            shapes[f"mlp_{layer}_bias"] = (outputs,)
        return shapes

    def fan(self, name: str) -> int | None:
        """Inputs plus outputs of the split first layer, or None for any other tensor."""
        if name in ("mlp_user_weight", "mlp_item_weight"):
            return self.user_width + self.item_width + self.sizes[0]
        return None

    def user_part(self, user: Tensor, dense: Dense) -> Tensor:
        """First layer's user part and bias: (..., user_width) gives (..., sizes[0])."""
        return linear(user.unsqueeze(-2), dense["mlp_user_weight"], dense["mlp_0_bias"]).squeeze(-2)

    def item_part(self, items: Tensor, dense: Dense) -> Tensor:
        """First layer's item part: (..., L, item_width) gives (..., L, sizes[0])."""
        return linear(items, dense["mlp_item_weight"])

    def hidden(self, pre_activation: Tensor, dense: Dense) -> Tensor:
        """Last hidden layer from the first one's pre-activation: (..., L, sizes[0]) gives (..., L, sizes[-1])."""
        h = torch.relu(pre_activation)
        for layer in range(1, len(self.sizes)):
            # in place: a product's way back needs its inputs, not its output
            h = torch.relu_(linear(h, dense[f"mlp_{layer}_weight"], dense[f"mlp_{layer}_bias"]))
        return h
