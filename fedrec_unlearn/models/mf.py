"""Matrix factorisation: the score of user u and item i is ⟨p_u, q_i⟩."""

from __future__ import annotations

from torch import Tensor

from fedrec_unlearn.models.base import Bilinear, Dense, Parts, Recommender, RowLayout, Tower


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

    def user_tower(self, user: Parts, dense: Dense) -> Tower:
        return Tower(user["user_embedding"])

    def item_tower(self, items: Parts, dense: Dense, features: Tensor | None) -> Tower:
        return Tower(items["item_embedding"])

    @property
    def bilinear(self) -> Bilinear:
        return Bilinear(constant_columns=0, has_offset=False)
