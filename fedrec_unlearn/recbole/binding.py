"""Ties a RecBole model to the federation: its tables as private rows, item rows and dense parameters, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedrec_unlearn.errors import ConfigError, ModelError
from fedrec_unlearn.models import BCE, BPR, LabelledBCE, Objective, Recommender
from fedrec_unlearn.recbole.native import FederatedModel
from fedrec_unlearn.recbole.partition import partition_of
from fedrec_unlearn.recbole.probe import check_copies, check_scores, find_penalty
from fedrec_unlearn.recbole.stock import StockRecommender
from fedrec_unlearn.recbole.towers import same_scores, tower_form

Tables = tuple[Tensor, Tensor, dict[str, Tensor]]
"""Private rows (n_users, width), item rows (n_items, width), dense parameters; without [PAD]."""


@dataclass(frozen=True)
class Binding:
    """A RecBole model as the federation sees it, and the way between its tables and the federation's."""

    model: nn.Module
    recommender: Recommender
    objective: Objective
    num_negatives: int
    features: Tensor | None = None
    """Item features of `Workload`, or None."""
    user_features: Tensor | None = None
    """User features of `Workload`, or None."""
    stock: StockRecommender | None = None
    """A stock model's tables by name; None for this package's own models."""
    dense_names: Mapping[str, str] | None = None
    """The stock model's names of the recommender's dense parameters, where they differ."""

    def read(self, dtype: torch.dtype = torch.float32) -> Tables:
        """Copies of the model's tables in the federation's layout and numbering."""
        if isinstance(self.model, FederatedModel):
            private, items, dense = _read_own(self.model)
        else:
            private, items, dense = _read(self.model, self._stock)
            if self.dense_names is not None:
                dense = {name: dense[theirs] for name, theirs in self.dense_names.items()}
        return private.to(dtype), items.to(dtype), {name: value.to(dtype) for name, value in dense.items()}

    def write(self, private: Tensor, items: Tensor, dense: Mapping[str, Tensor]) -> None:
        """Copy tables of the federation into the model, in place; rows of [PAD] stay as they are."""
        if isinstance(self.model, FederatedModel):
            _write_own(self.model, private, items, dense)
            return
        if self.dense_names is not None:
            dense = {theirs: dense[name] for name, theirs in self.dense_names.items()}
        _write(self.model, self._stock, private, items, dense)

    @property
    def _stock(self) -> StockRecommender:
        assert self.stock is not None
        return self.stock


def bind(model: nn.Module, config: Any, dataset: Any) -> Binding:
    """A model ready for clients.

    Args:
        model: one of this package's (`FedMF`, ...) or a stock RecBole model.
        config: RecBole's configuration; `objective`, `private_parameters` and `item_parameters` are read.
        dataset: RecBole's training data set, for sizes and for the fields of users and items.

    Raises:
        ConfigError: options that do not go with the model.
        ModelError: no client could run the model, or it is not certain what is private.
    """
    objective, num_negatives = _objective(model, config)
    if isinstance(model, FederatedModel):
        if not num_negatives:
            raise ConfigError(
                f"train_neg_sample_args: {type(model).__name__} needs negatives; for example "
                "{distribution: uniform, sample_num: 1}"
            )
        return Binding(model, model.recommender, objective, num_negatives)
    fields = (config["USER_ID_FIELD"], config["ITEM_ID_FIELD"])
    device = next(model.parameters()).device if list(model.parameters()) else torch.device("cpu")
    partition = partition_of(model, config)
    item_fields, user_fields = _fields(model, fields, dataset, device)
    seed = int(config["seed"])
    stock = StockRecommender(model, partition, fields, item_fields, user_fields, seed)
    idle = check_scores(model, stock, _read(model, stock), dataset)
    if idle:
        stock = StockRecommender(model, partition.without(idle), fields, item_fields, user_fields, seed)
        if not stock.user_layout.columns:
            raise ModelError(f"{stock.name} has no private rows: its scores do not depend on who the user is")
    tables = _read(model, stock)
    check_copies(stock, tables)
    if config["objective"] in (None, "auto"):
        labels = {"label_field": config["LABEL_FIELD"], "negative_field": config["NEG_PREFIX"]}
        find_penalty(stock, objective, tables, **labels)
    form = tower_form(model, stock)
    if form is not None and same_scores(form, stock, tables):
        return Binding(model, form.recommender, objective, num_negatives, stock=stock, dense_names=form.dense)
    item_ids = torch.arange(stock.n_items, device=device).unsqueeze(1)
    user_ids = torch.arange(stock.n_users, device=device).unsqueeze(1)
    return Binding(model, stock, objective, num_negatives, item_ids, user_ids, stock)


def private_rows(model: nn.Module, config: Any) -> Tensor:
    """What an attacker takes who gets hold of the users' rows: (n_users, width), float32 on the CPU.

    Args:
        model: one of this package's or a stock model, trained by whomever.
        config: its configuration.

    Raises:
        ModelError: the model has no rows of users.
    """
    if isinstance(model, FederatedModel):
        return model.recommender.user_representation(model.user_rows.detach()[1:]).float().cpu()
    of = partition_of(model, config, for_clients=False)
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    rows = [parameters[name][1:].reshape(of.n_users, -1) for name in of.private]
    rows += [parameters[name][of.user_offset + 1 :][: of.n_users] for name in of.shared_tables]
    return torch.cat(rows, 1).float().cpu()


def _objective(model: nn.Module, config: Any) -> tuple[Objective, int]:
    """The loss on scores, and negatives drawn for each positive."""
    sampling = config["train_neg_sample_args"] or {}
    sampled = sampling.get("distribution", "none") != "none"
    number = int(sampling.get("sample_num", 1)) if sampled else 0
    asked = config["objective"] or "auto"
    pairwise = getattr(getattr(model, "input_type", None), "name", "") == "PAIRWISE"
    if asked not in ("auto", "bpr", "bce"):
        raise ConfigError(f"objective: {asked!r} is none of auto, bpr, bce")
    if asked == "bpr" or (asked == "auto" and pairwise):
        if not sampled:
            raise ConfigError(
                f"train_neg_sample_args: {type(model).__name__} compares a user's items with others and needs "
                "negatives; for example {distribution: uniform, sample_num: 1}"
            )
        return BPR(), number
    return (BCE(), number) if sampled else (LabelledBCE(), 0)


def _fields(
    model: Any, fields: tuple[str, str], dataset: Any, device: torch.device
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What the model reads beside the ids: of items and of users, each without the row of [PAD]."""
    kinds = ("token", "float", "token_seq", "float_seq")
    names = [name for kind in kinds for name in getattr(model, f"{kind}_field_names", [])]
    of_items, of_users = dataset.get_item_feature(), dataset.get_user_feature()
    items, users = {}, {}
    for name in names:
        if name in fields:
            continue
        if name in of_items:
            items[name] = of_items[name][1:].to(device)
        elif name in of_users:
            users[name] = of_users[name][1:].to(device)
        else:
            raise ModelError(
                f"{type(model).__name__} reads {name}, which belongs to an interaction and is not known of items "
                f"that are yet to be recommended; leave it out: load_col: {{inter: [{fields[0]}, {fields[1]}], ...}}"
            )
    return items, users


def _read_own(model: FederatedModel) -> Tables:
    dense = {name: value.detach().clone() for name, value in model.shared.items()}
    return model.user_rows.detach()[1:].clone(), model.item_rows.detach()[1:].clone(), dense


@torch.no_grad()
def _write_own(model: FederatedModel, private: Tensor, items: Tensor, dense: Mapping[str, Tensor]) -> None:
    model.user_rows[1:] = private.to(model.user_rows.dtype)
    model.item_rows[1:] = items.to(model.item_rows.dtype)
    for name, value in model.shared.items():
        value.copy_(dense[name])


def _read(model: nn.Module, stock: StockRecommender) -> Tables:
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    of = stock.partition
    user = [parameters[name][1:].reshape(of.n_users, -1) for name in of.private]
    items = [parameters[name][1:].reshape(of.n_items, -1) for name in of.items]
    for name in of.shared_tables:
        user.append(parameters[name][of.user_offset + 1 :][: of.n_users])
        items.append(parameters[name][of.item_offset + 1 :][: of.n_items])
    dense = {name: parameters[name].clone() for name in of.dense}
    dense |= {name: parameters[name].index_select(0, stock.rest) for name in of.shared_tables}
    none = next(iter(parameters.values())).new_zeros(of.n_items, 0)
    return torch.cat(user, 1), torch.cat(items, 1) if items else none, dense


@torch.no_grad()
def _write(
    model: nn.Module, stock: StockRecommender, private: Tensor, items: Tensor, dense: Mapping[str, Tensor]
) -> None:
    parameters = dict(model.named_parameters())
    of = stock.partition
    user, item = stock.user_layout.parts(private), stock.item_layout.parts(items)
    for names, parts in ((of.private, user), (of.items, item)):
        for name in names:
            parameters[name][1:] = parts[name].reshape(-1, *parameters[name].shape[1:]).to(parameters[name].dtype)
    for name in of.shared_tables:
        table = parameters[name]
        table[of.user_offset + 1 : of.user_offset + 1 + of.n_users] = user[name].to(table.dtype)
        table[of.item_offset + 1 : of.item_offset + 1 + of.n_items] = item[name].to(table.dtype)
        if name in dense:
            table[stock.rest] = dense[name].to(table.dtype)
    for name in of.dense:
        parameters[name].copy_(dense[name])
