"""This package's recommenders as RecBole models: FedMF, FedNCF, FedFM and FedDeepFM.

They are RecBole modules like any other, so RecBole builds, evaluates and saves them; their tables are laid out as the
federation has them, so clients train them at full speed. RecBole's own trainer could train them centrally as well.
"""

from __future__ import annotations

from typing import Any

import torch
from recbole.model.abstract_recommender import GeneralRecommender
from recbole.utils import InputType
from torch import Tensor, nn

from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.models import BCE, BPR, FM, MF, NCF, DeepFM, Objective, Recommender


class FederatedModel(GeneralRecommender):  # type: ignore[misc]
    """A recommender of this package in RecBole's numbering: row 0 of each table is [PAD] and never trains.

    Parameters: `user_rows` (users + 1, width), `item_rows` (items + 1, width) and `dense`, by name.

    Args:
        config: RecBole's configuration: `embedding_size`, `mlp_hidden_size` where there is an MLP, `init_std`, `seed`.
        dataset: RecBole's training data set.
    """

    input_type = InputType.PAIRWISE

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.LABEL = config["LABEL_FIELD"]
        self.recommender = self.make_recommender(self.n_users - 1, self.n_items - 1, config)
        seed, std = int(config["seed"]), float(_given(config, "init_std", 0.05))
        if std <= 0:
            raise ConfigError(f"init_std: must be positive, not {std:g}")
        users = self.recommender.initial_user_rows(seed, std)
        items = self.recommender.initial_item_rows(seed, std)
        self.user_rows, self.item_rows = _padded(users), _padded(items)
        dense = self.recommender.initial_dense(seed, std)
        self.dense = nn.ParameterDict({name: nn.Parameter(value.float()) for name, value in dense.items()})

    def make_recommender(self, n_users: int, n_items: int, config: Any) -> Recommender:
        """The recommender for so many users and items, without [PAD]."""
        raise NotImplementedError

    @property
    def shared(self) -> dict[str, Tensor]:
        """Dense parameters by name."""
        return dict(self.dense.items())

    @property
    def objective(self) -> Objective:
        """The loss on scores this model trains with."""
        return BPR() if self.input_type == InputType.PAIRWISE else BCE()

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Scores of pairs of RecBole ids, each (B,)."""
        rows = self.user_rows.index_select(0, user)
        return self.recommender.score(rows, self.item_rows.index_select(0, item).unsqueeze(1), self.shared).squeeze(1)

    def calculate_loss(self, interaction: Any) -> Tensor:
        """BPR of the positive and the negative item's scores, or cross-entropy with the labels."""
        score = self.forward(interaction[self.USER_ID], interaction[self.ITEM_ID])
        if self.input_type == InputType.PAIRWISE:
            negative = self.forward(interaction[self.USER_ID], interaction[self.NEG_ITEM_ID])
            return nn.functional.softplus(negative - score).mean()
        return nn.functional.binary_cross_entropy_with_logits(score, interaction[self.LABEL].to(score.dtype))

    def predict(self, interaction: Any) -> Tensor:
        """Scores of the pairs of an interaction, (B,)."""
        return self.forward(interaction[self.USER_ID], interaction[self.ITEM_ID])

    def full_sort_predict(self, interaction: Any) -> Tensor:
        """Scores of all items for the users of an interaction, (B · items,)."""
        model = self.recommender
        rows = self.user_rows.index_select(0, interaction[self.USER_ID])
        users = model.user_tower(model.user_layout.parts(rows), self.shared)
        items = model.item_tower(model.item_layout.parts(self.item_rows), self.shared, None)
        return model.interact_all(users, items, self.shared).reshape(-1)


class FedMF(FederatedModel):
    """Matrix factorisation trained by clients; see `fedrec_unlearn.models.MF`."""

    def make_recommender(self, n_users: int, n_items: int, config: Any) -> Recommender:
        """See `FederatedModel.make_recommender`."""
        return MF(n_users, n_items, _size(config))


class FedNCF(FederatedModel):
    """Neural collaborative filtering trained by clients; see `fedrec_unlearn.models.NCF`."""

    def make_recommender(self, n_users: int, n_items: int, config: Any) -> Recommender:
        """See `FederatedModel.make_recommender`."""
        return NCF(n_users, n_items, _size(config), _layers(config))


class FedFM(FederatedModel):
    """A factorisation machine over the two ids trained by clients; see `fedrec_unlearn.models.FM`."""

    def make_recommender(self, n_users: int, n_items: int, config: Any) -> Recommender:
        """See `FederatedModel.make_recommender`."""
        return FM(n_users, n_items, _size(config))


class FedDeepFM(FederatedModel):
    """DeepFM over the two ids trained by clients, with cross-entropy; see `fedrec_unlearn.models.DeepFM`."""

    input_type = InputType.POINTWISE

    def make_recommender(self, n_users: int, n_items: int, config: Any) -> Recommender:
        """See `FederatedModel.make_recommender`."""
        return DeepFM(n_users, n_items, _size(config), _layers(config))


FEDERATED_MODELS: dict[str, type[FederatedModel]] = {kind.__name__: kind for kind in (FedMF, FedNCF, FedFM, FedDeepFM)}
"""Models RecBole gets from this package, by name."""


def _padded(rows: Tensor) -> nn.Parameter:
    return nn.Parameter(torch.cat([rows.new_zeros(1, rows.shape[1]), rows]).float())


def _given(config: Any, key: str, default: Any) -> Any:
    return default if config[key] is None else config[key]


def _size(config: Any) -> int:
    size = _given(config, "embedding_size", 64)
    if not isinstance(size, int) or size < 1:
        raise ConfigError(f"embedding_size: must be a whole number of at least 1, not {size!r}")
    return size


def _layers(config: Any) -> tuple[int, ...]:
    sizes = _given(config, "mlp_hidden_size", (64, 32, 16))
    if not isinstance(sizes, (list, tuple)) or not sizes or not all(isinstance(s, int) and s >= 1 for s in sizes):
        raise ConfigError(f"mlp_hidden_size: must be a list of widths, not {sizes!r}")
    return tuple(sizes)
