"""Whether a study reached what it set out to reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrec_unlearn.bench.study import InversionBound, Study, Target

_SLACK = 1e-9
"""Bounds are decimal numbers and the means they are compared with are not."""


@dataclass(frozen=True)
class _Attempt:
    """How one arm did."""

    arm: str
    leak: float | None
    """What the bound is on: chance + distance from chance, or for a relation the distance."""
    bound: float | None
    leak_met: bool
    kept: Mapping[str, float]
    kept_met: bool

    @property
    def met(self) -> bool:
        return self.leak_met and self.kept_met


def judge(
    study: Study, summary: Sequence[Mapping[str, Any]], inversion: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """`targets` of bench.json.

    Args:
        study: with its targets.
        summary: from `summary.summarise`.
        inversion: results of its attacks on gradients.

    Returns:
        For each target `aim`, `must` and `measured` in words, `met`, and `arm`: the one that did best (null for
        attacks on gradients).
    """
    return [
        _judge_inversion(target, target.inversion, inversion) if target.inversion else _judge(study, target, summary)
        for target in study.targets
    ]


def _judge(study: Study, target: Target, summary: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    attempts = [_attempt(target, arm, summary) for arm in target.arms]
    # among several arms: one that meets everything, else one that keeps enough; and of these the least readable
    best = min(attempts, key=lambda a: (not a.met, not a.kept_met, a.leak if a.leak is not None else 0.0))
    must, measured = [], []
    if target.attribute is not None:
        surface = "" if target.surface == "user_embedding" else f" from {target.surface}"
        must.append(f"{target.attribute}{surface}: {_leak_bound(target, best)}")
        measured.append(f"{best.leak:.3f}")
    for metric, share in target.keeps.items():
        must.append(f"{share:g}× {metric}")
        measured.append(f"{best.kept[metric]:.3f}× {metric}")
    return {
        "aim": target.aim,
        "must": " at ".join(must) if target.attribute else ", ".join(must),
        "measured": f"{' at '.join(measured)} ({study.arm(best.arm).label})",
        "met": best.met,
        "arm": best.arm,
    }


def _leak_bound(target: Target, best: _Attempt) -> str:
    if target.relation is None:
        return f"at most {target.at_most:g}"
    relation = target.relation
    of = relation.arm + ("" if relation.surface == target.surface else f" from {relation.surface}")
    words = "at most {0:.3f} + {1:g} from chance" if relation.kind == "plus" else "{0:.3f} ± {1:g} from chance"
    return f"{words.format(best.bound, relation.margin)} (that of {of})"


def _attempt(target: Target, arm: str, summary: Sequence[Mapping[str, Any]]) -> _Attempt:
    utility = next(entry["utility"] for entry in summary if entry["arm"] == arm)
    kept = {metric: utility[metric]["ratio"] for metric in target.keeps}
    kept_met = all(kept[metric] >= share - _SLACK for metric, share in target.keeps.items())
    if target.attribute is None:
        return _Attempt(arm, None, None, True, kept, kept_met)
    entry = _entry(summary, arm, target.attribute, target.surface)
    distance = float(entry["worst"]["distance"])
    if target.relation is None:
        assert target.at_most is not None
        leak = float(entry["chance"]) + distance
        return _Attempt(arm, leak, target.at_most, leak <= target.at_most + _SLACK, kept, kept_met)
    relation = target.relation
    other = float(_entry(summary, relation.arm, target.attribute, relation.surface)["worst"]["distance"])
    excess = distance - other
    size = excess if relation.kind == "plus" else abs(excess)
    return _Attempt(arm, distance, other, size <= relation.margin + _SLACK, kept, kept_met)


def _entry(summary: Sequence[Mapping[str, Any]], arm: str, attribute: str, surface: str) -> Mapping[str, Any]:
    return next(
        entry for entry in summary if (entry["arm"], entry["attribute"], entry["surface"]) == (arm, attribute, surface)
    )


def _judge_inversion(target: Target, bound: InversionBound, inversion: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    kind, _, head = bound.adversary.partition("/")
    found = [
        entry
        for entry in inversion
        if (entry["adversary"], entry["defence"], entry["classes"]) == (kind, bound.defence, bound.classes)
        and (not head or entry["head"] == head)
        and entry["attack"] in bound.attacks
    ]
    under = "" if bound.defence == "none" else f" under {bound.defence}"
    if bound.kind == "within":
        must = f"{', '.join(bound.attacks)}{under}: within {bound.bound:g} of chance, {1 / bound.classes:.3f}"
    else:
        must = f"{', '.join(bound.attacks)}{under}: {bound.bound:g} or more"
    missing = sorted(set(bound.attacks) - {entry["attack"] for entry in found})
    if missing:
        measured, met = f"{', '.join(missing)} not carried out", False
    elif bound.kind == "within":
        worst = max(found, key=lambda entry: abs(entry["accuracy"] - entry["chance"]))
        measured = f"{worst['accuracy']:.3f} ({worst['attack']}, {worst['stage']}, n = {worst['n']})"
        met = abs(worst["accuracy"] - worst["chance"]) <= bound.bound + _SLACK
    else:
        least = min(found, key=lambda entry: float(entry["accuracy"]))
        measured = f"{least['accuracy']:.3f} ({least['attack']}, {least['stage']}, n = {least['n']})"
        met = least["accuracy"] >= bound.bound - _SLACK
    return {"aim": target.aim, "must": must, "measured": measured, "met": met, "arm": None}
