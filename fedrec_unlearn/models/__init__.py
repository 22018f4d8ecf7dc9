"""Recommenders: which tensors are private, which are item rows, which are shared, and how a score follows."""

from __future__ import annotations

from fedrec_unlearn.config import ModelConfig
from fedrec_unlearn.errors import ModelError
from fedrec_unlearn.models.base import Bilinear, Dense, Given, Parts, Recommender, RowLayout, Tower
from fedrec_unlearn.models.deepfm import DeepFM
from fedrec_unlearn.models.fm import FM
from fedrec_unlearn.models.mf import MF
from fedrec_unlearn.models.ncf import NCF
from fedrec_unlearn.models.objectives import BCE, BPR, MSE, LabelledBCE, Objective, make_objective
from fedrec_unlearn.models.pfedrec import PFedRec

__all__ = [
    "BCE",
    "BPR",
    "FM",
    "MF",
    "MSE",
    "NCF",
    "Bilinear",
    "DeepFM",
    "Dense",
    "Given",
    "LabelledBCE",
    "Objective",
    "PFedRec",
    "Parts",
    "Recommender",
    "RowLayout",
    "Tower",
    "make_model",
    "make_objective",
]


def make_model(config: ModelConfig, n_users: int, n_items: int, feature_fields: tuple[int, ...] = ()) -> Recommender:
    """The recommender a configuration names.

    Args:
        config: model section of the configuration.
        n_users, n_items: sizes of the data set.
        feature_fields: number of values of each item feature field (FM and DeepFM only).

    Raises:
        ModelError: item features for a model that has no fields for them.
    """
    if feature_fields and config.name not in ("fm", "deepfm"):
        raise ModelError(
            f"data.item_features: model {config.name!r} has no item feature fields; "
            "use model.name fm or deepfm, or leave data.item_features empty"
        )
    if config.name == "mf":
        return MF(n_users, n_items, config.embedding_dim)
    if config.name == "ncf":
        return NCF(n_users, n_items, config.embedding_dim, config.hidden_sizes)
    if config.name == "pfedrec":
        return PFedRec(n_users, n_items, config.embedding_dim)
    if config.name == "fm":
        return FM(n_users, n_items, config.embedding_dim, feature_fields)
    return DeepFM(n_users, n_items, config.embedding_dim, config.hidden_sizes, feature_fields)
