"""Which parameters of a RecBole model are a user's, which are an item's, and which all clients share.

RecBole keeps all users in one table. A federation has to know whose each row is: rows of users are private and stay on
their client, rows of items travel for the items a client touches, everything else travels whole. The names and shapes
of the parameters tell, for the models RecBole ships; where they do not tell for certain this is an error, never a
guess, because a guess could send private rows to the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import nn

from fedrec_unlearn.errors import ConfigError, ModelError

OVERRIDE = "name them: private_parameters and item_parameters are lists of parameter names"

_NOT_FOR_CLIENTS = {
    "SEQUENTIAL": "it represents a user by the sequence of its items and has no row for one",
    "KNOWLEDGE": "it trains on a knowledge graph beside the interactions",
    "TRADITIONAL": "it is computed from all interactions at once, not trained by gradients",
    "DECISIONTREE": "it grows trees on all interactions at once",
}


@dataclass(frozen=True)
class Partition:
    """Parameters of a model by whose they are; all names are those of `named_parameters()`."""

    n_users: int
    """Users without RecBole's [PAD]."""
    n_items: int
    private: tuple[str, ...]
    """Tables with one row for each user, after a first row for [PAD]."""
    items: tuple[str, ...]
    """Tables with one row for each item, after a first row for [PAD]."""
    shared_tables: tuple[str, ...]
    """Tables in which the tokens of all fields lie one below the other, users and items among them."""
    user_offset: int
    """Row of the user field's [PAD] in the shared tables."""
    item_offset: int
    """Row of the item field's [PAD] in the shared tables."""
    dense: tuple[str, ...]
    """Everything else."""

    def without(self, idle: Sequence[str]) -> Partition:
        """The same without parameters that no score depends on: nobody trains or sends them."""

        def left(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(name for name in names if name not in idle)

        return Partition(
            self.n_users,
            self.n_items,
            left(self.private),
            left(self.items),
            left(self.shared_tables),
            self.user_offset,
            self.item_offset,
            left(self.dense),
        )


def partition_of(model: nn.Module, config: Any, *, for_clients: bool = True) -> Partition:
    """Tell a model's private rows from the rest.

    A table is private if it is an embedding, or a bare parameter, with a row for each user and "user" in its name, or
    if it is the user field's part of the table that context-aware models keep for the tokens of all fields; for items
    alike. Where `private_parameters` or `item_parameters` in the configuration name tables, these and those tables of
    all fields are the only ones.

    Args:
        model: a RecBole model.
        config: its configuration.
        for_clients: refuse models that no client could run; without it, any model that has rows of users will do.

    Raises:
        ConfigError: `private_parameters` or `item_parameters` name something that is no such table.
        ModelError: no client could run the model, it has no private rows, or it is not certain which they are.
    """
    name = type(model).__name__
    kind = getattr(getattr(model, "type", None), "name", "")
    if for_clients and kind in _NOT_FOR_CLIENTS:
        raise ModelError(f"{name} cannot be trained by clients: {_NOT_FOR_CLIENTS[kind]}; {_ALTERNATIVES}")
    if for_clients:
        _need_no_batch_norm(model)
    told = {
        "private_parameters": tuple(config["private_parameters"] or ()),
        "item_parameters": tuple(config["item_parameters"] or ()),
    }
    parameters = dict(model.named_parameters())
    fields = (config["USER_ID_FIELD"], config["ITEM_ID_FIELD"])
    n_users, n_items = _sizes(model, fields)
    if for_clients:
        _need_no_interactions(model, n_users + 1, n_items + 1)
    for option, names in told.items():
        rows = (n_users if option == "private_parameters" else n_items) + 1
        for given in names:
            _check_named(option, given, parameters, rows, name)
    private, items = list(told["private_parameters"]), list(told["item_parameters"])
    offsets = _field_offsets(model, fields)
    n_tokens, user_offset, item_offset = offsets or (0, 0, 0)
    embeddings = {f"{path}.weight" for path, module in model.named_modules() if isinstance(module, nn.Embedding)}
    embeddings |= {path for path in parameters if "." not in path}  # a bare parameter: a bias for each user
    shared: list[str] = []
    dense: list[str] = []
    for path, value in parameters.items():
        if path in private or path in items:
            continue
        if offsets and value.dim() == 2 and len(value) == n_tokens and path in embeddings:
            shared.append(path)
            continue
        found = "" if any(told.values()) else _belongs_to(path, value, path in embeddings, n_users, n_items, name)
        {"user": private, "item": items, "": dense}[found].append(path)
    if shared and (private or items):
        raise ModelError(
            f"{name} keeps users or items in tables of their own ({', '.join([*private, *items])}) and in tables of "
            f"all fields ({', '.join(shared)}); such a model is not supported"
        )
    if not private and not shared:
        raise ModelError(
            f"{name} has no private rows: no table with a row for each of {n_users:,} users, so there is nothing a "
            f"client could keep to itself; {_ALTERNATIVES}. If it keeps users under another name, {OVERRIDE}"
        )
    return Partition(
        n_users, n_items, tuple(private), tuple(items), tuple(shared), user_offset, item_offset, tuple(dense)
    )


_ALTERNATIVES = "train one with a row for each user, such as BPR, NeuMF, FM, DeepFM, WideDeep or AutoInt"


def _sizes(model: Any, fields: tuple[str, str]) -> tuple[int, int]:
    """Users and items without [PAD]."""
    names = list(getattr(model, "token_field_names", []))
    if set(fields) <= set(names):
        dims = dict(zip(names, model.token_field_dims, strict=True))
        return int(dims[fields[0]]) - 1, int(dims[fields[1]]) - 1
    if hasattr(model, "n_users") and hasattr(model, "n_items"):
        return int(model.n_users) - 1, int(model.n_items) - 1
    raise ModelError(
        f"{type(model).__name__} does not tell how many users and items it has (attributes n_users and n_items, or "
        f"fields {fields[0]} and {fields[1]}); RecBole's general and context-aware recommenders do"
    )


def _field_offsets(model: Any, fields: tuple[str, str]) -> tuple[int, int, int] | None:
    """Rows of the table of all fields, and where users and items begin in it; None for models without one."""
    names = list(getattr(model, "token_field_names", []))
    if not set(fields) <= set(names):
        return None
    offsets = np.asarray(model.token_field_offsets)
    user, item = (int(offsets[names.index(field)]) for field in fields)
    return int(sum(model.token_field_dims)), user, item


def _check_named(option: str, given: str, parameters: dict[str, nn.Parameter], rows: int, model: str) -> None:
    if given not in parameters:
        raise ConfigError(f"{option}: {model} has no parameter {given!r}; it has {', '.join(parameters)}")
    if parameters[given].dim() < 1 or len(parameters[given]) != rows:
        raise ConfigError(
            f"{option}: {given} has shape {tuple(parameters[given].shape)}; a table with one row each, and one for "
            f"[PAD], has {rows:,} rows"
        )


def _belongs_to(path: str, value: nn.Parameter, is_table: bool, n_users: int, n_items: int, model: str) -> str:
    """`user`, `item` or nothing for a parameter all clients share."""
    user_rows, item_rows = n_users + 1, n_items + 1
    says_user, says_item = "user" in path.lower(), "item" in path.lower()
    if is_table and value.dim() >= 1:
        of_users, of_items = len(value) == user_rows, len(value) == item_rows
        if of_users and says_user and not says_item:
            return "user"
        if of_items and says_item and not says_user:
            return "item"
        if of_users or of_items:
            what = "users" if of_users and not of_items else "items" if not of_users else "users and of items"
            raise ModelError(
                f"{model}: ambiguous partition: {path} has as many rows as there are {what} ({len(value):,}), but its "
                f"name does not tell whether they are theirs; {OVERRIDE}"
            )
    # a layer as wide as there are users sees all of them at once, whatever it is called
    if user_rows in value.shape:
        raise ModelError(
            f"{model}: ambiguous partition: {path} of shape {tuple(value.shape)} is as wide as there are users "
            f"({user_rows:,} with [PAD]) and is no table of rows; {OVERRIDE}, or {_ALTERNATIVES}"
        )
    return ""


def _need_no_interactions(model: nn.Module, user_rows: int, item_rows: int) -> None:
    """Refuse a model that carries who interacted with what: no client may hold that of the others."""
    sides = {user_rows, item_rows, user_rows + item_rows}
    held: dict[str, Any] = {**vars(model), **dict(model.named_buffers())}
    for attribute, value in held.items():
        matrix = scipy.sparse.issparse(value) or (isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim >= 2)
        if matrix and set(value.shape) & sides:
            size = " x ".join(f"{side:,}" for side in value.shape)
            raise ModelError(
                f"{type(model).__name__} cannot be trained by clients: it computes with the interactions of all users "
                f"({attribute}, {size}), which no client has; {_ALTERNATIVES}"
            )


def _need_no_batch_norm(model: nn.Module) -> None:
    for path, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ModelError(
                f"{type(model).__name__} cannot be trained by clients: {path} is a batch normalisation, which mixes "
                "the interactions of many users in one batch and keeps their running statistics; a client has only "
                f"its own. Models without it do: {_ALTERNATIVES}"
            )
