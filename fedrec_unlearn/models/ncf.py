"""Neural collaborative filtering (NeuMF): a GMF branch and an MLP branch, fused by one linear layer."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec_unlearn.models.base import Dense, Parts, Recommender, RowLayout, Tower
from fedrec_unlearn.models.mlp import SplitMLP


class NCF(Recommender):
    """GMF and MLP branches with separate embeddings.

    Private: `user_gmf`, `user_mlp` (n_users, d each). Item rows: `item_gmf`, `item_mlp` (n_items, d each).
    Dense: the MLP, `output_gmf_weight` (d,), `output_mlp_weight` (h,), `output_bias` (1,).

    Source: He et al. 2017, eqs. 8-12 (NeuMF), trained jointly rather than pre-trained.
    """

    name = "ncf"

    def __init__(self, n_users: int, n_items: int, embedding_dim: int, hidden_sizes: tuple[int, ...]) -> None:
        super().__init__(n_users, n_items)
        self.embedding_dim = embedding_dim
        self.user_layout = RowLayout((("user_gmf", embedding_dim), ("user_mlp", embedding_dim)))
        self.item_layout = RowLayout((("item_gmf", embedding_dim), ("item_mlp", embedding_dim)))
        self.mlp = SplitMLP(embedding_dim, embedding_dim, hidden_sizes)
        self.head_widths = hidden_sizes
        self.dense_shapes = {
            **self.mlp.dense_shapes(),
            "output_gmf_weight": (embedding_dim,),
            "output_mlp_weight": (hidden_sizes[-1],),
            "output_bias": (1,),
        }

    def fan(self, name: str) -> int:
        if name.startswith("output_"):
            return self.embedding_dim + self.mlp.sizes[-1] + 1
        return self.mlp.fan(name) or super().fan(name)

    def user_tower(self, user: Parts, dense: Dense) -> Tower:
        factors = user["user_gmf"] * dense["output_gmf_weight"]
        return Tower(factors, hidden=self.mlp.user_part(user["user_mlp"], dense))

    def item_tower(self, items: Parts, dense: Dense, features: Tensor | None) -> Tower:
        return Tower(items["item_gmf"], hidden=self.mlp.item_part(items["item_mlp"], dense))

    def head(self, hidden: Tensor, dense: Dense) -> Tensor:
        last = self.mlp.hidden(hidden, dense)
        return torch.matmul(last, dense["output_mlp_weight"].unsqueeze(-1)).squeeze(-1) + dense["output_bias"]
