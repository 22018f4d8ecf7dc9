"""The federation behind a RecBole trainer: clients with their data, rounds, unlearning and attacks on a bound model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fedrec_unlearn.attacks import AttackResult, infer_attribute
from fedrec_unlearn.config import AttackConfig, Config
from fedrec_unlearn.data.types import Attribute, Dataset, UserItems
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.federation.cohort import Cohorts
from fedrec_unlearn.federation.engine import Engine, Workload, make_engine
from fedrec_unlearn.federation.exchange import ExchangeTransport
from fedrec_unlearn.federation.local_data import ClientData
from fedrec_unlearn.federation.state import RunState, ServerState, apply_contribution
from fedrec_unlearn.pipeline.afterwards import apply_afterwards
from fedrec_unlearn.pipeline.terms import attributes_to_unlearn, make_term
from fedrec_unlearn.pipeline.transports import transport_of
from fedrec_unlearn.progress import Progress, SilentProgress
from fedrec_unlearn.recbole.binding import Binding


@dataclass
class Standing:
    """How far a pass over the clients has come."""

    rounds: int = 0
    """Rounds of the pass that are done."""
    loss: float = 0.0
    """Σ over them of interactions × mean loss."""
    interactions: int = 0


@dataclass(frozen=True)
class _Run:
    """A run as `apply_afterwards` wants it."""

    config: Config
    dataset: Dataset
    workload: Workload


class Clients:
    """Users of a RecBole data set as clients that train a bound model.

    Args:
        binding: the model.
        config: options of the federation.
        dataset: names and attributes of users.
        items: what they train on.
        device: where tensors live.

    Raises:
        FedRecError: options, sizes or data that do not go together; told before anything is trained.
    """

    def __init__(
        self, binding: Binding, config: Config, dataset: Dataset, items: UserItems, device: torch.device
    ) -> None:
        self.binding, self.config, self.dataset, self.items, self.device = binding, config, dataset, items, device
        self.dtype = torch.float64 if config.federation.ring else torch.float32
        data = ClientData(items, device, self.dtype)
        self.work = Workload(
            model=binding.recommender,
            objective=binding.objective,
            clients=data,
            config=config.federation,
            seed=config.seed,
            transport=transport_of(config, data, binding.num_negatives),
            features=binding.features,
            user_features=binding.user_features,
        )
        self.cohorts = Cohorts(self.work.eligible(), config.federation, config.seed)
        self.state = self._initial()
        if isinstance(self.work.transport, ExchangeTransport):
            for size in self.cohorts.sizes:
                self.work.transport.check(self.state.server, self.work.empty(self.state.server), size)
        self.standing = Standing()
        self.bytes_up = self.bytes_down = 0

    def _initial(self) -> RunState:
        private, items, dense = self.binding.read(self.dtype)
        server = ServerState(items, dense)
        if self.config.federation.server_optimizer == "adam":
            for name, value in server.parameters().items():
                for order in ("first", "second"):
                    server.moments[f"{order}.{name}"] = torch.zeros_like(value)
        return RunState(server, private)

    def train_pass(
        self, asked_to_stop: threading.Event, told: Callable[[int, int], None] = lambda done, total: None
    ) -> float | None:
        """Rounds until every client has taken part once, from wherever the pass stands.

        Args:
            asked_to_stop: looked at after each round.
            told: gets rounds done and rounds of a pass after each round.

        Returns:
            mean loss of the pass before each client's local training; None where it was stopped before its end.
        """
        engine, standing = make_engine(self.work), self.standing
        while standing.rounds < self.cohorts.rounds_per_pass:
            self._round(engine, 0.0)
            told(standing.rounds, self.cohorts.rounds_per_pass)
            if asked_to_stop.is_set() and standing.rounds < self.cohorts.rounds_per_pass:
                return None
        self.standing = Standing()
        return standing.loss / max(standing.interactions, 1)

    def _round(self, engine: Engine, term_learning_rate: float) -> None:
        state, number = self.state, self.state.server.rounds_done
        contribution = engine.train_clients(state, self.cohorts.of(number), number)
        apply_contribution(state.server, contribution, self.config.federation, term_learning_rate)
        self.standing.rounds += 1
        self.standing.loss += contribution.loss * contribution.scale
        self.standing.interactions += contribution.interactions
        self.bytes_up += contribution.bytes_up
        self.bytes_down += contribution.bytes_down

    def publish(self) -> None:
        """Copy the state into the RecBole model."""
        server = self.state.server
        self.binding.write(self.state.private, server.items, server.dense)

    def unlearn(
        self, config: Config, attributes: Sequence[Attribute], progress: Progress | None = None
    ) -> dict[str, Any]:
        """Remove attributes from the private rows, in place.

        Adversarial methods train on for `unlearn.further_rounds` rounds; the others change the rows once.

        Args:
            config: with section `unlearn`.
            attributes: their labels.
            progress: told of rounds, where there are any.

        Returns:
            method, attributes, seconds and bytes where they are known.

        Raises:
            ConfigError: an attribute all users share, or an adversarial method without a strength.

        Warns:
            UnlearnWarning: users without a value; nothing is promised for them.
        """
        options = config.unlearn
        if options.adversarial and options.epsilon == 0:
            raise ConfigError(
                f"unlearn_epsilon: {options.method} needs a strength, for example unlearn_epsilon: 0.1; fedrec sweep "
                "finds one for this package's own models, and unlearn_method: moments needs none"
            )
        dataset = replace(self.dataset, attributes={attribute.name: attribute for attribute in attributes})
        attributes_to_unlearn(config, dataset)
        run = _Run(config, dataset, replace(self.work, config=config.federation))
        done: dict[str, Any] = {"attributes": list(options.attributes), "method": options.method}
        if options.adversarial:
            self._train_against(run, progress or SilentProgress())
            done["rounds"] = options.further_rounds
        if options.afterwards:
            state, more = apply_afterwards(run, self.state, progress or SilentProgress())
            self.state.private.copy_(state.private)  # in the place of the old rows, so that none is left
            self.state.server = state.server
            done |= more
        return done

    def _train_against(self, run: _Run, progress: Progress) -> None:
        before, cohorts = self.work, self.cohorts
        term = make_term(run.config, run.dataset, before.model, self.device)
        assert term is not None
        self.work = replace(before, term=term)
        self.state.server.add_term(term.initial(run.config.seed), run.config.federation)
        rounds = run.config.unlearn.further_rounds
        progress.start(f"training against {', '.join(run.config.unlearn.attributes)}", rounds, "round")
        try:
            engine = make_engine(self.work)
            for done in range(1, rounds + 1):
                self._round(engine, term.server_learning_rate)
                progress.advance(done, {"loss": self.standing.loss / max(self.standing.interactions, 1)})
        finally:
            progress.finish()
            self.work, self.cohorts, self.standing = before, cohorts, Standing()
            self.state.server = self.state.server.copy_without_term()

    def attack(
        self, attributes: Sequence[Attribute], options: AttackConfig, progress: Progress | None = None
    ) -> list[AttackResult]:
        """Infer attributes from the private rows of the users that train.

        Raises:
            AttackError: too few users, or one class.
        """
        users = self.work.eligible()
        rows = self.binding.recommender.user_representation(self.state.private).cpu().double().numpy()[users]
        return attack_rows(rows, [replace(a, labels=a.labels[users]) for a in attributes], options, progress)


def attack_rows(
    rows: Any, attributes: Sequence[Attribute], options: AttackConfig, progress: Progress | None = None
) -> list[AttackResult]:
    """Infer attributes from rows, (n, width), by every attacker of the options."""
    told = progress or SilentProgress()
    results: list[AttackResult] = []
    for attribute in attributes:
        told.start(f"attack on {attribute.name}", 0, "fold")
        try:
            results += infer_attribute(
                rows,
                attribute.labels,
                attribute=attribute.name,
                classes=attribute.classes,
                attackers=options.attackers,
                folds=options.folds,
                inner_folds=options.inner_folds,
                seeds=options.seeds,
                jobs=options.jobs,
                progress=lambda done, total, attacker: told.advance(done, {"attacker": attacker}),
            )
        finally:
            told.finish()
    return results


def strongest(results: Sequence[AttackResult]) -> AttackResult:
    """The attacker whose balanced accuracy is farthest from chance, in either direction."""
    return max(results, key=lambda result: result.distance_from_chance)
