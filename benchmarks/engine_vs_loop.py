"""A pass over all clients: the vectorised engine against a lean per-client loop, and against the machine's floor.

    python -m benchmarks.engine_vs_loop --data-dir DIR

Data: every interaction of MovieLens 1M as training data; BPR, one negative a positive, embeddings of 64, hidden
layers 64, 32, 16, the default step sizes, one and five local epochs. Both arms draw the same negatives and take the
same steps; before anything is timed their sums are compared in float64 on clients of all sizes.

Engine: one round with every client, without the server's step. Loop: `benchmarks.lean_loop`, on a systematic sample
of the clients ordered by number of interactions (every k-th from a drawn start, so each client is as likely as any
other and all sizes are present), scaled by clients / sampled clients. Times are CPU seconds on one thread, the arms
called in turn, medians over repeats after a warm-up.

`ratio` is loop / engine; `floor` is what `benchmarks.floors` counts for a pass, at rates measured before and after the
two arms (the larger of arithmetic and memory), and `x floor` how many times that the engine takes. The last table says
where the engine's time goes, by function and, with --operators, by torch operator (the profiler slows small ones).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.floors import measure_rates, pass_cost
from benchmarks.lean_loop import LeanLoop
from benchmarks.machine import cpu_seconds, one_thread
from benchmarks.program import interleaved, last_line, medians, parser, run, table
from benchmarks.stages import timed_stages
from benchmarks.workloads import Federation, all_interactions, read_dataset
from fedrec_unlearn.config import Config, FederationConfig, ModelConfig
from fedrec_unlearn.data.types import UserItems
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.federation.engine import IntArray
from fedrec_unlearn.seeds import Purpose, generator

TARGETS = {"mf": 10.0, "ncf": 5.0, "fm": 5.0, "deepfm": 5.0}
"""Least ratio aimed at."""
SAMPLE = {"mf": 600, "ncf": 200, "fm": 400, "deepfm": 200}
"""Clients the loop is timed on."""
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Measured:
    """One model with one number of local epochs."""

    model: str
    local_epochs: int
    engine: float
    loop: float
    loop_sample: int
    deviation: float
    arithmetic_floor: float
    memory_floor: float
    stages: dict[str, tuple[float, int]]

    @property
    def ratio(self) -> float:
        """Loop / engine."""
        return self.loop / self.engine

    @property
    def floor(self) -> float:
        """Seconds a pass must take."""
        return max(self.arithmetic_floor, self.memory_floor)

    def figures(self) -> dict[str, Any]:
        """For the last line."""
        return {
            "model": self.model,
            "local_epochs": self.local_epochs,
            "engine_seconds": self.engine,
            "loop_seconds": self.loop,
            "loop_sample": self.loop_sample,
            "ratio": self.ratio,
            "target": TARGETS[self.model],
            "deviation": self.deviation,
            "arithmetic_floor_seconds": self.arithmetic_floor,
            "memory_floor_seconds": self.memory_floor,
            "times_floor": self.engine / self.floor,
            "stages": {name: {"seconds": seconds, "calls": n} for name, (seconds, n) in self.stages.items()},
        }


def settings(model: str, local_epochs: int) -> Config:
    """Defaults but for the model and the local epochs, every client in one round; BPR with one negative."""
    return Config(
        model=ModelConfig(name=model),  # type: ignore[arg-type]
        federation=FederationConfig(local_epochs=local_epochs, clients_per_round=0, objective="bpr", num_negatives=1),
    )


def systematic_sample(counts: IntArray, size: int, seed: int) -> IntArray:
    """Clients spread evenly over the order by number of interactions, each equally likely.

    Args:
        counts: interactions of each client.
        size: how many; all where there are no more.
        seed: draws the start and the order of clients with equal counts.
    """
    draws = generator(seed, Purpose.SYNTHETIC)
    shuffled = draws.permutation(len(counts))
    ordered = shuffled[np.argsort(counts[shuffled], kind="stable")]
    size = min(size, len(counts))
    places = np.floor((np.arange(size) + draws.random()) * len(counts) / size).astype(np.int64)
    return np.asarray(draws.permutation(ordered[places]), dtype=np.int64)


def deviation(config: Config, train: UserItems, users: IntArray) -> float:
    """Largest difference of the two arms' sums and private steps, as a share of the largest entry; float64."""
    ours = Federation.of(config, train, torch.float64)
    loop = LeanLoop(ours.work, ours.state, train)
    before = ours.state.private.clone()
    contribution = ours.engine.train_clients(ours.state, users, 1)
    loop.train(users, 1)
    items, dense = loop.contribution()
    pairs = [(items, contribution.items), (loop.private_rows() - before, ours.state.private - before)]
    worst = max(float((one - other).abs().max() / other.abs().max()) for one, other in pairs)
    if dense:
        # biases that cancel in a pair have no gradient but rounding, so all parameters share one scale
        scale = max(float(value.abs().max()) for value in (contribution.items, *contribution.dense.values()))
        differences = [float((dense[name] - value).abs().max()) for name, value in contribution.dense.items()]
        worst = max(worst, max(differences) / scale)
    return worst


def measure(model: str, local_epochs: int, train: UserItems, sample_size: int, repeats: int, seed: int = 0) -> Measured:
    """Compare the two arms and time them."""
    config = settings(model, local_epochs)
    few = systematic_sample(train.counts, 24, seed)
    difference = deviation(config, train, few)
    if not difference < TOLERANCE:
        raise ConfigError(f"{model}, {local_epochs} local epochs: the arms differ by {difference:.1e}; nothing to time")
    ours = Federation.of(config, train)
    start = ours.state.private.clone()
    loop = LeanLoop(ours.work, ours.state, train)
    sample = systematic_sample(train.counts, sample_size, seed)
    rounds = iter(range(1_000_000))

    def prepare() -> None:
        ours.state.private.copy_(start)
        loop.reset(ours.state)

    rates = measure_rates(ours.work.model)
    seconds = medians(
        interleaved(
            {
                "engine": lambda: ours.engine.train_clients(ours.state, ours.users, next(rounds)),
                "loop": lambda: loop.train(sample, next(rounds)),
            },
            repeats,
            prepare=prepare,
        )
    )
    cost = pass_cost(ours.work.model, ours.entries(), len(ours.users), local_epochs)
    arithmetic, memory = rates.best(measure_rates(ours.work.model)).seconds(cost)
    prepare()
    stages = _stages(ours)
    return Measured(
        model,
        local_epochs,
        seconds["engine"],
        seconds["loop"] * len(ours.users) / len(sample),
        len(sample),
        difference,
        arithmetic,
        memory,
        stages,
    )


def _stages(ours: Federation) -> dict[str, tuple[float, int]]:
    with timed_stages() as stages:
        total = cpu_seconds(lambda: ours.engine.train_clients(ours.state, ours.users, 0))
    found = {name: (seconds, stages.calls[name]) for name, seconds in stages.seconds.items()}
    found["the engine's own"] = (total - sum(stages.seconds.values()), 1)
    return dict(sorted(found.items(), key=lambda entry: -entry[1][0]))


def operators(model: str, local_epochs: int, train: UserItems, rows: int = 12) -> list[tuple[str, int, float]]:
    """Torch operators of one pass with the most time of their own: name, calls, seconds under the profiler."""
    from torch.profiler import ProfilerActivity, profile

    ours = Federation.of(settings(model, local_epochs), train)
    ours.engine.train_clients(ours.state, ours.users, 0)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        ours.engine.train_clients(ours.state, ours.users, 1)
    found = sorted(profiled.key_averages(), key=lambda entry: -entry.self_cpu_time_total)
    return [(entry.key, entry.count, entry.self_cpu_time_total * 1e-6) for entry in found[:rows]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    options = parser("engine_vs_loop", __doc__)
    options.add_argument("--dataset", default="ml-1m", help="a data set's name (default ml-1m)")
    options.add_argument("--models", default="mf,ncf,fm,deepfm", help="comma-separated (default all four)")
    options.add_argument("--local-epochs", default="1,5", help="comma-separated (default 1,5)")
    options.add_argument("--repeats", type=int, default=5, help="measured calls of each arm (default 5)")
    options.add_argument("--operators", action="store_true", help="also profile one pass by torch operator")
    given = options.parse_args(arguments)
    models = given.models.split(",")
    for name in models:
        if name not in TARGETS:
            raise ConfigError(f"--models: unknown model {name!r}; known: {', '.join(TARGETS)}")
    repeats = 2 if given.quick else max(1, given.repeats)
    dataset = read_dataset(given.dataset, given.data_dir)
    train = all_interactions(dataset)
    print(
        f"{given.dataset}: {train.n_users:,} clients, {train.n_items:,} items, {len(train.items):,} interactions, "
        "all for training; CPU seconds a pass, one thread\n"
    )
    done = []
    with one_thread():
        for model in models:
            for epochs in map(int, given.local_epochs.split(",")):
                size = SAMPLE[model] // 4 if given.quick else SAMPLE[model]
                done.append(measure(model, epochs, train, size, repeats))
                print(f"  {model}, {epochs} local epochs: {done[-1].ratio:.1f}x", file=sys.stderr, flush=True)
        print(_ratios(done))
        for entry in done:
            print(f"\n{entry.model}, {entry.local_epochs} local epochs: one pass by function\n{_breakdown(entry)}")
            if given.operators:
                found = operators(entry.model, entry.local_epochs, train)
                print(table(("operator", "calls", "s"), [(f"  {key}", n, f"{spent:.3f}") for key, n, spent in found]))
        last_line(
            "engine_vs_loop",
            {
                "dataset": given.dataset,
                "clients": train.n_users,
                "interactions": len(train.items),
                "repeats": repeats,
                "results": [entry.figures() for entry in done],
            },
        )


def _ratios(done: Sequence[Measured]) -> str:
    header = (
        "model",
        "epochs",
        "engine s",
        "loop s",
        "ratio",
        "target",
        "arithmetic s",
        "memory s",
        "x floor",
        "differ",
    )
    rows = []
    for entry in done:
        reached = "" if entry.ratio >= TARGETS[entry.model] else " (missed)"
        rows.append(
            (
                entry.model,
                entry.local_epochs,
                f"{entry.engine:.3f}",
                f"{entry.loop:.2f}",
                f"{entry.ratio:.1f}",
                f">= {TARGETS[entry.model]:.0f}{reached}",
                f"{entry.arithmetic_floor:.3f}",
                f"{entry.memory_floor:.3f}",
                f"{entry.engine / entry.floor:.1f}",
                f"{entry.deviation:.0e}",
            )
        )
    return table(header, rows)


def _breakdown(entry: Measured) -> str:
    total = sum(seconds for seconds, _ in entry.stages.values())
    return table(
        ("function", "calls", "s", "share"),
        [
            (f"  {name}", n, f"{seconds:.3f}", f"{seconds / total:.0%}")
            for name, (seconds, n) in entry.stages.items()
            if seconds >= 0.005 * total
        ],
    )


if __name__ == "__main__":
    sys.exit(run(main, "engine_vs_loop"))
