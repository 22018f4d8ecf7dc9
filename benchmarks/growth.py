"""How time and memory of a pass grow with users, items and embedding length; the peak of a run on MovieLens 1M.

    python -m benchmarks.growth --data-dir DIR

Synthetic interactions: each user's number of items is lognormal (median 67, mean 110, as in MovieLens 1M, at most half
the catalogue), the items uniform; drawn from a seed. One size grows while the others stay at the base point. Each
point runs in a fresh process: one round with all clients, CPU seconds on one thread, median after a warm-up, and the
peak resident memory of that process beside what it held before the data was made.

`exponent` is the slope of log time over log size from the first to the last point of a row: 1 is linear. Users and
embedding length may reach 1; items should stay well below it, since clients touch only rows of their own. The last
part trains a few rounds with `fedrec train` and compares the run's peak memory with the target.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiments import train
from benchmarks.machine import one_thread, peak_memory_mib
from benchmarks.program import interleaved, last_line, medians, parser, run, table
from fedrec_unlearn.config import Config, FederationConfig, ModelConfig
from fedrec_unlearn.data.types import UserItems
from fedrec_unlearn.errors import ConfigError, RunError
from fedrec_unlearn.seeds import Purpose, generator

PEAK_TARGET_MIB = 2048
"""Largest peak of training on MovieLens 1M aimed at."""
LOG_MEAN, LOG_STD = 4.2, 1.0
"""Of the number of items per user: median e^4.2 = 67, mean e^4.7 = 110."""


@dataclass(frozen=True)
class Point:
    """A size to measure."""

    model: str = "mf"
    users: int = 4000
    items: int = 4000
    embedding_dim: int = 64
    clients_per_round: int = 0
    repeats: int = 3


GROWN = {
    "users": (1000, 4000, 16000, 64000),
    "items": (1000, 4000, 16000, 64000),
    "embedding_dim": (16, 64, 256),
}
"""Sizes of each series."""
QUICK = {"users": (1000, 4000), "items": (1000, 4000), "embedding_dim": (16, 64)}


def synthetic_items(users: int, items: int, seed: int) -> UserItems:
    """Interactions with a lognormal number of items per user, at least 5 and at most half the catalogue.

    Pairs are drawn with repetition and repeated ones dropped, so the numbers are slightly below what was drawn.
    """
    draws = generator(seed, Purpose.SYNTHETIC)
    counts = np.exp(LOG_MEAN + LOG_STD * draws.standard_normal(users))
    counts = np.clip(counts, 5, items // 2).astype(np.int64)
    pairs = np.unique(np.repeat(np.arange(users), counts) * items + draws.integers(items, size=int(counts.sum())))
    return UserItems.from_pairs(pairs // items, pairs % items, users, items)


def measure(point: Point) -> dict[str, Any]:
    """Build the point and time its passes; to be called in a process of its own."""
    # torch comes with it, and the parent must stay small: a child's peak memory starts at what its parent held
    from benchmarks.workloads import Federation

    idle = peak_memory_mib()
    config = Config(
        model=ModelConfig(name=point.model, embedding_dim=point.embedding_dim),  # type: ignore[arg-type]
        federation=FederationConfig(clients_per_round=point.clients_per_round),
    )
    items = synthetic_items(point.users, point.items, seed=0)
    ours = Federation.of(config, items)
    rounds = iter(range(1_000_000))
    with one_thread():
        arm = {"pass": lambda: ours.engine.train_clients(ours.state, ours.users, next(rounds))}
        seconds = medians(interleaved(arm, point.repeats))["pass"]
    return {
        **dataclasses.asdict(point),
        "interactions": len(items.items),
        "seconds": seconds,
        "microseconds_per_interaction": seconds / len(items.items) * 1e6,
        "peak_mib": peak_memory_mib(),
        "idle_mib": idle,
    }


def measure_apart(point: Point) -> dict[str, Any]:
    """`measure` in a fresh process.

    Raises:
        RunError: it failed.
    """
    command = [sys.executable, "-m", "benchmarks.growth", "--point", json.dumps(dataclasses.asdict(point))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RunError(f"{point}: status {ended.returncode}: {ended.stderr.strip()[-3000:]}")
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of log time over log size between the ends."""
    return math.log(seconds[-1] / seconds[0]) / math.log(sizes[-1] / sizes[0])


def series(model: str, grown: str, sizes: Sequence[int], repeats: int) -> dict[str, Any]:
    """Measure one size's growth, everything else at the base point."""
    base = Point(model=model, repeats=repeats)
    points = []
    for size in sizes:
        points.append(measure_apart(dataclasses.replace(base, **{grown: size})))  # type: ignore[arg-type]
        print(f"  {model}, {grown} {size:,}: {points[-1]['seconds']:.3f} s", file=sys.stderr, flush=True)
    # the number of interactions is clipped by small catalogues, so growth in items is read per interaction
    unit = "microseconds_per_interaction" if grown == "items" else "seconds"
    return {
        "model": model,
        "grown": grown,
        "exponent": exponent(sizes, [point[unit] for point in points]),
        "points": points,
    }


def peak_of_training(data_dir: Path | None, rounds: int) -> dict[str, Any]:
    """Peak memory of ``fedrec train configs/ml-1m-mf.yaml`` cut to a few rounds, also with all clients in each."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="growth-") as folder:
        for name, options in (
            ("clients_per_round as configured", {"federation.rounds": rounds}),
            ("all clients in a round", {"federation.rounds": 2, "federation.clients_per_round": 0}),
        ):
            finished = train("ml-1m-mf", Path(folder) / name.replace(" ", "-"), data_dir, options)
            found[name] = {
                "peak_mib": finished.run["peak_memory_mib"],
                "round_seconds": finished.round_seconds,
                "cpu_seconds": finished.cpu_seconds,
            }
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    options = parser("growth", __doc__)
    options.add_argument("--point", help="measure one point, given as JSON, and print its figures (used internally)")
    options.add_argument("--models", default="mf,ncf", help="comma-separated (default mf,ncf)")
    options.add_argument("--repeats", type=int, default=3, help="measured passes of each point (default 3)")
    options.add_argument("--without-training", action="store_true", help="leave out the run on MovieLens 1M")
    given = options.parse_args(arguments)
    if given.point:
        print(json.dumps(measure(Point(**json.loads(given.point)))))
        return
    for name in given.models.split(","):
        if name not in ("mf", "ncf", "fm", "deepfm"):
            raise ConfigError(f"--models: unknown model {name!r}; known: mf, ncf, fm, deepfm")
    repeats = 1 if given.quick else max(1, given.repeats)
    training = None
    if not given.without_training:
        training = peak_of_training(given.data_dir, 24 if given.quick else 48)
    found = [
        series(model, grown, sizes, repeats)
        for model in given.models.split(",")
        for grown, sizes in (QUICK if given.quick else GROWN).items()
    ]
    base = Point()
    print(
        f"One pass on synthetic data, CPU seconds, one thread; base point {base.users:,} users, {base.items:,} items, "
        f"embeddings of {base.embedding_dim}\n"
    )
    print(_table(found))
    if training:
        print("\nfedrec train configs/ml-1m-mf.yaml, peak resident memory of the process\n")
        header = ("", "peak MiB", "target", "round s")
        rows = [
            (
                name,
                f"{entry['peak_mib']:.0f}",
                f"<= {PEAK_TARGET_MIB}{'' if entry['peak_mib'] <= PEAK_TARGET_MIB else ' (missed)'}",
                f"{entry['round_seconds']:.3f}",
            )
            for name, entry in training.items()
        ]
        print(table(header, rows))
    last_line("growth", {"series": found, "training": training, "peak_target_mib": PEAK_TARGET_MIB})


def _table(found: Sequence[dict[str, Any]]) -> str:
    header = ("grown", "model", "size", "interactions", "s", "us an interaction", "peak MiB", "idle MiB", "exponent")
    rows = []
    for entry in found:
        for place, point in enumerate(entry["points"]):
            last = place == len(entry["points"]) - 1
            rows.append(
                (
                    entry["grown"],
                    entry["model"],
                    f"{point[entry['grown']]:,}",
                    f"{point['interactions']:,}",
                    f"{point['seconds']:.3f}",
                    f"{point['microseconds_per_interaction']:.3f}",
                    f"{point['peak_mib']:.0f}",
                    f"{point['idle_mib']:.0f}",
                    f"{entry['exponent']:.2f}" if last else "",
                )
            )
    return table(header, rows)


if __name__ == "__main__":
    sys.exit(run(main, "growth"))
