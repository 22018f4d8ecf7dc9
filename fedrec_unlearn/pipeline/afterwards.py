"""The step after training that some methods of unlearning have: private rows change once, item rows may train on."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any, Protocol

import torch

from fedrec_unlearn.config import Config
from fedrec_unlearn.data import Dataset
from fedrec_unlearn.federation.cohort import Cohorts
from fedrec_unlearn.federation.engine import Workload, make_engine
from fedrec_unlearn.federation.state import RunState, apply_contribution
from fedrec_unlearn.models import Given
from fedrec_unlearn.pipeline.terms import attributes_to_unlearn
from fedrec_unlearn.progress import Progress
from fedrec_unlearn.unlearning.afterwards import change_rows


class Trained(Protocol):
    """What there is to know of a run; an `Assembly` is one."""

    @property
    def config(self) -> Config:
        """Its options."""
        ...

    @property
    def dataset(self) -> Dataset:
        """For the users' attributes."""
        ...

    @property
    def workload(self) -> Workload:
        """What its clients do."""
        ...


def without_term(state: RunState) -> RunState:
    """A copy of a state without the parameters of adversaries."""
    return replace(state, server=state.server.copy_without_term(), private=state.private.clone())


def apply_afterwards(assembly: Trained, state: RunState, progress: Progress) -> tuple[RunState, dict[str, Any]]:
    """The step after training of the methods that have one.

    Args:
        assembly: of the run, with its configuration.
        state: after training; not changed.
        progress: told of the rounds of item training that may follow.

    Returns:
        the new state, and the fields of run.json's `unlearn` it fills in.
    """
    config = assembly.config
    started = time.perf_counter()
    attributes = attributes_quietly(config, assembly)
    changed = replace(state, private=state.private.clone())
    trained = torch.from_numpy(assembly.workload.eligible()).to(state.private.device)
    rows = change_rows(
        state.private.index_select(0, trained),
        [replace(a, labels=a.labels[trained.cpu().numpy()]) for a in attributes],
        config.unlearn,
        items=score_directions(assembly, state),
        seed=config.seed,
    )
    changed.private.index_copy_(0, trained, rows.rows.to(changed.private))
    if config.unlearn.item_rounds:
        changed = replace(changed, server=without_term(state).server)
        train_items(assembly, changed, config.unlearn.item_rounds, progress)
        # the adversaries rest, but stay part of the run
        changed.server.term, changed.server.term_steps = state.server.term, state.server.term_steps
        changed.server.moments = {**state.server.moments, **changed.server.moments}
    return changed, {
        "seconds": round(time.perf_counter() - started, 3),
        "bytes_up": rows.bytes_up,
        "bytes_down": rows.bytes_down,
        "pooled_rows": rows.pooled,
    }


def score_directions(assembly: Trained, state: RunState) -> torch.Tensor | None:
    """What a private row is multiplied with to score each item, (m, private row width).

    Up to an offset that does not depend on the item, so that a column of zeros stands for a user's bias. Where the
    score is not linear in the private row, its derivative at the mean of the rows: what a small move costs in scores
    there. The mean is no secret: clients get it with the moments. None where the columns of rows and items do not
    match.
    """
    model = assembly.workload.model
    if model.head_widths or not model.has_towers:
        trained = torch.from_numpy(assembly.workload.eligible()).to(state.private.device)
        return score_slopes(assembly.workload, state, state.private.index_select(0, trained).mean(0))
    with torch.no_grad():
        parts = model.item_layout.parts(state.server.items)
        factors = model.item_tower(parts, state.server.dense, assembly.workload.features).factors
    missing = model.user_layout.width - factors.shape[1]
    return torch.nn.functional.pad(factors, (0, missing)) if missing >= 0 else None


def score_slopes(work: Workload, state: RunState, row: torch.Tensor, chunk: int = 2048) -> torch.Tensor:
    """Derivative of each item's score in a private row, (m, private row width).

    Args:
        work: its model and features. Users' own features, which a client would have, are those of one user after the
            other.
        state: item rows and dense parameters.
        row: where, (private row width,).
        chunk: items scored at once.
    """
    model, device = work.model, state.private.device
    found = []
    for start in range(0, model.n_items, chunk):
        ids = torch.arange(start, min(start + chunk, model.n_items), device=device)
        rows = row.expand(len(ids), -1).clone().requires_grad_()
        items = state.server.items.index_select(0, ids)
        features = None if work.features is None else work.features[ids]
        own = None if work.user_features is None else work.user_features[ids % model.n_users]
        if model.has_towers:
            lone = None if features is None else features.unsqueeze(1)
            scores = model.score(rows, items.unsqueeze(1), state.server.dense, Given(lone, own))
        else:
            place = torch.arange(len(ids), device=device)
            parts = (model.user_layout.parts(rows), model.item_layout.parts(items))
            scores = model.score_pairs(*parts, state.server.dense, place, place, Given(features, own))
        found.append(torch.autograd.grad(scores.sum(), rows)[0])
    return torch.cat(found)


def attributes_quietly(config: Config, assembly: Trained) -> list[Any]:
    """`attributes_to_unlearn` without repeating its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return attributes_to_unlearn(config, assembly.dataset)


def train_items(assembly: Trained, state: RunState, rounds: int, progress: Progress) -> None:
    """Train item rows and dense parameters on, with private rows frozen; changes `state` in place."""
    work = replace(assembly.workload, frozen=True, term=None)
    engine = make_engine(work)
    cohorts = Cohorts(work.eligible(), work.config, assembly.config.seed)
    first = state.server.rounds_done
    progress.start("item rows after unlearning", rounds, "round")
    try:
        for number in range(first, first + rounds):
            contribution = engine.train_clients(state, cohorts.of(number), number)
            apply_contribution(state.server, contribution, work.config)
            progress.advance(number - first + 1, {"loss": contribution.mean_loss})
    finally:
        progress.finish()
