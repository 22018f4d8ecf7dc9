"""PFedRec: no user embedding; each client has a score function of its own on shared item embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec_unlearn.models.base import Dense, Parts, Recommender, RowLayout, Tower
from fedrec_unlearn.seeds import Purpose, normal, stream_key


class PFedRec(Recommender):
    """A personal one-layer score function: the score of user u and item i is ⟨w_u, q_i⟩ + b_u.

    Private: `score_weight` (n_users, d), `score_bias` (n_users, 1), the layer. Item rows: `item_embedding`
    (n_items, d). No dense parameters. As a formula this is MF with a user bias; what differs is that nobody has a
    user embedding: all clients start from one score function, drawn from the seed, and become different by their
    data alone. It is the layer that an attacker who looks for a user's representation takes.

    The paper's second personalisation, items fine-tuned on the client, lasts here as long as the client's local
    training: recommendations are made with the server's item rows. The paper trains layer and items in turn;
    here both move at once, each with its learning rate (`federation.user_learning_rate` and
    `federation.client_learning_rate`).

    Source: Zhang et al. 2023 (Dual Personalization on Federated Recommendation), without the final sigmoid, which
    does not change the order of items and is part of the bce objective.
    """

    name = "pfedrec"

    def __init__(self, n_users: int, n_items: int, embedding_dim: int) -> None:
        super().__init__(n_users, n_items)
        self.user_layout = RowLayout((("score_weight", embedding_dim), ("score_bias", 1)))
        self.item_layout = RowLayout((("item_embedding", embedding_dim),))
        self.dense_shapes = {}

    def user_tower(self, user: Parts, dense: Dense) -> Tower:
        return Tower(user["score_weight"], user["score_bias"].squeeze(-1))

    def item_tower(self, items: Parts, dense: Dense, features: Tensor | None) -> Tower:
        return Tower(items["item_embedding"])

    def initial_user_rows(self, seed: int, std: float) -> Tensor:
        """One row for everybody, float64 (n_users, d + 1)."""
        one = normal(stream_key(seed, Purpose.INIT_USER), (1, self.user_layout.width)) * std
        return torch.from_numpy(one).repeat(self.n_users, 1)
