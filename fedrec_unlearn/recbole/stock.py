"""Any stock RecBole model as a recommender of the federation: its own code, on the rows one client has.

The model's `predict` is called as it stands, with other tables put in the place of its own (`torch.func`): the user
table holds the rows of the clients at hand, the item table the rows they touch, and ids in the interaction say which of
those a pair is about. Nothing else of the model is changed, so what clients compute is what RecBole would compute;
`probe` holds both against each other before a model is accepted.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from fedrec_unlearn.errors import ModelError
from fedrec_unlearn.models import Dense, Given, Objective, Parts, Recommender, RowLayout, Tower
from fedrec_unlearn.recbole.partition import Partition
from fedrec_unlearn.recbole.randomness import CountedDropout, pair_keys


class _Calls(nn.Module):
    """Lets `functional_call` reach any method of a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, method: str, interaction: Mapping[str, Tensor]) -> Tensor:
        value = getattr(self.model, method)(interaction)
        return value if isinstance(value, Tensor) else sum(value)


class StockRecommender(Recommender):
    """A RecBole model whose score of a pair depends on the user's rows, the item's rows and dense parameters.

    Private: the rows of the user tables, one after the other; of the table of all fields, the user field's rows.
    Item rows alike. Dense: everything else; of the table of all fields, what belongs to other fields.

    `features` of a pair is the item's id and `user_features` the user's, int64 (..., 1): by them the model's other
    fields are looked up, the item's in the catalogue and the user's in what the client knows of itself.

    Args:
        model: the model; copied.
        partition: whose its parameters are.
        fields: names of the user id's and the item id's field.
        item_fields: what the catalogue says of items by field, each (n_items, ...).
        user_fields: what clients know of themselves by field, each (n_users, ...).
        seed: of dropout.
    """

    has_towers = False

    def __init__(
        self,
        model: nn.Module,
        partition: Partition,
        fields: tuple[str, str],
        item_fields: Mapping[str, Tensor],
        user_fields: Mapping[str, Tensor],
        seed: int,
    ) -> None:
        super().__init__(partition.n_users, partition.n_items)
        self.name = type(model).__name__
        self.partition, self.fields, self.seed = partition, fields, seed
        self.item_fields, self.user_fields = dict(item_fields), dict(user_fields)
        self.own_penalty: Objective | None = None
        """Set where the model's own loss is this objective plus a term on dense parameters."""
        self.label_field, self.negative_field = "", ""
        self._calls = _Calls(copy.deepcopy(model))
        tables = {*partition.private, *partition.items, *partition.shared_tables}
        for name, value in self._calls.model.named_parameters():
            value.requires_grad_(False)
            if name in tables:  # every call brings its own; no copy of anybody's row stays here
                value.data = value.data.new_empty(0, *value.shape[1:])
        if isinstance(getattr(model, "sigmoid", None), nn.Sigmoid):
            self._calls.model.sigmoid = nn.Identity()  # scores are what the sigmoid gets: objectives apply their own
        shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}
        self.shapes = shapes
        shared = [(name, shapes[name][1]) for name in partition.shared_tables]
        self.user_layout = RowLayout((*((n, _width(shapes[n])) for n in partition.private), *shared))
        self.item_layout = RowLayout((*((n, _width(shapes[n])) for n in partition.items), *shared))
        device = next(model.parameters()).device
        self.rest = torch.tensor(_rest_of(partition, shapes), dtype=torch.int64, device=device)
        """Rows of the tables of all fields that are neither a user's nor an item's, int64 (r,)."""
        self.dense_shapes = {name: shapes[name] for name in partition.dense}
        self.dense_shapes |= {name: (len(self.rest), width) for name, width in shared}
        self.offsets = _offsets_of(model)
        linear = [module.out_features for module in model.modules() if isinstance(module, nn.Linear)]
        n_fields = len(self.offsets) + len(self.item_fields) + len(self.user_fields)
        widest = max([width for _, width in shared], default=0)
        self._activations = 2 * sum(linear) + (2 + n_fields) * max(widest, 1) + 2 * self.user_layout.width

    @property
    def activation_width(self) -> int:
        """See `Recommender.activation_width`."""
        return self._activations

    def user_tower(self, user: Parts, dense: Dense) -> Tower:
        """There is none."""
        raise ModelError(f"{self.name} is scored pair by pair; it has no user tower")

    def item_tower(self, items: Parts, dense: Dense, features: Tensor | None) -> Tower:
        """There is none."""
        raise ModelError(f"{self.name} is scored pair by pair; it has no item tower")

    def score_parts(self, user: Parts, items: Parts, dense: Dense, given: Given) -> Tensor:
        """Scores (L,) of one client's items, or (C, L) of a block whose clients have copies of everything."""
        item_ids, user_ids = _ids(given)
        keys = self._keys(user_ids.unsqueeze(-1), item_ids, given.draw)
        if item_ids.dim() == 1:
            return self._one_client(user, items, dense, item_ids, user_ids, keys)
        if not dense:  # nothing a client has a copy of but its rows: all pairs of the block at once
            n_clients, length = item_ids.shape
            owner = torch.arange(n_clients, device=item_ids.device).repeat_interleave(length)
            flat = {name: part.reshape(-1, part.shape[-1]) for name, part in items.items()}
            place = torch.arange(n_clients * length, device=item_ids.device)
            flat_keys = None if keys is None else keys.reshape(-1)
            scores = self._score(user, flat, dense, owner, place, item_ids.reshape(-1), user_ids, flat_keys)
            return scores.view(n_clients, length)
        each = torch.func.vmap(self._one_client, in_dims=(0, 0, 0, 0, 0, None if keys is None else 0))
        scores = each(dict(user), dict(items), dict(dense), item_ids, user_ids, keys)
        assert isinstance(scores, Tensor)
        return scores

    def score_pairs(
        self, user: Parts, items: Parts, dense: Dense, owner: Tensor, place: Tensor, given: Given
    ) -> Tensor:
        """See `Recommender.score_pairs`."""
        item_ids, user_ids = _ids(given)
        keys = self._keys(user_ids.index_select(0, owner), item_ids.index_select(0, place), given.draw)
        return self._score(user, items, dense, owner, place, item_ids, user_ids, keys)

    def penalty(self, dense: Dense) -> Tensor | None:
        """What the model's own loss has beside its objective, for example a norm of its layers; see `probe`."""
        if self.own_penalty is None:
            return None
        if next(iter(dense.values())).dim() > len(next(iter(self.dense_shapes.values()))):
            return torch.func.vmap(self._penalty)(dict(dense))
        return self._penalty(dense)

    def _penalty(self, dense: Dense) -> Tensor:
        """Own loss less objective for one client with one item; what remains does not depend on rows."""
        like = next(iter(dense.values()))
        # not zero, where a norm of rows has no gradient
        user = {name: like.new_full((1, width), 0.1) for name, width in self.user_layout.columns}
        items = {name: like.new_full((2, width), 0.1) for name, width in self.item_layout.columns}
        own, base = self.losses(user, items, dense, torch.arange(2, device=like.device))
        return own - base

    def losses(self, user: Parts, items: Parts, dense: Dense, item_ids: Tensor) -> tuple[Tensor, Tensor]:
        """The model's own loss and the objective, for user 0 with a positive and a negative item.

        Args:
            user: columns of one private row (1, width).
            items: columns of two item rows (2, width).
            dense: shared parameters.
            item_ids: int64 (2,), whose those are, for the catalogue's other fields.
        """
        assert self.own_penalty is not None
        device = item_ids.device
        first = torch.zeros(1, dtype=torch.int64, device=device)
        owner, place = torch.zeros(2, dtype=torch.int64, device=device), torch.arange(2, device=device)
        score = self._score(user, items, dense, owner, place, item_ids, first, None)
        tables = self._tables(user, items, dense)
        target, like = None, score.new_ones(1)
        both = self._interaction(1, 2, owner, place, item_ids, first, like)
        if self.own_penalty.pairwise:
            pair = self._interaction(1, 2, owner[:1], place[:1], item_ids, first, like)
            pair[self.negative_field + self.fields[1]] = both[self.fields[1]][1:]
        else:
            pair = {**both, self.label_field: torch.cat([like, torch.zeros_like(like)])}
            target = None if self.own_penalty.needs_negatives else pair[self.label_field]
        own = self._call(tables, "calculate_loss", pair, None)
        n = 1 if target is None else 2
        return own, self.own_penalty.client_loss(score[:n], score[n:], target, first.view(1, 1))

    def _keys(self, users: Tensor, items: Tensor, draw: tuple[int, int] | None) -> Tensor | None:
        """Keys of dropout, of the shape users and items have together; None where nothing is drawn."""
        if draw is None:
            return None
        return pair_keys(self.seed, *draw, users, items, self.n_items)

    def _one_client(
        self, user: Parts, items: Parts, dense: Dense, item_ids: Tensor, user_id: Tensor, keys: Tensor | None
    ) -> Tensor:
        place = torch.arange(item_ids.shape[0], device=item_ids.device)
        row = {name: part.unsqueeze(0) for name, part in user.items()}
        return self._score(row, items, dense, torch.zeros_like(place), place, item_ids, user_id.unsqueeze(0), keys)

    def _score(
        self,
        user: Parts,
        items: Parts,
        dense: Dense,
        owner: Tensor,
        place: Tensor,
        item_ids: Tensor,
        user_ids: Tensor,
        keys: Tensor | None,
    ) -> Tensor:
        """Scores (E,) of pairs among C users and M items."""
        n_users, n_items = user_ids.shape[0], item_ids.shape[0]
        like = next(iter(user.values()))
        interaction = self._interaction(n_users, n_items, owner, place, item_ids, user_ids, like)
        return self._call(self._tables(user, items, dense), "predict", interaction, keys).reshape(-1)

    def _call(
        self, tables: Mapping[str, Tensor], method: str, interaction: Mapping[str, Tensor], keys: Tensor | None
    ) -> Tensor:
        parameters = {f"model.{name}": value for name, value in tables.items()}
        self._calls.train(keys is not None)
        with nullcontext() if keys is None else CountedDropout(keys):
            value: Tensor = torch.func.functional_call(self._calls, parameters, (method, interaction))
        return value

    def _tables(self, user: Parts, items: Parts, dense: Dense) -> dict[str, Tensor]:
        """Parameters in the model's shapes, with C + M rows in the place of all users' and items'."""
        tables = {name: dense[name] for name in self.partition.dense}
        for names, parts in ((self.partition.private, user), (self.partition.items, items)):
            tables |= {name: parts[name].reshape(-1, *self.shapes[name][1:]) for name in names}
        for name in self.partition.shared_tables:
            tables[name] = torch.cat([user[name], items[name], dense[name]])
        return tables

    def _interaction(
        self,
        n_users: int,
        n_items: int,
        owner: Tensor,
        place: Tensor,
        item_ids: Tensor,
        user_ids: Tensor,
        like: Tensor,
    ) -> dict[str, Tensor]:
        """Fields of the pairs, with ids that point into the tables of `_tables`."""

        def looked_up(table: Tensor, ids: Tensor) -> Tensor:
            value = table.index_select(0, ids)
            return value.to(like.dtype) if value.is_floating_point() else value

        known = {f: looked_up(v, item_ids.index_select(0, place)) for f, v in self.item_fields.items()}
        known |= {f: looked_up(v, user_ids.index_select(0, owner)) for f, v in self.user_fields.items()}
        user_field, item_field = self.fields
        if not self.partition.shared_tables:
            return {**known, user_field: owner, item_field: place}
        # the model adds a field's offset to its values; in the table put together here fields begin elsewhere
        for field in known:
            if field in self.offsets:
                known[field] = known[field] + (n_users + n_items - self._rows_left_out(self.offsets[field]))
        known[user_field] = owner - self.offsets[user_field]
        known[item_field] = place + (n_users - self.offsets[item_field])
        return known

    def _rows_left_out(self, row: int) -> int:
        """Rows of users and items that lie before a row of the table of all fields."""
        before = self.n_users if self.partition.user_offset < row else 0
        return before + (self.n_items if self.partition.item_offset < row else 0)


def _ids(given: Given) -> tuple[Tensor, Tensor]:
    """Ids of items and of users, which a workload gives as features."""
    assert given.features is not None
    assert given.user_features is not None
    return given.features.squeeze(-1), given.user_features.squeeze(-1)


def _width(shape: tuple[int, ...]) -> int:
    width = 1
    for side in shape[1:]:
        width *= side
    return width


def _rest_of(partition: Partition, shapes: Mapping[str, tuple[int, ...]]) -> list[int]:
    """Rows of the tables of all fields that are nobody's."""
    if not partition.shared_tables:
        return []
    starts = {partition.user_offset + 1: partition.n_users, partition.item_offset + 1: partition.n_items}
    rows, row = [], 0
    while row < shapes[partition.shared_tables[0]][0]:
        if row in starts:
            row += starts[row]
            continue
        rows.append(row)
        row += 1
    return rows


def _offsets_of(model: Any) -> dict[str, int]:
    names = getattr(model, "token_field_names", [])
    if not names:
        return {}
    return {name: int(offset) for name, offset in zip(names, model.token_field_offsets, strict=True)}
