"""What a recommender is to the federation: named columns of private and item rows, shared dense parameters, a score.

A model owns no tensors. It says which columns a user's private row and an item's row have, which dense
parameters are shared, and how a score follows from them; the federation holds the tables. The score is
written as two towers and an interaction, all of which broadcast over leading batch dimensions, so one
definition serves a single client (no batch), a block of clients (batch C) and a block whose clients have
drifted apart (dense parameters with a batch dimension too).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedrec_unlearn.errors import ModelError
from fedrec_unlearn.seeds import Purpose, normal, stream_key, uniform

Dense = Mapping[str, Tensor]


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


class Recommender(ABC):
    """A recommender as the federation sees it.

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

    def __init__(self, n_users: int, n_items: int, feature_fields: tuple[int, ...] = ()) -> None:
        if n_users < 1 or n_items < 2:
            raise ModelError(f"a recommender needs at least 1 user and 2 items, not {n_users} and {n_items}")
        self.n_users, self.n_items, self.feature_fields = n_users, n_items, feature_fields

    @abstractmethod
    def user_tower(self, user: Tensor, dense: Dense) -> Tensor:
        """What the interaction needs of a user.

        Args:
            user: private rows, shape (..., user_layout.width).
            dense: shared parameters, each with the shape of `dense_shapes`, or with one leading client
                dimension that matches the rows'.

        Returns:
            shape (..., any width).
        """

    @abstractmethod
    def item_tower(self, items: Tensor, dense: Dense, features: Tensor | None) -> Tensor:
        """What the interaction needs of items.

        Args:
            items: item rows, shape (..., L, item_layout.width).
            dense: as for `user_tower`.
            features: shape (..., L, sum(feature_fields)), or None without item features.

        Returns:
            shape (..., L, any width).
        """

    @abstractmethod
    def interact(self, user: Tensor, items: Tensor, dense: Dense) -> Tensor:
        """Scores from the towers' outputs: (..., Tu) and (..., L, Ti) give (..., L)."""

    def score(self, user: Tensor, items: Tensor, dense: Dense, features: Tensor | None = None) -> Tensor:
        """Scores of items for users.

        Args:
            user: private rows, shape (..., user_layout.width).
            items: item rows, shape (..., L, item_layout.width).
            dense: shared parameters.
            features: item features, shape (..., L, sum(feature_fields)).

        Returns:
            shape (..., L); higher means preferred (the rating less its mean under the mse objective).
        """
        return self.interact(self.user_tower(user, dense), self.item_tower(items, dense, features), dense)

    def interact_all(self, user: Tensor, items: Tensor, dense: Dense) -> Tensor:
        """Scores of the whole catalogue: tower outputs (B, Tu) and (m, Ti) give (B, m)."""
        return self.interact(user, items.unsqueeze(0), dense)

    @property
    def bilinear(self) -> Bilinear | None:
        """The model's bilinear form, or None where the score is not bilinear."""
        return None

    @property
    def activation_width(self) -> int:
        """Numbers kept per scored item for the backward pass; sizes the blocks of clients."""
        return 2 * self.item_layout.width

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


def split_columns(rows: Tensor, widths: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Cut the last dimension into ranges; one backward step puts the ranges' gradients together again."""
    return torch.split(rows, list(widths), -1)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (..., L, k) times weight (..., o, k) transposed plus bias (..., o): shape (..., L, o)."""
    y = torch.matmul(x, weight.mT)
    return y if bias is None else y + bias.unsqueeze(-2)
