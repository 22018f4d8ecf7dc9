"""Studies of attacks from files: strict YAML, checked as a whole before any work starts.

A study file names its arms in a line each and may spell out a grid of methods and strengths in one::

    paper: fedau2
    title: FedAU² on MovieLens 100K
    seeds: [2020, 2021, 2022, 2023, 2024]
    base:                       # a configuration, as in configs/*.yaml
      data: {name: ml-100k}
      attack: {attributes: [gender, age]}
    utility: [ndcg@10]
    surfaces:
      table: {user_embedding: all, trajectory: unlearned}
      ablation: {user_embedding: unlearned}
    arms:
      - {name: none}
      - {method: fedau2, unlearns: [gender], epsilon: 0.1}
      - {method: moments, unlearns: [gender], from: none}
    ablation: {methods: [grl, fedau2], unlearns: [gender], epsilons: [0.01, 0.1, 1.0]}
    targets:
      - {aim: gender from FedAU², arm: fedau2-gender, attribute: gender, at_most: 0.55, keeps: {ndcg@10/99neg: 0.97}}
    quick: {seeds: [2020], arms: [none, fedau2-gender], options: {federation.rounds: 60}}
"""

from __future__ import annotations

from dataclasses import replace

from fedrec_unlearn.bench.arm_file import Ground, read_arms, read_grid, read_surfaces
from fedrec_unlearn.bench.reading import Entry, Options, read_seeds
from fedrec_unlearn.bench.study import GROUPS, Study, Target
from fedrec_unlearn.bench.target_file import carries_out, read_inversion, read_targets
from fedrec_unlearn.config import Config

_KEYS = (
    "kind", "paper", "title", "seeds", "base", "baseline", "utility", "surfaces", "arms", "ablation", "inversion",
    "targets", "quick",
)  # fmt: skip


def read_study(root: Entry, *, quick: bool = False) -> Study:
    """Read and check a study of attacks.

    Args:
        root: of a YAML file as above.
        quick: with the changes its section `quick` makes.

    Raises:
        ConfigError: whatever is wrong with it, with file and line.
    """
    found = root.fields(_KEYS, required=("paper", "title", "seeds", "base", "surfaces", "arms"))
    shortened = found["quick"].fields(("seeds", "arms", "options", "inversion")) if "quick" in found else {}
    if quick and not shortened:
        root.fail("has no section quick, so there is no short version of it")
    below = Options.of(found["base"])
    below.config()  # an error of the whole study is told under quick too
    above = Options.of(shortened["options"]) if quick and "options" in shortened else Options({})
    base = above.over(below).config()
    if not base.attack.attributes:
        found["base"].fail("attack.attributes must name the attributes the study is about, for example [gender]")
    if base.federation.objective == "mse":
        found["base"].fail("federation.objective: a study compares ranking metrics, which mse does not have")
    groups = found["surfaces"].fields(GROUPS, required=("table",))
    ground = Ground(below, above, {group: read_surfaces(entry) for group, entry in groups.items()})
    arms = read_arms(found["arms"], ground)
    if "ablation" in found and not found["ablation"].empty:
        arms += read_grid(found["ablation"], ground, {arm.name for arm in arms})
    names = [arm.name for arm in arms]
    baseline = found["baseline"].one_of(names) if "baseline" in found else names[0]
    study = Study(
        name=root.file.stem,
        paper=found["paper"].text(),
        title=found["title"].text(),
        seeds=read_seeds(found["seeds"]),
        base=base,
        baseline=baseline,
        utility=_utility(found.get("utility"), base),
        arms=tuple(arms),
    )
    plans = found.get("inversion")
    study = replace(study, inversion=read_inversion(plans, None, study))
    study = replace(study, targets=read_targets(found.get("targets"), study))
    if quick:
        study = replace(study, inversion=read_inversion(plans, shortened.get("inversion"), study))
    kept = _quick_arms(shortened["arms"], study) if "arms" in shortened else set(names)
    seeds = read_seeds(shortened["seeds"]) if "seeds" in shortened else study.seeds
    return _shortened(study, kept, seeds) if quick else study


def _utility(entry: Entry | None, base: Config) -> tuple[str, ...]:
    if entry is None:
        return (base.evaluation.ranking_metric,)
    offered = [f"{metric}@{k}" for metric in base.evaluation.metrics for k in base.evaluation.topk]
    metrics = tuple(metric.one_of(offered) for metric in entry.entries())
    if not metrics:
        entry.fail("needs at least one metric")
    return metrics


def _quick_arms(entry: Entry, study: Study) -> set[str]:
    names = [arm.name for arm in study.arms]
    kept = {given.one_of(names) for given in entry.entries()}
    if study.baseline not in kept:
        entry.fail(f"must hold {study.baseline}, which the others are compared with")
    for name in sorted(kept):
        source = study.arm(name).source
        if source is not None and source not in kept:
            entry.fail(f"{name} starts from {source}, which is not among them")
    return kept


def _shortened(study: Study, kept: set[str], seeds: tuple[int, ...]) -> Study:
    def possible(target: Target) -> bool:
        if target.inversion is not None:
            return any(carries_out(plan, target.inversion) for plan in study.inversion)
        needed = set(target.arms) | ({target.relation.arm} if target.relation else set())
        return needed <= kept

    return replace(
        study,
        seeds=seeds,
        arms=tuple(arm for arm in study.arms if arm.name in kept),
        inversion=tuple(
            replace(plan, trained=tuple(name for name in plan.trained if name in kept))
            for plan in study.inversion
            if plan.rows in kept
        ),
        targets=tuple(target for target in study.targets if possible(target)),
        quick=True,
    )
