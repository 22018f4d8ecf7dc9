"""What a study of transports is: catalogues whose costs are measured, and trainings that are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedrec_unlearn.bench.study import plain, result_options
from fedrec_unlearn.config import Config

SMALLER_IS_BETTER = frozenset({"rmse"})

TRANSPORT_NAMES = {
    "plain": "plain (float32)",
    "sparse": "sparse (float32)",
    "secemb": "SecEmb",
    "secagg": "SecFedRec (secagg)",
    "int8": "8 bits",
    "ternary": "ternary, 4 bits",
    "svd": "SVD",
    "colr": "CoLR",
}
"""Transports of `fedrec_unlearn.config.FederationConfig` as tables name them."""


@dataclass(frozen=True)
class Printed:
    """What the paper's table prints of a catalogue, MB of 10^6 bytes."""

    secfedrec: float
    secemb: float
    ratio: float


@dataclass(frozen=True)
class CostTargets:
    """Largest costs of a client in a round that are aimed at, and least ratios."""

    upload: float
    """MB, correction words sent once."""
    upload_whole: float
    """MB, whole keys to each server."""
    ratio: float
    """Upload of dense sharing / ours."""
    ratio_compressed: float
    """The same with one of the two dense shares sent as a seed."""
    keys: float
    """Milliseconds: matching, trees, final correction words."""
    aggregate: float
    """Milliseconds a server takes for a client's update."""
    retrieve: float
    """Milliseconds a server takes for a client's request."""
    work_ratio: float | None = None
    """Server work under the paper's encoding / under ours."""


@dataclass(frozen=True)
class Catalogue:
    """A size of the problem."""

    name: str
    n_items: int
    max_items: int
    """m'."""
    printed: Printed | None
    targets: CostTargets | None


@dataclass(frozen=True)
class CostPlan:
    """How costs are measured."""

    catalogues: tuple[Catalogue, ...]
    width: int = 64
    """Numbers of an item row (d)."""
    ring_bits: Literal[32, 64] = 32
    """b."""
    dense: int = 1
    """Dense numbers of an update; 1 is the client's weight, all that matrix factorisation sends beside rows."""
    fraction_bits: int = 20
    encodings: tuple[str, ...] = ("binned", "paper")
    batches: tuple[int, ...] = (8, 32, 64)
    """Clients a server serves together, under the binned encoding."""
    repeats: int = 5
    client_repeats: int = 40
    paper_clients: int = 8
    """The same under the paper's encoding, which takes seconds a client."""
    paper_repeats: int = 2
    round_catalogue: str | None = None
    """The catalogue of a whole round, by phases, in one process and over HTTPS; None: none."""
    round_clients: int = 100
    round_https: bool = True


@dataclass(frozen=True)
class TransportArm:
    """One transport, or SecEmb with one m'."""

    name: str
    label: str
    config: Config
    """Of its runs, apart from seed and output."""
    max_items: int
    """m'; 0: no limit."""


@dataclass(frozen=True)
class Comparison:
    """Trainings that differ in the transport alone."""

    name: str
    title: str
    metric: str
    """A name of the run's own metrics: ``ndcg@10/full`` or ``rmse``."""
    arms: tuple[TransportArm, ...]

    @property
    def sweeps(self) -> bool:
        """Whether it compares sizes of m'."""
        return sum(arm.config.federation.transport == "secemb" for arm in self.arms) > 1


@dataclass(frozen=True)
class TransportStudy:
    """Everything a table of transports needs."""

    name: str
    paper: str
    title: str
    seeds: tuple[int, ...]
    """Training seeds."""
    base: Config
    costs: CostPlan
    comparisons: tuple[Comparison, ...]
    quick: bool = False

    @property
    def folder_name(self) -> str:
        """Name of its output folder."""
        return f"{self.name}-quick" if self.quick else self.name

    @property
    def attributes(self) -> tuple[str, ...]:
        """User attributes the study needs: none."""
        return ()


@dataclass(frozen=True)
class TrainingTask:
    """One arm of a comparison with one seed: a run to be trained and its figures read."""

    comparison: Comparison
    arm: TransportArm
    seed: int
    folder: Path
    """The run folder."""
    result: Path
    """The file for what was measured."""
    settings: Mapping[str, Any]
    """Everything its result depends on, in plain values."""
    source: None = None
    """Every run is trained from scratch."""

    @property
    def name(self) -> str:
        """``<comparison>-<arm>-<seed>``."""
        return f"{self.comparison.name}-{self.arm.name}-{self.seed}"

    @property
    def origin(self) -> Mapping[str, Any]:
        """What the run depends on: everything."""
        return self.settings

    @property
    def config(self) -> Config:
        """Of the run."""
        return replace(self.arm.config, seed=self.seed, output=str(self.folder))


def training_tasks(study: TransportStudy, folder: Path) -> list[TrainingTask]:
    """All runs, comparison by comparison and seed by seed.

    Args:
        study: what to do.
        folder: the study's output folder.
    """
    tasks = []
    for comparison in study.comparisons:
        for seed in study.seeds:
            for arm in comparison.arms:
                name = f"{comparison.name}-{arm.name}-{seed}"
                settings = plain({"config": result_options(replace(arm.config, seed=seed))})
                paths = folder / "runs" / name, folder / "results" / f"{name}.json"
                tasks.append(TrainingTask(comparison, arm, seed, *paths, settings))
    return tasks
