"""DeepFM: a factorisation machine and an MLP on the same embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec_unlearn.models.base import Dense, split_columns
from fedrec_unlearn.models.fm import FM
from fedrec_unlearn.models.mlp import SplitMLP


class DeepFM(FM):
    """FM plus an MLP over the concatenated field embeddings (user, item, each feature field's mean).

    Private, item rows and dense as `FM`; dense also holds the MLP and `output_weight` (h,).

    Source: Guo et al. 2017, eqs. 1-4.
    """

    name = "deepfm"

    def __init__(
        self,
        n_users: int,
        n_items: int,
        embedding_dim: int,
        hidden_sizes: tuple[int, ...],
        feature_fields: tuple[int, ...] = (),
    ) -> None:
        super().__init__(n_users, n_items, embedding_dim, feature_fields)
        self.mlp = SplitMLP(embedding_dim, embedding_dim * (1 + len(feature_fields)), hidden_sizes)
        self.dense_shapes = {**self.dense_shapes, **self.mlp.dense_shapes(), "output_weight": (hidden_sizes[-1],)}

    def fan(self, name: str) -> int:
        return self.mlp.fan(name) or super().fan(name)

    def user_tower(self, user: Tensor, dense: Dense) -> Tensor:
        part = self.mlp.user_part(user[..., : self.embedding_dim], dense)
        return torch.cat([super().user_tower(user, dense), part], dim=-1)

    def item_tower(self, items: Tensor, dense: Dense, features: Tensor | None) -> Tensor:
        fields = [items[..., : self.embedding_dim]]
        start = 0
        for size in self.feature_fields if features is not None else ():
            assert features is not None
            values = features[..., start : start + size]
            fields.append(torch.matmul(values, dense["feature_embedding"][..., start : start + size, :]))
            start += size
        part = self.mlp.item_part(torch.cat(fields, dim=-1) if len(fields) > 1 else fields[0], dense)
        return torch.cat([super().item_tower(items, dense, features), part], dim=-1)

    def interact(self, user: Tensor, items: Tensor, dense: Dense) -> Tensor:
        widths = (self.embedding_dim + 1, self.mlp.sizes[0])
        user_fm, user_part = split_columns(user, widths)
        item_fm, item_part = split_columns(items, widths)
        return super().interact(user_fm, item_fm, dense) + self._deep(user_part, item_part, dense)

    def interact_all(self, user: Tensor, items: Tensor, dense: Dense) -> Tensor:
        width = self.embedding_dim + 1
        pairwise = super().interact_all(user[:, :width], items[:, :width], dense)
        return pairwise + self._deep(user[:, width:], items[:, width:].unsqueeze(0), dense)

    def _deep(self, user_part: Tensor, item_part: Tensor, dense: Dense) -> Tensor:
        hidden = self.mlp.hidden(user_part, item_part, dense)
        return torch.matmul(hidden, dense["output_weight"].unsqueeze(-1)).squeeze(-1)

    @property
    def bilinear(self) -> None:
        return None

    @property
    def activation_width(self) -> int:
        return 2 * self.item_layout.width + 2 * sum(self.mlp.sizes)
