"""Stock models that are one of this package's by another name: the same scores, computed through towers.

RecBole's BPR is matrix factorisation, and its FM over the two ids alone is the factorisation machine of this package.
Through towers a pass over the clients costs a fraction, and unlearning can move private rows where that is cheapest in
scores. Everything else is scored pair by pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from fedrec_unlearn.models import FM, MF, Given, Recommender
from fedrec_unlearn.recbole.stock import StockRecommender


@dataclass(frozen=True)
class TowerForm:
    """A recommender that scores as a stock model does, on rows of the same columns in the same order."""

    recommender: Recommender
    dense: dict[str, str]
    """The stock model's name of each dense parameter."""


def tower_form(model: nn.Module, stock: StockRecommender) -> TowerForm | None:
    """The model as one of this package's, or None where it is none of them.

    Args:
        model: a RecBole model.
        stock: the same model as it is scored pair by pair.
    """
    from recbole.model.context_aware_recommender import FM as StockFM  # noqa: N811
    from recbole.model.general_recommender import BPR as StockBPR  # noqa: N811

    if stock.own_penalty is not None or stock.item_fields or stock.user_fields:
        return None
    n_users, n_items = stock.n_users, stock.n_items
    widths = [width for _, width in stock.user_layout.columns]
    if type(model) is StockBPR:
        return TowerForm(MF(n_users, n_items, widths[0]), {})
    if type(model) is StockFM and len(widths) == 2:
        return TowerForm(FM(n_users, n_items, widths[0]), {"bias": "first_order_linear.bias"})
    return None


def same_scores(
    form: TowerForm, stock: StockRecommender, tables: tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]
) -> bool:
    """Whether both score a few pairs alike; `tables` are the stock model's."""
    private, items, dense = tables
    n = min(4, len(private), len(items))
    place = torch.arange(n, device=private.device)
    given = Given(place.unsqueeze(1), place.unsqueeze(1))
    user, item = stock.user_layout.parts(private[:n]), stock.item_layout.parts(items[:n])
    theirs = stock.score_pairs(user, item, dense, place, place.flip(0), given)
    named = {name: dense[theirs_name] for name, theirs_name in form.dense.items()}
    ours = form.recommender.score(private[:n], items[:n].flip(0).unsqueeze(1), named).squeeze(1)
    return torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
