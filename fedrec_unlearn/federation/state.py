"""The state of a run: what the server holds, what the clients hold, and how the server moves.

Plain tensors and numbers, nothing else, so that a state can be written as safetensors and JSON.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedrec_unlearn.config import Config, FederationConfig
from fedrec_unlearn.errors import RunError
from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.named_vector import NamedVector
from fedrec_unlearn.models import Recommender

_TERM_MOMENTS = ("first.term", "second.term")


@dataclass
class ServerState:
    """What the server holds: item rows, dense parameters and its optimiser's moments."""

    items: Tensor
    """(m, item row width)."""
    dense: dict[str, Tensor]
    rounds_done: int = 0
    steps: int = 0
    """Optimiser steps so far (Adam's bias correction)."""
    moments: dict[str, Tensor] = field(default_factory=dict)
    """Adam: `first.<name>` and `second.<name>` for `items` and each `dense.<name>`, and for `term`, (n,), as one; empty
    for SGD."""
    term: NamedVector = field(default_factory=NamedVector.empty)
    """Shared parameters of a term beside the recommender (adversaries), (n,); empty without one."""
    term_steps: int = 0
    """Optimiser steps of the term's parameters so far."""

    def parameters(self) -> dict[str, Tensor]:
        """All tensors the server's optimiser moves, by name; a term's are views, `term.<name>`."""
        return {
            "items": self.items,
            **{f"dense.{name}": value for name, value in self.dense.items()},
            **{f"term.{name}": value for name, value in self.term.items()},
        }

    def add_term(self, term: Mapping[str, Tensor], config: FederationConfig) -> None:
        """Start training a term's shared parameters, instead of those there were.

        Args:
            term: their initial values by name, any float type.
            config: optimiser.
        """
        self.term = NamedVector.of({name: value.to(self.items) for name, value in term.items()})
        self.term_steps = 0
        self.moments = self._moments_of_recommender()
        if config.server_optimizer == "adam":
            for name in _TERM_MOMENTS:
                self.moments[name] = torch.zeros_like(self.term.flat)

    def copy_without_term(self) -> ServerState:
        """A copy of the recommender's part: shares no tensor with this state."""
        return replace(
            self,
            items=self.items.clone(),
            dense={name: value.clone() for name, value in self.dense.items()},
            moments={name: value.clone() for name, value in self._moments_of_recommender().items()},
            term=NamedVector.empty(),
            term_steps=0,
        )

    def named_moments(self) -> dict[str, Tensor]:
        """The moments with those of a term by parameter, `first.term.<name>`, as views."""
        named = self._moments_of_recommender()
        for moment in _TERM_MOMENTS:
            if moment in self.moments:
                parts = self.term.like(self.moments[moment])
                named |= {f"{moment}.{name}": value for name, value in parts.items()}
        return named

    def _moments_of_recommender(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.moments.items() if name not in _TERM_MOMENTS}


@dataclass
class RunState:
    """Server and clients together, as one process simulates them.

    `private` is the clients' own: row u belongs to user u. It is stored with the run, because a simulation
    plays every device, and enters no Contribution.
    """

    server: ServerState
    private: Tensor
    """(n_users, private row width)."""
    rating_mean: float = 0.0
    """Mean training rating under the mse objective: one secure sum before the first round."""


def initial_state(model: Recommender, config: Config, device: torch.device, rating_mean: float = 0.0) -> RunState:
    """State before the first round.

    Args:
        model: the recommender.
        config: seed, `model.init_std`, optimiser and number format.
        device: where the tensors live.
        rating_mean: mean training rating (mse objective).
    """
    dtype = torch.float64 if config.federation.ring else torch.float32
    std = config.model.init_std

    def place(tensor: Tensor) -> Tensor:
        return tensor.to(dtype=dtype).to(device)

    items = place(model.initial_item_rows(config.seed, std))
    dense = {name: place(value) for name, value in model.initial_dense(config.seed, std).items()}
    server = ServerState(items, dense)
    if config.federation.server_optimizer == "adam":
        for name, value in server.parameters().items():
            server.moments[f"first.{name}"] = torch.zeros_like(value)
            server.moments[f"second.{name}"] = torch.zeros_like(value)
    return RunState(server, place(model.initial_user_rows(config.seed, std)), rating_mean)


def mean_update(contribution: Contribution, aggregation: str) -> dict[str, Tensor]:
    """Mean of the clients' updates by parameter name (`items`, `dense.<name>`, and `term` for all of a term's), float.

    Args:
        contribution: the round's sum.
        aggregation: `mean` divides item rows by the weight of all clients, `row_mean` by the weight of those
            that touched the row; dense parameters are always divided by the weight of all. A term's parameters
            are divided by the clients that trained their group; 0 where there is none.
    """
    dtype = contribution.items.dtype if contribution.fraction_bits is None else torch.float64
    factor = contribution.scale / contribution.weight
    updates = {f"dense.{name}": value.to(dtype) * factor for name, value in contribution.dense.items()}
    if contribution.term:
        updates["term"] = contribution.term.flat.to(dtype) * _factor_of_term(contribution, dtype)
    if aggregation == "row_mean":
        assert contribution.row_weight is not None
        row = contribution.scale / contribution.row_weight.clamp(min=torch.finfo(torch.float64).tiny)
        row = torch.where(contribution.row_weight > 0, row, torch.zeros_like(row)).to(dtype)
        updates["items"] = contribution.items.to(dtype) * row.unsqueeze(1)
    else:
        updates["items"] = contribution.items.to(dtype) * factor
    return updates


def _factor_of_term(contribution: Contribution, dtype: torch.dtype) -> Tensor | float:
    """What the sums of a term are multiplied with: one number, or (n,) where groups have different weights."""
    places = contribution.term.layout.groups
    weights = [contribution.term_sums[group].weight for group in places]
    factors = [contribution.scale / weight if weight > 0 else 0.0 for weight in weights]
    if len(set(factors)) == 1:
        return factors[0]
    flat = contribution.term.flat
    sizes = torch.tensor([place.stop - place.start for place in places.values()], device=flat.device)
    each = torch.tensor(factors, dtype=dtype, device=flat.device)
    return each.repeat_interleave(sizes, output_size=len(flat))


def _trained_of_term(contribution: Contribution) -> Iterator[slice]:
    """Parts of a term that clients trained; neighbours as one."""
    places = contribution.term.layout.groups
    trained = itertools.groupby(places, lambda group: contribution.term_sums[group].weight > 0)
    for some, groups in trained:
        if some:
            run = [places[group] for group in groups]
            yield slice(run[0].start, run[-1].stop)


@torch.inference_mode()
def apply_contribution(
    state: ServerState, contribution: Contribution, config: FederationConfig, term_learning_rate: float = 0.0
) -> None:
    """One server step in place: the clients' mean update is the (pseudo-)gradient.

    Args:
        state: changed in place.
        contribution: sum over the round's clients; one of no clients leaves the parameters as they are.
        config: optimiser, step size and aggregation.
        term_learning_rate: step size for a term's parameters.

    Raises:
        RunError: the update is not finite.

    Source: Reddi et al. 2021, algorithm 2 (FedAdam, with Adam's bias correction as Kingma & Ba 2015);
    with `sgd` at step size 1, McMahan et al. 2017 (FedAvg).
    """
    state.rounds_done += 1
    if contribution.weight <= 0:
        return
    updates = mean_update(contribution, config.item_aggregation)
    for name, value in updates.items():
        if not math.isfinite(float(value.sum())):  # one pass; a sum beyond the numbers is as good as infinite
            what, section = ("the adversaries", "unlearn") if name == "term" else (name, "federation")
            raise RunError(
                f"round {state.rounds_done}: the update of {what} is not finite, training has diverged; lower "
                f"federation.user_learning_rate, {section}.client_learning_rate or {section}.server_learning_rate"
            )
    state.steps += 1
    adam = config.server_optimizer == "adam"
    for name, parameter in {"items": state.items, **{f"dense.{n}": v for n, v in state.dense.items()}}.items():
        moments = [state.moments[f"{order}.{name}"] for order in ("first", "second")] if adam else []
        _step(parameter, updates[name], moments, state.steps, config.server_learning_rate, config)
    if not contribution.term:
        return
    state.term_steps += 1
    whole = [state.term.flat, updates["term"], *(state.moments[name] for name in _TERM_MOMENTS if adam)]
    for place in _trained_of_term(contribution):
        all_of_it = place.stop - place.start == len(whole[0])
        parameter, update, *moments = whole if all_of_it else [tensor[place] for tensor in whole]
        _step(parameter, update, moments, state.term_steps, term_learning_rate, config)


def _step(
    parameter: Tensor,
    update: Tensor,
    moments: Sequence[Tensor],
    steps: int,
    step_size: float,
    config: FederationConfig,
) -> None:
    """Move a parameter and its first and second moment in place; SGD has none. `steps` counts this one."""
    if not moments:
        parameter.sub_(update, alpha=step_size)
        return
    beta1, beta2 = config.adam_betas
    first, second = moments
    first.mul_(beta1).add_(update, alpha=1.0 - beta1)
    second.mul_(beta2).addcmul_(update, update, value=1.0 - beta2)
    root = (second / (1.0 - beta2**steps)).sqrt_().add_(config.adam_epsilon)
    parameter.addcdiv_(first, root, value=-step_size / (1.0 - beta1**steps))


def number_bytes(dense: Mapping[str, Tensor], items: Tensor, fraction_bits: int | None) -> tuple[int, int]:
    """Dense numbers a client moves, and bytes per number on the wire (float32, or int64 in ring mode)."""
    return sum(value.numel() for value in dense.values()), items.element_size() if fraction_bits is None else 8
