"""DeepFM: a factorisation machine and an MLP on the same embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec_unlearn.models.base import Dense, Parts, Tower
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
        self.head_widths = hidden_sizes
        self.dense_shapes = {**self.dense_shapes, **self.mlp.dense_shapes(), "output_weight": (hidden_sizes[-1],)}

    def fan(self, name: str) -> int:
        return self.mlp.fan(name) or super().fan(name)

    def user_tower(self, user: Parts, dense: Dense) -> Tower:
        return super().user_tower(user, dense)._replace(hidden=self.mlp.user_part(user["user_embedding"], dense))

    def item_tower(self, items: Parts, dense: Dense, features: Tensor | None) -> Tower:
        fields = [items["item_embedding"]]
        if features is not None:
            start = 0
            for size in self.feature_fields:
                table = dense["feature_embedding"][..., start : start + size, :]
                fields.append(torch.matmul(features[..., start : start + size], table))
                start += size
        joined = torch.cat(fields, dim=-1) if len(fields) > 1 else fields[0]
        return super().item_tower(items, dense, features)._replace(hidden=self.mlp.item_part(joined, dense))

    def head(self, hidden: Tensor, dense: Dense) -> Tensor:
        last = self.mlp.hidden(hidden, dense)
        return torch.matmul(last, dense["output_weight"].unsqueeze(-1)).squeeze(-1)

    @property
    def bilinear(self) -> None:
        return None
