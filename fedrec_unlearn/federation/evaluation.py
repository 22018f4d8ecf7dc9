"""Judging a state: its towers computed once, then ranking metrics or RMSE on validation or test items."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedrec_unlearn.config import Config
from fedrec_unlearn.data.types import IntArray, Split, UserItems
from fedrec_unlearn.errors import DataError
from fedrec_unlearn.federation.state import RunState
from fedrec_unlearn.metrics import (
    FULL,
    check_sampled_topk,
    check_topk,
    evaluate_full,
    evaluate_sampled,
    metric_key,
    popularity_pair_scorer,
    popularity_scorer,
    popularity_scores,
    rmse,
    sampled_protocol,
)
from fedrec_unlearn.metrics.csr import union
from fedrec_unlearn.metrics.sampled import sample_negatives
from fedrec_unlearn.models import Recommender, Tower
from fedrec_unlearn.seeds import Purpose, stream_key

_CHUNK_SCORES = 1 << 21
"""Scores held at once under full ranking, 16 MiB of float64; results do not depend on it."""


class Scorer:
    """Scores from a state's tables.

    The score of a user does not depend on which users are scored beside it: an inner product is taken in float64
    product, whose rounding is far below any gap between scores, and models with hidden layers score one user at
    a time.
    """

    def __init__(self, model: Recommender, state: RunState, features: Tensor | None) -> None:
        self.model = model
        self.shared_product = not model.head_widths
        dtype = torch.float64 if self.shared_product else state.private.dtype
        with torch.no_grad():
            self.dense = {name: value.to(dtype) for name, value in state.server.dense.items()}
            wide = None if features is None else features.to(dtype)
            self.users = model.user_tower(model.user_layout.parts(state.private.to(dtype)), self.dense)
            self.items = model.item_tower(model.item_layout.parts(state.server.items.to(dtype)), self.dense, wide)

    @torch.no_grad()
    def chunk(self, users: Tensor) -> Tensor:
        """Scores of the whole catalogue: int64 (B,) gives (B, n_items)."""
        if self.shared_product or not len(users):
            return self.model.interact_all(rows_of_tower(self.users, users), self.items, self.dense)
        rows = [
            self.model.interact_all(rows_of_tower(self.users, u), self.items, self.dense) for u in users.unsqueeze(1)
        ]
        return torch.cat(rows)

    @torch.no_grad()
    def pairs(self, users: Tensor, items: Tensor) -> Tensor:
        """Scores of given items: int64 (B,) and (B, L) give (B, L)."""
        return self.model.interact(rows_of_tower(self.users, users), rows_of_tower(self.items, items), self.dense)


def rows_of_tower(tower: Tower, rows: Tensor) -> Tower:
    """The tower of some rows: indices of any shape S turn each (n, ...) into (*S, ...)."""
    return Tower(*(None if value is None else value[rows] for value in tower))  # type: ignore[arg-type]


class Evaluator:
    """Evaluates states of one run on its validation and test items.

    Args:
        model: the run's recommender.
        split: train, validation and test items.
        config: metrics, protocol, objective and seed of the split (which also draws sampled negatives, so that
            runs with other seeds are judged on the same ones).
        device: where scores are computed.
        features: item features (m, F), or None.

    Raises:
        ConfigError: a list longer than the catalogue, or than the sampled candidates.
        DataError: RMSE without ratings.
    """

    def __init__(
        self, model: Recommender, split: Split, config: Config, device: torch.device, features: Tensor | None
    ) -> None:
        self.model, self.split, self.device, self.features = model, split, device, features
        self.options = config.evaluation
        self.rating = config.federation.objective == "mse"
        self.seed = stream_key(config.split.seed, Purpose.EVALUATION) >> 1
        sampled = self.options.protocol == "sampled"
        self.protocol = sampled_protocol(self.options.sampled_negatives) if sampled else FULL
        self.negatives: dict[str, IntArray] = {}
        if self.rating:
            if split.train.ratings is None:
                raise DataError(
                    "federation.objective: mse needs ratings and the data has none; "
                    "use bpr or bce, or name data.rating_column"
                )
            self.select_by = "rmse"
            return
        check_topk(self.options.topk, model.n_items)
        if sampled:
            check_sampled_topk(self.options.topk, self.options.sampled_negatives)
        self.select_by = f"{self.options.ranking_metric}/{self.protocol}"

    def better(self, value: float, best: float | None) -> bool:
        """Whether a validation value beats the best so far (NaN never does)."""
        if value != value:
            return False
        return best is None or (value < best if self.rating else value > best)

    def prepare(self) -> None:
        """Draw the sampled protocol's negatives, so that what cannot be drawn is told before training.

        Raises:
            ConfigError: a user has fewer untouched items than `evaluation.sampled_negatives`.
        """
        if not self.rating and self.options.protocol == "sampled":
            for part in ("valid", "test"):
                self._sampled_negatives(part)

    def holds(self, part: str) -> bool:
        """Whether anything is held out in `valid` or `test`."""
        return len(self._relevant(part).items) > 0

    def evaluate(self, state: RunState, part: str) -> dict[str, float]:
        """Metrics of a state on `valid` or `test`; all NaN where nothing is held out."""
        if not self.holds(part):
            return self._unknown()
        scorer = Scorer(self.model, state, self.features)
        if self.rating:
            return {"rmse": self._rmse(scorer, state.rating_mean, part)}
        return self._rank(scorer.chunk, scorer.pairs, part)

    def popularity(self, part: str) -> dict[str, float]:
        """The same metrics of recommending by number of training users (RMSE: of the mean training rating)."""
        if not self.holds(part):
            return self._unknown()
        if self.rating:
            relevant = self._relevant(part)
            assert self.split.train.ratings is not None
            assert relevant.ratings is not None
            mean = float(self.split.train.ratings.mean())
            return {"rmse": rmse(np.full(len(relevant.ratings), mean), relevant.ratings)}
        scores = popularity_scores(self.split.train.items, self.model.n_items)
        return self._rank(popularity_scorer(scores, self.device), popularity_pair_scorer(scores, self.device), part)

    def _relevant(self, part: str) -> UserItems:
        return self.split.valid if part == "valid" else self.split.test

    def _unknown(self) -> dict[str, float]:
        if self.rating:
            return {"rmse": float("nan")}
        return {metric_key(m, k, self.protocol): float("nan") for k in self.options.topk for m in self.options.metrics}

    def _known(self) -> list[tuple[IntArray, IntArray]]:
        return [(p.indptr, p.items) for p in (self.split.train, self.split.valid, self.split.test)]

    def _sampled_negatives(self, part: str) -> IntArray:
        if part not in self.negatives:
            relevant = self._relevant(part)
            users = np.repeat(np.arange(relevant.n_users), relevant.counts)
            everything = union("known items", self._known(), self.model.n_items)
            self.negatives[part] = sample_negatives(
                users, relevant.items, everything, self.options.sampled_negatives, self.seed
            )
        return self.negatives[part]

    def _rank(
        self, score_chunk: Callable[[Tensor], Tensor], score_pairs: Callable[[Tensor, Tensor], Tensor], part: str
    ) -> dict[str, float]:
        split, options, n_items = self.split, self.options, self.model.n_items
        relevant = self._relevant(part)
        wanted = (relevant.indptr, relevant.items)
        if options.protocol == "sampled":
            return evaluate_sampled(
                score_pairs, self._known(), wanted, n_items, options.topk, options.metrics, options.sampled_negatives,
                self.seed, self._sampled_negatives(part), options.chunk_size, self.device,
            )  # fmt: skip
        seen = (split.train.indptr, split.train.items)
        if part == "test":
            both = union("seen items", [seen, (split.valid.indptr, split.valid.items)], n_items)
            seen = (both.indptr, both.items)  # type: ignore[assignment]
        # larger score tables come fresh from the system each time, page by page
        chunk = max(1, min(options.chunk_size, _CHUNK_SCORES // n_items))
        return evaluate_full(score_chunk, seen, wanted, n_items, options.topk, options.metrics, chunk, self.device)

    def _rmse(self, scorer: Scorer, mean: float, part: str) -> float:
        relevant = self._relevant(part)
        assert relevant.ratings is not None
        users = torch.from_numpy(np.repeat(np.arange(relevant.n_users), relevant.counts)).to(self.device)
        items = torch.from_numpy(relevant.items).to(self.device)
        cuts = range(0, len(users), 1 << 16)
        found = [scorer.pairs(users[c : c + (1 << 16)], items[c : c + (1 << 16), None])[:, 0].cpu() for c in cuts]
        return rmse(torch.cat(found).double().numpy() + mean, relevant.ratings)
