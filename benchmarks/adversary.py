"""What an adversary adds to a round: gradient reversal, with the trigger, and FedAU², against plain training.

    python -m benchmarks.adversary --data-dir DIR

MF with embeddings of 32, BPR with one negative, the default federation settings and adversary, one attribute
(gender). MovieLens 100K with 64 clients a round and MovieLens 1M with 256; without a data folder, synthetic
interactions and labels of about the size of MovieLens 100K. A round is the clients' training and the server's step,
without evaluation, event log and checkpoints.

Every arm trains a federation of its own, and the arms take turns round by round with the same clients. Times are CPU
seconds on one thread. `ratio` is the median over the rounds of arm / plain, each round against the plain one of the
same clients; `round` is the median time of a round.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.growth import synthetic_items
from benchmarks.machine import one_thread
from benchmarks.program import data_folder, interleaved, last_line, parser, run, table
from benchmarks.workloads import CPU, Federation, all_interactions, read_dataset
from fedrec_unlearn.config import Config, FederationConfig, ModelConfig
from fedrec_unlearn.config_unlearn import UnlearnConfig
from fedrec_unlearn.data import Attribute, UserItems
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.federation.cohort import Cohorts
from fedrec_unlearn.federation.state import apply_contribution
from fedrec_unlearn.federation.vectorised import VectorisedEngine
from fedrec_unlearn.seeds import Purpose, generator
from fedrec_unlearn.unlearning.adversarial import AdversarialTerm

PLAIN = "none"
METHODS = ("grl", "grl_sut", "fedau2")
TARGET = 1.3
"""Largest ratio aimed at."""
CLIENTS = {"ml-100k": 64, "ml-1m": 256, "synthetic": 64}
"""Clients of a round."""
EPSILON = 0.1


@dataclass(frozen=True)
class Measured:
    """Rounds of one data set, CPU seconds of each arm's, in the same order."""

    dataset: str
    clients: int
    rounds: dict[str, list[float]]

    def seconds(self, arm: str) -> float:
        """Median of a round."""
        return statistics.median(self.rounds[arm])

    def ratio(self, arm: str) -> float:
        """Median of arm / plain."""
        pairs = zip(self.rounds[arm], self.rounds[PLAIN], strict=True)
        return statistics.median(own / plain for own, plain in pairs)

    def figures(self) -> dict[str, Any]:
        """For the last line."""
        return {
            "dataset": self.dataset,
            "clients": self.clients,
            "rounds": len(self.rounds[PLAIN]),
            "target": TARGET,
            "arms": {arm: {"round_seconds": self.seconds(arm), "ratio": self.ratio(arm)} for arm in self.rounds},
        }


def settings(method: str, clients: int) -> Config:
    """Defaults but for embeddings of 32 and the clients of a round; FedAU² and its rivals at one strength."""
    unlearn = UnlearnConfig()
    if method != PLAIN:
        unlearn = UnlearnConfig(attributes=("gender",), method=method, epsilon=EPSILON)  # type: ignore[arg-type]
    return Config(
        model=ModelConfig(embedding_dim=32),
        federation=FederationConfig(clients_per_round=clients),
        unlearn=unlearn,
    )


def arm(config: Config, train: UserItems, attribute: Attribute) -> Callable[[], None]:
    """A federation with the method's term, if it has one; each call trains one round more."""
    plain = Federation.of(config, train)
    work, server, rate = plain.work, plain.state.server, 0.0
    if config.unlearn.adversarial:
        width, dtype = work.model.user_layout.width, plain.state.private.dtype
        term = AdversarialTerm.of(config.unlearn, [attribute], width, config.seed, CPU, dtype)
        server.add_term(term.initial(config.seed), config.federation)
        work, rate = replace(work, term=term), term.server_learning_rate
    engine, cohorts = VectorisedEngine(work), Cohorts(plain.users, config.federation, config.seed)

    def one_round() -> None:
        number = server.rounds_done
        contribution = engine.train_clients(plain.state, cohorts.of(number), number)
        apply_contribution(server, contribution, config.federation, rate)

    return one_round


def measure(dataset: str, train: UserItems, attribute: Attribute, clients: int, rounds: int) -> Measured:
    """Time rounds without and with each method, in turn."""
    arms = {name: arm(settings(name, clients), train, attribute) for name in (PLAIN, *METHODS)}
    return Measured(dataset, clients, interleaved(arms, rounds, warmup=min(rounds, 20)))


def synthetic(users: int = 943, items: int = 1682, seed: int = 0) -> tuple[UserItems, Attribute]:
    """Interactions of `benchmarks.growth` and labels of two classes that three users in ten and seven in ten have."""
    labels = (generator(seed, Purpose.SYNTHETIC, 1).random(users) < 0.7).astype(np.int64)
    return synthetic_items(users, items, seed), Attribute("gender", ("F", "M"), labels)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    options = parser("adversary", __doc__)
    options.add_argument(
        "--datasets", help="comma-separated: ml-100k, ml-1m, synthetic (default the first two, without data the last)"
    )
    options.add_argument("--rounds", type=int, default=600, help="measured rounds of each arm (default 600)")
    given = options.parse_args(arguments)
    folder = data_folder(given.data_dir)
    names = (given.datasets or ("ml-100k,ml-1m" if folder else "synthetic")).split(",")
    for name in names:
        if name not in CLIENTS:
            raise ConfigError(f"--datasets: unknown data set {name!r}; known: {', '.join(CLIENTS)}")
    if given.rounds < 1:
        raise ConfigError(f"--rounds: must be at least 1, not {given.rounds}")
    done = []
    with one_thread():
        for name in names:
            if name == "synthetic":
                train, attribute = synthetic()
            else:
                dataset = read_dataset(name, folder)
                train, attribute = all_interactions(dataset), dataset.attributes["gender"]
            rounds = min(given.rounds, 100) if given.quick else given.rounds
            done.append(measure(name, train, attribute, CLIENTS[name], rounds))
            print(f"  {name}: fedau2 {done[-1].ratio('fedau2'):.2f}x", file=sys.stderr, flush=True)
    print("A round of MF without and with an adversary, CPU milliseconds, one thread\n")
    print(_ratios(done))
    last_line("adversary", {"results": [entry.figures() for entry in done]})


def _ratios(done: Sequence[Measured]) -> str:
    header = ("data", "clients", "method", "round ms", "ratio", "target")
    rows = []
    for entry in done:
        for name in entry.rounds:
            reached = "" if entry.ratio(name) <= TARGET else " (missed)"
            rows.append(
                (
                    entry.dataset,
                    entry.clients,
                    name,
                    f"{1e3 * entry.seconds(name):.2f}",
                    f"{entry.ratio(name):.2f}",
                    "" if name == PLAIN else f"<= {TARGET:.1f}{reached}",
                )
            )
    return table(header, rows)


if __name__ == "__main__":
    sys.exit(run(main, "adversary"))
