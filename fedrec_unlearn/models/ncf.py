"""Neural collaborative filtering (NeuMF): a GMF branch and an MLP branch, fused by one linear layer."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec_unlearn.models.base import Dense, Recommender, RowLayout, split_columns
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

    def user_tower(self, user: Tensor, dense: Dense) -> Tensor:
        gmf, mlp = split_columns(user, (self.embedding_dim, self.embedding_dim))
        return torch.cat([gmf * dense["output_gmf_weight"], self.mlp.user_part(mlp, dense)], dim=-1)

    def item_tower(self, items: Tensor, dense: Dense, features: Tensor | None) -> Tensor:
        gmf, mlp = split_columns(items, (self.embedding_dim, self.embedding_dim))
        return torch.cat([gmf, self.mlp.item_part(mlp, dense)], dim=-1)

    def interact(self, user: Tensor, items: Tensor, dense: Dense) -> Tensor:
        user_gmf, user_part = split_columns(user, (self.embedding_dim, self.mlp.sizes[0]))
        item_gmf, item_part = split_columns(items, (self.embedding_dim, self.mlp.sizes[0]))
        gmf = torch.matmul(user_gmf.unsqueeze(-2), item_gmf.mT).squeeze(-2)
        return gmf + self._mlp_score(user_part, item_part, dense)

    def interact_all(self, user: Tensor, items: Tensor, dense: Dense) -> Tensor:
        d = self.embedding_dim
        return user[:, :d] @ items[:, :d].T + self._mlp_score(user[:, d:], items[:, d:].unsqueeze(0), dense)

    def _mlp_score(self, user_part: Tensor, item_part: Tensor, dense: Dense) -> Tensor:
        hidden = self.mlp.hidden(user_part, item_part, dense)
        return torch.matmul(hidden, dense["output_mlp_weight"].unsqueeze(-1)).squeeze(-1) + dense["output_bias"]

    @property
    def activation_width(self) -> int:
        return 2 * self.item_layout.width + 2 * sum(self.mlp.sizes)
