"""The parts of a study file that say what is measured besides the arms, and what must come out."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from fedrec_unlearn.bench.reading import Entry
from fedrec_unlearn.bench.study import InversionBound, InversionPlan, Relation, Study, Target
from fedrec_unlearn.config import SURFACES

ADVERSARIES = ("mlp", "vae", "dsvae/weight", "dsvae/logit", "dsvae/none")
"""Adversaries whose gradients can be attacked; of dsvae, what it draws at its output stands behind the stroke."""

_PLAN_KEYS = ("attribute", "rows", "age_bounds", "adversaries", "trained", "attacks", "defences", "n", "seeds")
_TARGET_KEYS = ("aim", "arm", "best_of", "attribute", "surface", "at_most", "relative_to", "keeps", "inversion")


def read_inversion(entry: Entry | None, quick: Entry | None, study: Study) -> tuple[InversionPlan, ...]:
    """Section `inversion`: a list of maps.

    Args:
        entry: the section, if there is one.
        quick: changes to each of its entries.
        study: with its arms.

    Raises:
        ConfigError: whatever is wrong with it, with file and line.
    """
    if entry is None or entry.empty:
        return ()
    plans = []
    for given in entry.entries():
        plan = _plan(given, InversionPlan("", study.baseline), study)
        if not plan.attribute:
            given.fail("attribute is missing")
        plans.append(_plan(quick, plan, study) if quick is not None else plan)
    return tuple(plans)


def _plan(given: Entry, plan: InversionPlan, study: Study) -> InversionPlan:
    from fedrec_unlearn.attacks.gradient_inversion import ATTACKS, DEFENCES

    found = given.fields(_PLAN_KEYS)
    names = [arm.name for arm in study.arms]
    if "attribute" in found:
        plan = replace(plan, attribute=found["attribute"].one_of(study.attributes))
    if "rows" in found:
        plan = replace(plan, rows=found["rows"].one_of(names))
    if "age_bounds" in found:
        bounds = tuple(bound.integer(least=1) for bound in found["age_bounds"].entries())
        if list(bounds) != sorted(set(bounds)) or not bounds:
            found["age_bounds"].fail("must be ascending numbers")
        plan = replace(plan, age_bounds=bounds)
    lists = {
        "adversaries": ADVERSARIES,
        "trained": names,
        "attacks": tuple(ATTACKS),
        "defences": tuple(defence.name for defence in DEFENCES),
    }
    for key, known in lists.items():
        if key in found:
            plan = replace(plan, **{key: tuple(entry.one_of(known) for entry in found[key].entries())})  # type: ignore[arg-type]
    for name in plan.trained:
        arm = study.arm(name)
        if not arm.config.unlearn.adversarial or plan.attribute not in arm.unlearns:
            found.get("trained", given).fail(f"arm {name} trains no adversary for {plan.attribute}")
    if plan.trained and plan.age_bounds is not None:
        given.fail("trained adversaries know the study's classes; leave out trained or age_bounds")
    if "n" in found:
        plan = replace(plan, n=found["n"].integer(least=2))
    if "seeds" in found:
        plan = replace(plan, seeds=tuple(seed.integer(least=0) for seed in found["seeds"].entries()))
        if not plan.seeds:
            found["seeds"].fail("needs at least one seed")
    return plan


def read_targets(entry: Entry | None, study: Study) -> tuple[Target, ...]:
    """Section `targets`: a list of maps.

    Args:
        entry: the section, if there is one.
        study: with its arms and inversion plans.

    Raises:
        ConfigError: whatever is wrong with it, with file and line.
    """
    return () if entry is None or entry.empty else tuple(_target(given, study) for given in entry.entries())


def _target(given: Entry, study: Study) -> Target:
    found = given.fields(_TARGET_KEYS, required=("aim",))
    aim = found["aim"].text()
    if "inversion" in found:
        others = [key for key in found if key not in ("aim", "inversion")]
        if others:
            found[others[0]].fail("a target of inversion has no other bound; make two targets of it")
        return Target(aim, inversion=_inversion_bound(found["inversion"], study))
    names = [arm.name for arm in study.arms]
    if ("arm" in found) == ("best_of" in found):
        given.fail("names the arm that must reach it, as arm: NAME, or several as best_of: [NAME, NAME]")
    if "arm" in found:
        arms: tuple[str, ...] = (found["arm"].one_of(names),)
    else:
        arms = tuple(name.one_of(names) for name in found["best_of"].entries())
    bounds = [key for key in ("at_most", "relative_to") if key in found]
    if len(bounds) > 1 or not (bounds or "keeps" in found):
        given.fail(
            "needs one bound on what attackers find (at_most or relative_to), a bound on utility (keeps), or both"
        )
    if bool(bounds) != ("attribute" in found):
        given.fail("a bound on what attackers find needs attribute, and attribute needs such a bound")
    surface = found["surface"].one_of(SURFACES) if "surface" in found else "user_embedding"
    relation = _relation(found["relative_to"], surface, names) if "relative_to" in found else None
    attribute = None
    if "attribute" in found:
        attribute = found["attribute"].one_of(study.attributes)
        for name in arms:
            _need_attack(given, study, name, surface, attribute)
        if relation is not None:
            _need_attack(found["relative_to"], study, relation.arm, relation.surface, attribute)
    keeps = {}
    if "keeps" in found:
        keeps = {metric: share.number() for metric, share in found["keeps"].fields(study.utility_keys).items()}
    at_most = found["at_most"].number() if "at_most" in found else None
    return Target(aim, arms, attribute, surface, at_most, relation, keeps)


def _need_attack(at: Entry, study: Study, name: str, surface: str, attribute: str) -> None:
    arm = study.arm(name)
    scope = arm.surfaces.get(surface)
    if scope is None or (scope == "unlearned" and arm.unlearns and attribute not in arm.unlearns):
        at.fail(f"{attribute} is not inferred from {surface} of arm {name}; add that to surfaces")


def _relation(entry: Entry, surface: str, names: list[str]) -> Relation:
    found = entry.fields(("arm", "surface", "plus", "within"), required=("arm",))
    if ("plus" in found) == ("within" in found):
        entry.fail("needs either plus (at most so much further from chance) or within (so close to it)")
    arm = found["arm"].one_of(names)
    seen = found["surface"].one_of(SURFACES) if "surface" in found else surface
    if "plus" in found:
        return Relation(arm, seen, "plus", found["plus"].number())
    return Relation(arm, seen, "within", found["within"].number())


def _inversion_bound(entry: Entry, study: Study) -> InversionBound:
    from fedrec_unlearn.attacks.gradient_inversion import ATTACKS, DEFENCES

    found = entry.fields(
        ("classes", "adversary", "defence", "attacks", "within", "at_least"),
        required=("classes", "adversary", "defence", "attacks"),
    )
    if not study.inversion:
        entry.fail("the study has no section inversion")
    if ("within" in found) == ("at_least" in found):
        entry.fail("needs either within (so close to chance) or at_least (this accuracy)")
    adversary = found["adversary"].one_of(ADVERSARIES)
    defence = found["defence"].one_of([known.name for known in DEFENCES])
    attacks = tuple(attack.one_of(tuple(ATTACKS)) for attack in found["attacks"].entries())
    classes = found["classes"].integer(least=2)
    kind: Literal["within", "at_least"] = "within" if "within" in found else "at_least"
    bound = InversionBound(classes, adversary, defence, attacks, kind, found[kind].number())
    if not any(carries_out(plan, bound) for plan in study.inversion):
        entry.fail("no entry of section inversion carries this out")
    return bound


def carries_out(plan: InversionPlan, bound: InversionBound) -> bool:
    """Whether a plan makes the attacks that a bound is on; the number of classes is known once the data is read."""
    return (
        bound.adversary in plan.adversaries
        and (not plan.defences or bound.defence in plan.defences)
        and (not plan.attacks or set(bound.attacks) <= set(plan.attacks))
    )
