"""What a study is: arms that are trained over the same seeds, attacked in the same ways and held against targets.

An arm is one way of training and unlearning. Its figures are only worth something beside those of another arm with
the same seeds, split and attackers, so a study holds all of them together. `fedrec_unlearn.bench.study_file` reads
studies from files; here is what they are made of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fedrec_unlearn.config import Config
from fedrec_unlearn.config_file import config_to_dict
from fedrec_unlearn.metrics import FULL, sampled_protocol

Scope = Literal["all", "unlearned"]
"""Attributes inferred from a surface: all the study names, or those the arm unlearns (all, where it unlearns none)."""

GROUPS = ("table", "ablation")
"""Groups of arms: the comparison of methods, and the strengths of one method after another."""

METHOD_NAMES = {
    "none": "no unlearning",
    "grl": "gradient reversal",
    "grl_sut": "gradient reversal + SUT",
    "fedau2": "FedAU²",
    "moments": "moment transport",
    "fedau2_moments": "FedAU² + moment transport",
    "u2u": "U2U matching (pooled rows)",
    "d2d": "D2D matching (pooled rows)",
    "leace": "linear erasure",
    "local_dp": "local DP",
}
"""Methods of `fedrec_unlearn.config.UnlearnConfig` as tables name them."""


@dataclass(frozen=True)
class Arm:
    """One way of training and unlearning."""

    name: str
    """Part of its runs' folder names."""
    label: str
    """What tables call it."""
    group: str
    """One of `GROUPS`."""
    config: Config
    """Of its runs, apart from seed and output."""
    surfaces: Mapping[str, Scope]
    """What attackers see, and which attributes they infer from it."""
    source: str | None = None
    """The arm whose trained run of the same seed it starts from; None: trained from scratch."""

    @property
    def unlearns(self) -> tuple[str, ...]:
        """The attributes unlearned."""
        return self.config.unlearn.attributes


@dataclass(frozen=True)
class Relation:
    """A bound on an arm's leak that depends on another arm's."""

    arm: str
    surface: str
    kind: Literal["plus", "within"]
    """plus: at most so much further from chance; within: neither further nor closer by more."""
    margin: float


@dataclass(frozen=True)
class InversionBound:
    """A bound on attacks on the adversary's gradients."""

    classes: int
    """K of the attribute attacked."""
    adversary: str
    """mlp, vae, or dsvae with its head: ``dsvae/weight``."""
    defence: str
    attacks: tuple[str, ...]
    """The worst of them counts."""
    kind: Literal["within", "at_least"]
    """within: so close to chance, in either direction; at_least: this accuracy (a weakness that must be shown)."""
    bound: float


@dataclass(frozen=True)
class Target:
    """What an arm must reach, over seeds."""

    aim: str
    """A sentence for the reader."""
    arms: tuple[str, ...] = ()
    """Arms that may reach it; the best of them counts."""
    attribute: str | None = None
    surface: str = "user_embedding"
    at_most: float | None = None
    """Bound of the worst attacker's balanced accuracy, counted in either direction: chance + distance from chance."""
    relation: Relation | None = None
    keeps: Mapping[str, float] = field(default_factory=dict)
    """Least share of the baseline's utility that is kept, by metric (``ndcg@10/99neg``)."""
    inversion: InversionBound | None = None
    """Instead of all these: a bound on attacks on gradients."""


@dataclass(frozen=True)
class InversionPlan:
    """Attacks on the gradients of adversaries, each a single step of a client, on the rows of a trained run."""

    attribute: str
    rows: str
    """The arm whose private rows the adversaries see."""
    age_bounds: tuple[int, ...] | None = None
    """Age groups to attack in place of the study's."""
    adversaries: tuple[str, ...] = ("mlp", "vae", "dsvae/weight")
    """Untrained adversaries: a kind, for dsvae with its head."""
    trained: tuple[str, ...] = ()
    """Arms whose adversaries are attacked as training left them."""
    attacks: tuple[str, ...] = ()
    """Empty: all."""
    defences: tuple[str, ...] = ()
    """Empty: all."""
    n: int = 210
    """Clients attacked."""
    seeds: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Study:
    """Everything a table of a paper's reproduction needs."""

    name: str
    paper: str
    title: str
    seeds: tuple[int, ...]
    """Training seeds; an arm's run of seed s is attacked with folds and attackers of seed s."""
    base: Config
    baseline: str
    """The arm that utility ratios refer to."""
    utility: tuple[str, ...]
    """Ranking metrics with their list length (``ndcg@10``), each reported under both protocols."""
    arms: tuple[Arm, ...]
    inversion: tuple[InversionPlan, ...] = ()
    targets: tuple[Target, ...] = ()
    quick: bool = False
    """A shortened version: it shows that everything works, and its figures are not those of the study."""

    @property
    def folder_name(self) -> str:
        """Name of its output folder."""
        return f"{self.name}-quick" if self.quick else self.name

    @property
    def utility_keys(self) -> tuple[str, ...]:
        """Full names of the utility metrics, the complete ranking first (`ndcg@10/full`, `ndcg@10/99neg`)."""
        protocols = (FULL, sampled_protocol(self.base.evaluation.sampled_negatives))
        return tuple(f"{metric}/{protocol}" for metric in self.utility for protocol in protocols)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes attackers infer."""
        return self.base.attack.attributes

    def arm(self, name: str) -> Arm:
        """The arm of that name."""
        return next(arm for arm in self.arms if arm.name == name)


@dataclass(frozen=True)
class Task:
    """One arm with one seed: a run to be trained, judged and attacked."""

    arm: Arm
    seed: int
    folder: Path
    """The run folder."""
    source: Path | None
    """The run it starts from."""
    result: Path
    """The file for what was measured."""
    settings: Mapping[str, Any]
    """Everything its result depends on, in plain values."""

    @property
    def origin(self) -> dict[str, Any]:
        """The part of the settings that its run depends on: how it is attacked is not in it."""
        given = (self.settings["config"], self.settings["source"])
        own, source = (c and {name: value for name, value in c.items() if name != "attack"} for c in given)
        return {"config": own, "source": source}

    @property
    def name(self) -> str:
        """``<arm>-<seed>``."""
        return f"{self.arm.name}-{self.seed}"

    @property
    def config(self) -> Config:
        """Of the run."""
        return replace(self.arm.config, seed=self.seed, output=str(self.folder))

    def attacks(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Surfaces and attributes attacked together; the most complete set of attributes last."""
        sets: dict[tuple[str, ...], list[str]] = {}
        for surface, scope in self.arm.surfaces.items():
            everything = self.arm.config.attack.attributes
            wanted = everything if scope == "all" or not self.arm.unlearns else self.arm.unlearns
            sets.setdefault(wanted, []).append(surface)
        return [(tuple(sets[attributes]), attributes) for attributes in sorted(sets, key=len)]


def tasks_of(study: Study, folder: Path) -> list[Task]:
    """All tasks, sources before what starts from them.

    Args:
        study: what to do.
        folder: the study's output folder.
    """
    tasks: dict[tuple[str, int], Task] = {}
    for arm in study.arms:
        for seed in study.seeds:
            source = None if arm.source is None else tasks[arm.source, seed]
            name = f"{arm.name}-{seed}"
            settings = plain(
                {
                    "config": result_options(replace(arm.config, seed=seed)),
                    "surfaces": dict(arm.surfaces),
                    "source": None if source is None else source.settings["config"],
                }
            )
            tasks[arm.name, seed] = Task(
                arm,
                seed,
                folder / "runs" / name,
                None if source is None else source.folder,
                folder / "results" / f"{name}.json",
                settings,
            )
    return list(tasks.values())


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as JSON gives them back, so that they can be compared with what a file holds."""
    read: dict[str, Any] = json.loads(json.dumps(values))
    return read


def result_options(config: Config) -> dict[str, Any]:
    """The options a result may depend on."""
    values = config_to_dict(config)
    del values["output"]
    del values["attack"]["jobs"]
    return values
