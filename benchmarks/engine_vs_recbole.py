"""A pass of the federation against an epoch of RecBole's own training, on the same number of interactions.

    python -m benchmarks.engine_vs_recbole --data-dir DIR

Data: MovieLens 100K and 1M, split per user at random 8:1:1 on both sides; embeddings of 64. RecBole trains with one
negative a positive, BPR with its own loss and NeuMF, FM and DeepFM pointwise, as they come; the federation with the
objective and the negatives of its configuration, which the table names (more negatives are more work). Three arms in
one process, called in turn, CPU seconds on one thread, medians after a warm-up, no evaluation in any of them:

* `pass`: every client once under the settings that give the quality of `benchmarks.quality` (clients_per_round of the
  configuration, so many rounds, each with the server's Adam step);
* `one round`: every client in a single round and one server step;
* `recbole`: one epoch of stock RecBole (batches of 2048, Adam).

`pass / recbole` is the ratio to read; the targets are for MF against BPR.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.atomic_files import movielens_pairs, write_atomic
from benchmarks.experiments import CONFIGS
from benchmarks.machine import one_thread
from benchmarks.program import data_folder, interleaved, last_line, medians, parser, run, table
from benchmarks.recbole_baseline import open_run, run_epoch
from benchmarks.workloads import Federation, read_dataset
from fedrec_unlearn.config import Config
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.data import make_split
from fedrec_unlearn.data.types import UserItems
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.federation.cohort import Cohorts
from fedrec_unlearn.federation.state import apply_contribution

RIVALS = {"mf": "BPR", "ncf": "NeuMF", "fm": "FM", "deepfm": "DeepFM"}
"""RecBole's name of each model."""
TARGETS = {("ml-100k", "mf"): 0.5, ("ml-1m", "mf"): 0.2}
"""Largest pass / recbole aimed at."""


@dataclass(frozen=True)
class Compared:
    """One model on one data set."""

    dataset: str
    model: str
    clients_per_round: int
    rounds: int
    objective: str
    negatives: int
    seconds: dict[str, float]
    n_train: tuple[int, int]
    """Training interactions of ours and of RecBole's."""

    @property
    def ratio(self) -> float:
        """Pass / recbole."""
        return self.seconds["pass"] / self.seconds["recbole"]

    def figures(self) -> dict[str, Any]:
        """For the last line."""
        return {
            "dataset": self.dataset,
            "model": self.model,
            "rival": RIVALS[self.model],
            "clients_per_round": self.clients_per_round,
            "rounds_per_pass": self.rounds,
            "objective": self.objective,
            "num_negatives": self.negatives,
            "pass_seconds": self.seconds["pass"],
            "one_round_seconds": self.seconds["one round"],
            "recbole_seconds": self.seconds["recbole"],
            "ratio": self.ratio,
            "ratio_one_round": self.seconds["one round"] / self.seconds["recbole"],
            "target": TARGETS.get((self.dataset, self.model)),
            "n_train": self.n_train[0],
            "n_train_recbole": self.n_train[1],
        }


def quality_settings(dataset: str, model: str) -> Config:
    """The configuration whose quality `benchmarks.quality` or `benchmarks.datasets` shows; else that of MF there."""
    own, of_mf = CONFIGS / f"{dataset}-{model}.yaml", CONFIGS / f"{dataset}-mf.yaml"
    if own.is_file():
        return load_config(own)
    return load_config(of_mf, {"model.name": model})


def one_pass(config: Config, train: UserItems) -> tuple[Callable[[], None], int]:
    """A function that trains every client once, server steps included; and the rounds it takes."""
    ours = Federation.of(config, train)
    cohorts = Cohorts(ours.users, config.federation, config.seed)

    def trained() -> None:
        server = ours.state.server
        for _ in range(cohorts.rounds_per_pass):
            number = server.rounds_done
            contribution = ours.engine.train_clients(ours.state, cohorts.of(number), number)
            apply_contribution(server, contribution, config.federation)

    return trained, cohorts.rounds_per_pass


def compare(dataset: str, model: str, data_dir: Path | None, repeats: int) -> Compared:
    """Time the three arms."""
    config = quality_settings(dataset, model)
    ratio_split = dataclasses.replace(config.split, method="ratio", ratios=(0.8, 0.1, 0.1), order="random")
    train = make_split(read_dataset(dataset, data_dir), ratio_split).train
    whole = dataclasses.replace(config, federation=dataclasses.replace(config.federation, clients_per_round=0))
    many_rounds, rounds = one_pass(config, train)
    single_round, _ = one_pass(whole, train)
    with tempfile.TemporaryDirectory(prefix="engine-vs-recbole-") as folder:
        path = write_atomic(Path(folder), dataset, movielens_pairs(dataset, data_folder(data_dir)))
        rival = open_run(RIVALS[model], path, dataset, path / "checkpoints")
        arms = {"pass": many_rounds, "one round": single_round, "recbole": lambda: run_epoch(rival)}
        seconds = medians(interleaved(arms, repeats))
        n_rival = rival.sizes()["n_train"]
    options = config.federation
    size, objective, negatives = options.clients_per_round, options.objective, options.num_negatives
    return Compared(dataset, model, size, rounds, objective, negatives, seconds, (len(train.items), n_rival))


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    options = parser("engine_vs_recbole", __doc__)
    options.add_argument("--datasets", default="ml-100k,ml-1m", help="comma-separated (default ml-100k,ml-1m)")
    options.add_argument("--models", default="mf,ncf,fm,deepfm", help="comma-separated (default all four)")
    options.add_argument("--repeats", type=int, default=3, help="measured calls of each arm (default 3)")
    given = options.parse_args(arguments)
    models = given.models.split(",")
    for name in models:
        if name not in RIVALS:
            raise ConfigError(f"--models: unknown model {name!r}; known: {', '.join(RIVALS)}")
    datasets = ["ml-100k"] if given.quick else given.datasets.split(",")
    repeats = 1 if given.quick else max(1, given.repeats)
    for dataset in datasets:
        read_dataset(dataset, given.data_dir)  # what is missing is told before anything is timed
    done = []
    with one_thread():
        for dataset in datasets:
            for model in models:
                done.append(compare(dataset, model, given.data_dir, repeats))
                print(f"  {dataset}, {model}: {done[-1].ratio:.2f}", file=sys.stderr, flush=True)
        print("CPU seconds of a pass over all training interactions, one thread\n")
        print(_table(done))
        last_line("engine_vs_recbole", {"repeats": repeats, "results": [entry.figures() for entry in done]})


def _table(done: Sequence[Compared]) -> str:
    header = (
        "data",
        "model",
        "rival",
        "objective",
        "rounds",
        "pass s",
        "one round s",
        "recbole s",
        "pass / recbole",
        "target",
    )
    rows = []
    for entry in done:
        target = TARGETS.get((entry.dataset, entry.model))
        missed = "" if target is None or entry.ratio <= target else " (missed)"
        rows.append(
            (
                entry.dataset,
                entry.model,
                RIVALS[entry.model],
                f"{entry.objective}, {entry.negatives} neg",
                entry.rounds,
                f"{entry.seconds['pass']:.3f}",
                f"{entry.seconds['one round']:.3f}",
                f"{entry.seconds['recbole']:.3f}",
                f"{entry.ratio:.2f}",
                "" if target is None else f"<= {target:g}{missed}",
            )
        )
    return table(header, rows)


if __name__ == "__main__":
    sys.exit(run(main, "engine_vs_recbole"))
