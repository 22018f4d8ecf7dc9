"""Is what clients would compute what the model computes? Held against each other before a model is accepted.

The partition says whose each parameter is; whether a score needs nothing but those rows is another question (a model
may look up a graph, the neighbours of a user, or statistics of a batch). So a stock model's own `predict` and
`calculate_loss`, on its whole tables, are compared with the federation's score and loss on rows taken out of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fedrec_unlearn.errors import ModelError
from fedrec_unlearn.models import Given, Objective
from fedrec_unlearn.recbole.stock import StockRecommender
from fedrec_unlearn.seeds import Purpose, generator

_USERS, _ITEMS, _PAIRS = 5, 9, 24


class _Sample:
    """Rows of a few users and items, taken out of the model's tables."""

    def __init__(self, recommender: StockRecommender, tables: tuple[Tensor, Tensor, dict[str, Tensor]]) -> None:
        private, items, dense = tables
        draw = generator(0, Purpose.ATTACK, 0x9E)
        device = private.device

        def some(n: int, size: int) -> Tensor:
            return torch.from_numpy(draw.permutation(n)[:size]).to(device)

        self.users, self.items = some(recommender.n_users, _USERS), some(recommender.n_items, _ITEMS)
        self.owner = torch.from_numpy(draw.integers(len(self.users), size=_PAIRS)).to(device)
        self.place = torch.from_numpy(draw.integers(len(self.items), size=_PAIRS)).to(device)
        self.rows = private.index_select(0, self.users)
        self.item_rows = items.index_select(0, self.items)
        self.dense = dense
        self.given = Given(self.items.unsqueeze(1), self.users.unsqueeze(1))


def check_scores(
    model: nn.Module, recommender: StockRecommender, tables: tuple[Tensor, Tensor, dict[str, Tensor]], dataset: Any
) -> list[str]:
    """See that scores from single rows are the model's own.

    Args:
        model: with its whole tables.
        recommender: the same model as the federation calls it.
        tables: the model's private rows, item rows and dense parameters.
        dataset: RecBole's data set, for the fields of users and items.

    Returns:
        names of parameters no score depends on.

    Raises:
        ModelError: they are not, or cannot be computed.
    """
    from recbole.data.interaction import Interaction

    name, sample = type(model).__name__, _Sample(recommender, tables)
    user_field, item_field = recommender.fields
    ids = {
        user_field: sample.users[sample.owner].cpu() + 1,
        item_field: sample.items[sample.place].cpu() + 1,
    }
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            own = model.predict(dataset.join(Interaction(ids)).to(sample.rows.device)).reshape(-1)  # type: ignore[operator]
    finally:
        model.train(was_training)
    user = _leaves(recommender.user_layout.parts(sample.rows))
    items = _leaves(recommender.item_layout.parts(sample.item_rows))
    dense = _leaves(sample.dense)
    try:
        scores = recommender.score_pairs(user, items, dense, sample.owner, sample.place, sample.given)
    except (RuntimeError, IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(_cannot(name, f"on their rows alone it ends in {type(error).__name__}: {error}")) from error
    ours = scores.detach()
    ours = torch.sigmoid(ours) if isinstance(getattr(model, "sigmoid", None), nn.Sigmoid) else ours
    if own.shape != ours.shape or not torch.allclose(own, ours, rtol=1e-4, atol=1e-5):
        raise ModelError(_cannot(name, "on their rows alone it comes out differently"))
    leaves = {**user, **items, **dense}
    gradients = torch.autograd.grad(scores.sum(), [*user.values(), *items.values(), *dense.values()], allow_unused=True)
    used = {key for key, gradient in zip([*user, *items, *dense], gradients, strict=True) if gradient is not None}
    return [key for key in leaves if key not in used]


def check_copies(recommender: StockRecommender, tables: tuple[Tensor, Tensor, dict[str, Tensor]]) -> None:
    """See that a block of clients with copies of everything scores as one list of pairs does.

    Raises:
        ModelError: it does not, or cannot be computed.
    """
    sample = _Sample(recommender, tables)
    n = len(sample.items)
    owner = torch.tensor([0, 1], device=sample.rows.device).repeat_interleave(n)
    place = torch.arange(n, device=sample.rows.device).repeat(2)
    user, items = recommender.user_layout.parts(sample.rows[:2]), recommender.item_layout.parts(sample.item_rows)
    pair_given = Given(sample.given.features, sample.users[:2].unsqueeze(1), (0, 0))
    assert pair_given.features is not None
    block_given = pair_given._replace(features=pair_given.features.expand(2, -1, -1))
    try:
        flat = recommender.score_pairs(user, items, sample.dense, owner, place, pair_given)
        block = recommender.score_parts(
            user,
            {name: part.expand(2, *part.shape) for name, part in items.items()},
            {name: value.expand(2, *value.shape) for name, value in sample.dense.items()},
            block_given,
        )
    except (RuntimeError, IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(
            f"{recommender.name} cannot be computed for a block of clients at once ({type(error).__name__}: {error})"
        ) from error
    if not torch.allclose(flat.view(2, n), block, rtol=1e-4, atol=1e-5):
        raise ModelError(f"{recommender.name} scores a block of clients differently from one client after the other")


def find_penalty(
    recommender: StockRecommender,
    objective: Objective,
    tables: tuple[Tensor, Tensor, dict[str, Tensor]],
    *,
    label_field: str,
    negative_field: str,
) -> None:
    """See that the model's own loss is the objective, up to a term on dense parameters, which is then added.

    Args:
        recommender: `own_penalty` is set where there is such a term.
        objective: the loss on scores that clients use.
        tables: the model's private rows, item rows and dense parameters.
        label_field: RecBole's field for labels.
        negative_field: RecBole's prefix of the negative item's field.

    Raises:
        ModelError: the loss is another one, or a term of it needs the rows of all users or items.
    """
    sample = _Sample(recommender, tables)
    recommender.own_penalty = objective
    recommender.label_field, recommender.negative_field = label_field, negative_field
    rest: list[float] = []
    size, pull = 0.0, 0.0
    for user, first, scale in ((0, 0, 1.0), (1, 2, 1.0), (0, 0, 2.0)):
        chosen = slice(first, first + 2)
        parts = _leaves(recommender.user_layout.parts(sample.rows[user : user + 1] * scale))
        rows = _leaves(recommender.item_layout.parts(sample.item_rows[chosen] * scale))
        try:
            own, base = recommender.losses(parts, rows, sample.dense, sample.items[chosen])
            pull = max(pull, _largest_slope(own - base, [*parts.values(), *rows.values()]))
        except (RuntimeError, IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(_other_loss(recommender.name, f"it ends in {type(error).__name__}: {error}")) from error
        rest.append(float((own - base).detach()))
        size = max(size, abs(float(base.detach())))
    tolerance = 1e-5 * (1.0 + size + abs(rest[0]))
    if max(rest) - min(rest) > tolerance or pull > 1e-5:
        what = f"it differs from {objective.name} of its scores by {rest[0]:.4g} and {rest[1]:.4g} for two users"
        if max(rest) - min(rest) <= tolerance:
            what = f"beside {objective.name} of its scores it pulls at rows of users or items"
        raise ModelError(_other_loss(recommender.name, what))
    if max(map(abs, rest)) <= tolerance or not recommender.dense_shapes:
        recommender.own_penalty = None


def _largest_slope(difference: Tensor, rows: list[Tensor]) -> float:
    """Largest derivative of a scalar in any row; 0 where it depends on none."""
    if not difference.requires_grad:
        return 0.0
    slopes = torch.autograd.grad(difference, rows, allow_unused=True)
    return max((float(slope.abs().max()) for slope in slopes if slope is not None), default=0.0)


def _cannot(model: str, what: str) -> str:
    return (
        f"{model} cannot be trained by clients: its score of a user and an item needs more than their rows and the "
        f"dense parameters ({what})"
    )


def _other_loss(model: str, what: str) -> str:
    return (
        f"{model}'s own loss is not one a client can compute from its own pairs and the dense parameters ({what}). "
        "If it adds norms of whole tables, set the model's reg weights to 0 (weight_decay decays the rows a client "
        "touches); objective: bpr or objective: bce trains the model's scores with that loss instead of its own"
    )


def _leaves(parts: Any) -> dict[str, Tensor]:
    return {name: part.detach().clone().requires_grad_() for name, part in parts.items()}
