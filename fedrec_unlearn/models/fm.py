"""Factorisation machine over the fields user id, item id and, if asked for, item features."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec_unlearn.models.base import Bilinear, Dense, Parts, Recommender, RowLayout, Tower


class FM(Recommender):
    """Second-order factorisation machine.

    Private: `user_embedding` (n_users, d), `user_linear` (n_users, 1). Item rows: `item_embedding` (n_items, d),
    `item_linear` (n_items, 1). Dense: `bias` (1,), and with item features `feature_embedding` (F, d),
    `feature_linear` (F,). The pairwise sum is folded into the item tower, so a pair costs one inner product.

    Source: Rendle 2010, eqs. 1 and 5.
    """

    name = "fm"

    def __init__(self, n_users: int, n_items: int, embedding_dim: int, feature_fields: tuple[int, ...] = ()) -> None:
        super().__init__(n_users, n_items, feature_fields)
        self.embedding_dim = embedding_dim
        self.user_layout = RowLayout((("user_embedding", embedding_dim), ("user_linear", 1)))
        self.item_layout = RowLayout((("item_embedding", embedding_dim), ("item_linear", 1)))
        self.dense_shapes = {"bias": (1,)}
        if feature_fields:
            self.dense_shapes["feature_embedding"] = (sum(feature_fields), embedding_dim)
            self.dense_shapes["feature_linear"] = (sum(feature_fields),)

    def user_tower(self, user: Parts, dense: Dense) -> Tower:
        return Tower(user["user_embedding"], (user["user_linear"] + dense["bias"]).squeeze(-1))

    def item_tower(self, items: Parts, dense: Dense, features: Tensor | None) -> Tower:
        """Factors v_i + f, bias w_i + ⟨x, w⟩ + ⟨v_i, f⟩ + (‖f‖² − Σ x²‖v‖²)/2, with f = Σ x v over the features."""
        v, bias = items["item_embedding"], items["item_linear"].squeeze(-1)
        if features is None:
            return Tower(v, bias)
        embedding = dense["feature_embedding"]
        total = torch.matmul(features, embedding)
        squares = torch.matmul(features.square(), embedding.square().sum(-1, keepdim=True)).squeeze(-1)
        first = torch.matmul(features, dense["feature_linear"].unsqueeze(-1)).squeeze(-1)
        bias = bias + first + (v * total).sum(-1) + 0.5 * (total.square().sum(-1) - squares)
        return Tower(v + total, bias)

    @property
    def bilinear(self) -> Bilinear | None:
        return None if self.feature_fields else Bilinear(constant_columns=1, has_offset=True)
