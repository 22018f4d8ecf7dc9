"""What a recommender is to the federation: named columns of private and item rows, shared dense parameters, a score.

A model owns no tensors. It says which columns a user's private row and an item's row have, which dense
parameters are shared, and how a score follows from them; the federation holds the tables. The score is
written as two towers and an interaction, all of which broadcast over leading batch dimensions, so one
definition serves a single client (no batch), a block of clients (batch C) and a block whose clients have
drifted apart (dense parameters with a batch dimension too). A model whose score has no such form says so
(`Recommender.has_towers`) and gives the score itself, for rows of single clients and for a list of pairs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from fedrec_unlearn.errors import ModelError
from fedrec_unlearn.seeds import Purpose, normal, stream_key, uniform

Dense = Mapping[str, Tensor]
Parts = Mapping[str, Tensor]
"""Columns of rows by name."""


@dataclass(frozen=True)
class RowLayout:
    """Named column ranges of a table whose rows belong to users or items."""

    columns: tuple[tuple[str, int], ...]
    """(name, width) in the order in which they lie in a row."""

    @cached_property
    def width(self) -> int:
        """Numbers in one row."""
        return sum(width for _, width in self.columns)

    def part(self, rows: Tensor, name: str) -> Tensor:
        """View of one named range, shape (..., width of the range).

        Raises:
            ModelError: no range of that name.
        """
        start = 0
        for column, width in self.columns:
            if column == name:
                return rows.narrow(-1, start, width)
            start += width
        raise ModelError(f"no tensor {name!r} in this row; it has {', '.join(c for c, _ in self.columns)}")

    def parts(self, rows: Tensor) -> dict[str, Tensor]:
        """Views of all named ranges."""
        pieces = torch.split(rows, [width for _, width in self.columns], -1)
        return {name: piece for (name, _), piece in zip(self.columns, pieces, strict=True)}

    def shapes(self, n_rows: int) -> dict[str, list[int]]:
        """Shape of each named tensor when there are `n_rows` rows."""
        return {name: [n_rows, width] for name, width in self.columns}


@dataclass(frozen=True)
class Bilinear:
    """Score of the form ⟨left(user), item row⟩ + offset(user): local training needs no copies of item rows.

    Every gradient of such a score with respect to an item row is a multiple of `left(user)`, so a client's
    drifted item row is its start plus a combination of a few such vectors; the vectorised engine keeps the
    coefficients instead of the rows.
    """

    constant_columns: int
    """How many trailing columns of `left` are the constant 1 rather than parameters of the user."""
    has_offset: bool
    """Whether the user row's last column and the dense scalar `bias` are added to the score."""


class Tower(NamedTuple):
    """What the interaction needs of users, or of items."""

    factors: Tensor
    """(..., b): enter an inner product."""
    bias: Tensor | None = None
    """(...): added to the score."""
    hidden: Tensor | None = None
    """(..., h): this side's share of the first hidden layer of `Recommender.head`."""


class Given(NamedTuple):
    """What a score may depend on beside rows and dense parameters."""

    features: Tensor | None = None
    """Item features, (..., L, F) beside item rows (..., L, width)."""
    user_features: Tensor | None = None
    """The clients' own features, (..., F') beside private rows (..., width); they stay on the client."""
    draw: tuple[int, int] | None = None
    """Round and local epoch of a training step, coordinates of random draws (dropout); None when a model is judged."""


class Recommender(ABC):
    """A recommender as the federation sees it.

    The score of user u and item i is ⟨factors_u, factors_i⟩ + bias_u + bias_i + head(hidden_u + hidden_i), where
    factors, biases and hidden parts come from a user tower and an item tower and any of the last three terms
    may be missing. The engines use this form: the inner product needs no copy of a row per pair, and what the
    item tower does is done once per item.

    Args:
        n_users, n_items: sizes of the two tables.
        feature_fields: number of values of each item feature field, empty for none. Features reach
            `item_tower` as a float tensor (..., L, sum(feature_fields)): the field's values, each divided
            by the number of values the item has in that field.
    """

    name: str
    user_layout: RowLayout
    """Private: stays on the client."""
    item_layout: RowLayout
    """Item rows: travel for the items a client touches."""
    dense_shapes: dict[str, tuple[int, ...]]
    """Shared dense parameters: travel whole."""
    head_widths: tuple[int, ...] = ()
    """Widths of the hidden layers of `head`; empty where the model has none."""
    has_towers: bool = True
    """Whether the score has the form above; otherwise `score_parts` and `score_pairs` are the model's own."""

    def __init__(self, n_users: int, n_items: int, feature_fields: tuple[int, ...] = ()) -> None:
        if n_users < 1 or n_items < 2:
            raise ModelError(f"a recommender needs at least 1 user and 2 items, not {n_users} and {n_items}")
        self.n_users, self.n_items, self.feature_fields = n_users, n_items, feature_fields

    @abstractmethod
    def user_tower(self, user: Parts, dense: Dense) -> Tower:
        """What the interaction needs of users.

        Args:
            user: columns of private rows by name, each (..., width).
            dense: shared parameters, each with the shape of `dense_shapes`, or with one leading client
                dimension that matches the rows'.
        """

    @abstractmethod
    def item_tower(self, items: Parts, dense: Dense, features: Tensor | None) -> Tower:
        """What the interaction needs of items.

        Args:
            items: columns of item rows by name, each (..., L, width).
            dense: as for `user_tower`.
            features: shape (..., L, sum(feature_fields)), or None without item features.
        """

    def head(self, hidden: Tensor, dense: Dense) -> Tensor:
        """Score of the first hidden layer's pre-activation: (..., L, h) gives (..., L)."""
        raise NotImplementedError(f"{self.name} has no hidden layers")

    def interact(self, user: Tower, items: Tower, dense: Dense) -> Tensor:
        """Scores from the towers: users (...) and items (..., L) give (..., L)."""
        # this way round the items' gradient comes out as rows, not as columns
        score = torch.matmul(items.factors, user.factors.unsqueeze(-1)).squeeze(-1)
        if items.bias is not None:
            score = score + items.bias
        if user.bias is not None:
            score = score + user.bias.unsqueeze(-1)
        if user.hidden is not None and items.hidden is not None:
            score = score + self.head(user.hidden.unsqueeze(-2) + items.hidden, dense)
        return score

    def score(self, user: Tensor, items: Tensor, dense: Dense, given: Given | Tensor | None = None) -> Tensor:
        """Scores of items for users.

        Args:
            user: private rows, shape (..., user_layout.width).
            items: item rows, shape (..., L, item_layout.width).
            dense: shared parameters.
            given: what else the score depends on; a tensor stands for the item features alone.

        Returns:
            shape (..., L); higher means preferred (the rating less its mean under the mse objective).
        """
        if not isinstance(given, Given):
            given = Given(given)
        return self.score_parts(self.user_layout.parts(user), self.item_layout.parts(items), dense, given)

    def score_parts(self, user: Parts, items: Parts, dense: Dense, given: Given) -> Tensor:
        """`score` of rows that are already cut into named columns: (..., width) and (..., L, width) give (..., L)."""
        return self.interact(self.user_tower(user, dense), self.item_tower(items, dense, given.features), dense)

    def score_pairs(
        self, user: Parts, items: Parts, dense: Dense, owner: Tensor, place: Tensor, given: Given
    ) -> Tensor:
        """Scores of a list of pairs that share the dense parameters; for models without towers.

        Args:
            user: columns of C private rows.
            items: columns of M item rows.
            dense: shared parameters.
            owner: int64 (E,), which of the C users each pair is about.
            place: int64 (E,), which of the M items.
            given: features of the M items (M, F) and of the C users (C, F').

        Returns:
            shape (E,).
        """
        raise NotImplementedError(f"{self.name} is computed through its towers")

    def penalty(self, dense: Dense) -> Tensor | None:
        """A term of the client's loss that depends on the dense parameters alone, or None.

        Args:
            dense: shared parameters, with or without a leading client dimension.

        Returns:
            a scalar, or (C,) where the parameters have a client dimension.
        """
        return None

    def interact_all(self, user: Tower, items: Tower, dense: Dense) -> Tensor:
        """Scores of the whole catalogue: towers of B users and of m items give (B, m)."""
        score = user.factors @ items.factors.T
        if items.bias is not None:
            score = score + items.bias
        if user.bias is not None:
            score = score + user.bias.unsqueeze(-1)
        if user.hidden is not None and items.hidden is not None:
            score = score + self.head(user.hidden.unsqueeze(-2) + items.hidden.unsqueeze(0), dense)
        return score

    @property
    def bilinear(self) -> Bilinear | None:
        """The model's bilinear form, or None where the score is not bilinear."""
        return None

    @property
    def activation_width(self) -> int:
        """Numbers kept per scored item for the backward pass; sizes the blocks of clients."""
        return self.item_layout.width + 2 * sum(self.head_widths)

    def user_representation(self, user: Tensor) -> Tensor:
        """What an attacker who obtains a user's private tensors would take, shape (n, any width)."""
        return user

    def initial_user_rows(self, seed: int, std: float) -> Tensor:
        """Initial private rows, float64 (n_users, width); row u depends on (seed, u) alone."""
        return _initial_rows(self.user_layout, self.n_users, stream_key(seed, Purpose.INIT_USER), std)

    def initial_item_rows(self, seed: int, std: float) -> Tensor:
        """Initial item rows, float64 (n_items, width)."""
        return _initial_rows(self.item_layout, self.n_items, stream_key(seed, Purpose.INIT_ITEM), std)

    def initial_dense(self, seed: int, std: float) -> dict[str, Tensor]:
        """Initial dense parameters, float64: matrices Glorot uniform, vectors zero, feature tables normal.

        Source: Glorot & Bengio 2010, eq. 16.
        """
        initial: dict[str, Tensor] = {}
        for index, (name, shape) in enumerate(self.dense_shapes.items()):
            key = stream_key(seed, Purpose.INIT_DENSE, index)
            if name == "feature_embedding":
                initial[name] = torch.from_numpy(normal(key, shape) * std)
            elif name.endswith("weight"):
                fan = self.fan(name)
                initial[name] = torch.from_numpy((2.0 * uniform(key, shape) - 1.0) * (6.0 / fan) ** 0.5)
            else:
                initial[name] = torch.zeros(shape, dtype=torch.float64)
        return initial

    def fan(self, name: str) -> int:
        """Inputs plus outputs of the layer a weight belongs to; a layer split over several tensors overrides it."""
        shape = self.dense_shapes[name]
        return shape[0] + shape[1] if len(shape) == 2 else shape[0] + 1


def _initial_rows(layout: RowLayout, n_rows: int, key: int, std: float) -> Tensor:
    rows = torch.from_numpy(normal(key, (n_rows, layout.width)) * std)
    for name, _ in layout.columns:
        if name.endswith("linear"):
            layout.part(rows, name).zero_()
    return rows


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (..., L, k) times weight (..., o, k) transposed plus bias (..., o): shape (..., L, o)."""
    if weight.dim() == 2:
        return functional.linear(x, weight, bias)
    if bias is not None and x.dim() == 3 and weight.dim() == 3:  # one fused pass for a block of clients
        return torch.baddbmm(bias.unsqueeze(-2), x, weight.mT)
    y = torch.matmul(x, weight.mT)
    return y if bias is None else y + bias.unsqueeze(-2)
