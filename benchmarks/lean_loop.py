"""The loop a federation is usually simulated with, as lean as plain PyTorch allows: the rival of the fast engine.

One client after another: draw negatives, gather rows, score, `torch.autograd.grad`, step, add to the sums. No
messages, no metrics, no copy that is not needed. What keeps it lean, found by measuring variants:

* negatives are drawn with numpy, whose calls cost less than torch's on arrays of a hundred numbers;
* embeddings and first-order weights are tables of their own, so that no gradient flows through a slice;
* the first layer of an MLP is split into a user and an item part, so the user's half is computed once a client;
* the loss is summed, not averaged: a client's weight is its number of interactions, which cancels the mean;
* private rows are stepped in place through views made beforehand, shared tensors are stepped together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedrec_unlearn.data.types import UserItems
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.federation.engine import IntArray, Workload
from fedrec_unlearn.federation.state import RunState
from fedrec_unlearn.models import RowLayout
from fedrec_unlearn.seeds import Purpose, hash_counters, stream_key

Score = Callable[[Sequence[Tensor], Sequence[Tensor], Mapping[str, Tensor]], Tensor]
"""Private vectors of a user, tables of its item rows and dense parameters give a score per item row."""


def _mf(user: Sequence[Tensor], item: Sequence[Tensor], dense: Mapping[str, Tensor]) -> Tensor:
    return torch.mv(item[0], user[0])


def _fm(user: Sequence[Tensor], item: Sequence[Tensor], dense: Mapping[str, Tensor]) -> Tensor:
    return torch.addmv(item[1], item[0], user[0]) + (user[1] + dense["bias"])


def _hidden(user: Tensor, item: Tensor, dense: Mapping[str, Tensor]) -> Tensor:
    of_user = torch.addmv(dense["mlp_0_bias"], dense["mlp_user_weight"], user)
    h = torch.addmm(of_user, item, dense["mlp_item_weight"].mT).relu_()
    layer = 1
    while (weight := dense.get(f"mlp_{layer}_weight")) is not None:
        h = torch.addmm(dense[f"mlp_{layer}_bias"], h, weight.mT).relu_()
        layer += 1
    return h


def _ncf(user: Sequence[Tensor], item: Sequence[Tensor], dense: Mapping[str, Tensor]) -> Tensor:
    gmf = torch.addmv(dense["output_bias"], item[0], user[0] * dense["output_gmf_weight"])
    return torch.addmv(gmf, _hidden(user[1], item[1], dense), dense["output_mlp_weight"])


def _deepfm(user: Sequence[Tensor], item: Sequence[Tensor], dense: Mapping[str, Tensor]) -> Tensor:
    return torch.addmv(_fm(user, item, dense), _hidden(user[0], item[0], dense), dense["output_weight"])


_SCORES: dict[str, Score] = {"mf": _mf, "fm": _fm, "ncf": _ncf, "deepfm": _deepfm}


def _columns(table: Tensor, layout: RowLayout) -> list[Tensor]:
    """One contiguous table per named range of columns, those of one number flat."""
    parts = [layout.part(table, name).contiguous() for name, _ in layout.columns]
    return [part.squeeze(1) if part.shape[1] == 1 else part for part in parts]


class LeanLoop:
    """Trains clients one by one from a state of its own.

    Args:
        work: what clients do: BPR, one negative per positive, float mode, no item features, clients weighted by
            their interactions.
        state: where they start from; copied.
        train: the clients' items.

    Raises:
        ConfigError: the workload asks for something else.
    """

    def __init__(self, work: Workload, state: RunState, train: UserItems) -> None:
        config = work.config
        for holds, option in (
            (config.objective == "bpr", "federation.objective bpr"),
            (config.num_negatives == 1, "federation.num_negatives 1"),
            (not config.ring, "federation.ring false"),
            (config.client_weighting == "interactions", "federation.client_weighting interactions"),
            (work.features is None, "no data.item_features"),
        ):
            if not holds:
                raise ConfigError(f"the lean loop is written for {option} alone")
        self.work = work
        self.score = _SCORES[work.model.name]
        self.private = _private_tables(state.private, work.model.user_layout)
        # views made once: a step through `rows` moves what `leaves` holds, outside autograd
        self.rows = [tuple(table.unbind(0)) for table in self.private]
        self.leaves = [tuple(row.detach().requires_grad_() for row in rows) for rows in self.rows]
        self.items = _columns(state.server.items, work.model.item_layout)
        self.dense = {name: value.clone().requires_grad_() for name, value in state.server.dense.items()}
        self.dense_list = list(self.dense.values())
        self.dense_start = [value.detach() for value in self.dense_list]
        self.item_sums = [torch.zeros_like(table) for table in self.items]
        self.dense_sums = [torch.zeros_like(value) for value in self.dense_start]
        cuts, unseen = train.indptr[1:-1], train.n_items - train.counts
        self.places = np.arange(train.n_items)
        self.positives = np.split(train.items, cuts)
        # an unseen item of rank r has as many seen items before it as there are keys <= r
        self.rank_keys = [positives - self.places[: len(positives)] for positives in self.positives]
        self.unseen = unseen.tolist()

    def reset(self, state: RunState) -> None:
        """Private rows as in `state`, sums zero."""
        for table, start in zip(self.private, _private_tables(state.private, self.work.model.user_layout), strict=True):
            table.copy_(start)
        for total in (*self.item_sums, *self.dense_sums):
            total.zero_()

    def train(self, users: IntArray, round_number: int) -> None:
        """Local training of `users`, one after another; their updates are added to the sums."""
        key = stream_key(self.work.seed, Purpose.NEGATIVES, round_number)
        words = (hash_counters(key, users) >> np.uint64(33)).tolist()
        train_one = self._one_step if self.work.config.local_epochs == 1 else self._several_steps
        for user, word in zip(users.tolist(), words, strict=True):
            items = self._items(user, word * self.unseen[user] >> 31)
            train_one(user, len(self.positives[user]), torch.from_numpy(items))

    def contribution(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Σ weight·(start − end) of item rows (m, width) and of each dense parameter."""
        # one step leaves the sums as plain gradients
        rate = self.work.config.client_learning_rate if self.work.config.local_epochs == 1 else 1.0
        parts = [total if total.dim() == 2 else total.unsqueeze(1) for total in self.item_sums]
        dense = dict(zip(self.dense, [total * rate for total in self.dense_sums], strict=True))
        return torch.cat(parts, dim=1) * rate, dense

    def private_rows(self) -> Tensor:
        """(n_users, width): the private rows as they stand."""
        return torch.cat([part if part.dim() == 2 else part.unsqueeze(1) for part in self.private], dim=1)

    def _items(self, user: int, start: int) -> IntArray:
        """A client's positives, then its negatives: every (unseen / k)-th unseen item from a drawn start."""
        positives, unseen = self.positives[user], self.unseen[user]
        n = len(positives)
        k = min(n, unseen)
        ranks = self.places[:k] * unseen
        ranks //= k
        ranks += start
        ranks[ranks >= unseen] -= unseen
        ranks += self.rank_keys[user].searchsorted(ranks, "right")
        items = np.empty(n + k, dtype=np.int64)
        items[:n] = positives
        items[n:] = ranks
        return items

    def _loss(self, scores: Tensor, n: int, epoch: int) -> Tensor:
        """Sum over the client's pairs; positive j meets negative (j + epoch) mod k."""
        if epoch == 0 and len(scores) == 2 * n:
            positive, negative = scores.chunk(2)
            return F.softplus(negative - positive).sum()
        positive, negative = scores[:n], scores[n:]
        if len(negative) == n:
            return F.softplus(negative.roll(-epoch) - positive).sum()
        partner = torch.from_numpy((self.places[:n] + epoch) % len(negative))
        return F.softplus(negative.index_select(0, partner) - positive).sum()

    def _one_step(self, user: int, n: int, items: Tensor) -> None:
        private = [leaves[user] for leaves in self.leaves]
        rows = [table.index_select(0, items).requires_grad_() for table in self.items]
        loss = self._loss(self.score(private, rows, self.dense), n, 0)
        gradients = torch.autograd.grad(loss, [*private, *rows, *self.dense_list])
        at, end = len(private), len(private) + len(rows)
        self._step_private(user, n, gradients)
        self._decay(gradients[at:end], [table.detach() for table in rows], n)
        for total, gradient in zip(self.item_sums, gradients[at:end], strict=True):
            total.index_add_(0, items, gradient)
        if self.dense_sums:
            torch._foreach_add_(self.dense_sums, gradients[end:])

    def _step_private(self, user: int, n: int, gradients: Sequence[Tensor]) -> None:
        config = self.work.config
        rate, keep = config.user_learning_rate / n, 1.0 - config.user_learning_rate * config.l2
        for table, gradient in zip(self.rows, gradients, strict=False):
            row = table[user]
            if config.l2:
                row.mul_(keep)
            row.sub_(gradient, alpha=rate)

    def _decay(self, gradients: tuple[Tensor, ...], rows: list[Tensor], n: int) -> None:
        """Add weight decay to gradients of the summed loss: a side's rows share its mean, so n times l2 / n each."""
        l2 = self.work.config.l2
        if not l2:
            return
        k = len(rows[0]) - n
        if k == n:
            torch._foreach_add_(gradients, rows, alpha=l2)
            return
        for gradient, row in zip(gradients, rows, strict=True):
            gradient[:n].add_(row[:n], alpha=l2)
            gradient[n:].add_(row[n:], alpha=l2 * n / k)

    def _several_steps(self, user: int, n: int, items: Tensor) -> None:
        config = self.work.config
        private = [leaves[user] for leaves in self.leaves]
        start = [*(table.index_select(0, items) for table in self.items), *self.dense_start]
        moved = start
        at, end = len(private), len(self.items)
        rate = config.client_learning_rate / n
        for epoch in range(config.local_epochs):
            leaves = [value.detach().requires_grad_() for value in moved]
            dense = dict(zip(self.dense, leaves[end:], strict=True))
            loss = self._loss(self.score(private, leaves[:end], dense), n, epoch)
            gradients = torch.autograd.grad(loss, [*private, *leaves])
            self._step_private(user, n, gradients)
            self._decay(gradients[at : at + end], moved[:end], n)
            if epoch == 0:
                moved = list(torch._foreach_sub(start, gradients[at:], alpha=rate))
            else:
                torch._foreach_sub_(moved, gradients[at:], alpha=rate)
        for total, before, after in zip(self.item_sums, start, moved, strict=False):
            total.index_add_(0, items, before.sub_(after).mul_(n))
        if self.dense_sums:
            drift = torch._foreach_sub(self.dense_start, moved[end:])
            torch._foreach_add_(self.dense_sums, drift, alpha=n)


def _private_tables(private: Tensor, layout: RowLayout) -> list[Tensor]:
    return [layout.part(private, name).clone(memory_format=torch.contiguous_format) for name, _ in layout.columns]
