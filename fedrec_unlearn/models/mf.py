"""Matrix factorisation: the score of user u and item i is ⟨p_u, q_i⟩."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec_unlearn.models.base import Bilinear, Dense, Recommender, RowLayout


class MF(Recommender):
    """Matrix factorisation without biases.

    Private: `user_embedding` (n_users, d). Item rows: `item_embedding` (n_items, d). No dense parameters.

    Source: Koren, Bell, Volinsky 2009; with BPR, Rendle et al. 2009.
    """

    name = "mf"

    def __init__(self, n_users: int, n_items: int, embedding_dim: int) -> None:
        super().__init__(n_users, n_items)
        self.user_layout = RowLayout((("user_embedding", embedding_dim),))
        self.item_layout = RowLayout((("item_embedding", embedding_dim),))
        self.dense_shapes = {}

    def user_tower(self, user: Tensor, dense: Dense) -> Tensor:
        return user

    def item_tower(self, items: Tensor, dense: Dense, features: Tensor | None) -> Tensor:
        return items

    def interact(self, user: Tensor, items: Tensor, dense: Dense) -> Tensor:
        return torch.matmul(user.unsqueeze(-2), items.mT).squeeze(-2)

    def interact_all(self, user: Tensor, items: Tensor, dense: Dense) -> Tensor:
        return user @ items.T

    @property
    def bilinear(self) -> Bilinear:
        return Bilinear(constant_columns=0, has_offset=False)
