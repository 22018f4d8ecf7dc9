from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedrec_unlearn.bench.study import InversionBound, Relation, Study, Target
from fedrec_unlearn.bench.targets import judge


def entry(arm: str, mean: float, ratio: float = 1.0, surface: str = "user_embedding") -> dict[str, Any]:
    return {
        "arm": arm,
        "attribute": "gender",
        "surface": surface,
        "chance": 0.5,
        "worst": {"mean": mean, "distance": abs(mean - 0.5)},
        "utility": {"ndcg@10/30neg": {"ratio": ratio}},
    }


def judged(study: Study, target: Target, *summary: dict[str, Any]) -> dict[str, Any]:
    (result,) = judge(replace(study, targets=(target,)), summary, [])
    return result


BOUND = Target("hidden", ("fedau2-gender",), "gender", at_most=0.55, keeps={"ndcg@10/30neg": 0.97})


@pytest.mark.parametrize(
    ("mean", "ratio", "met"),
    [(0.55, 0.97, True), (0.551, 1.0, False), (0.45, 0.97, True), (0.449, 1.0, False), (0.5, 0.969, False)],
)
def test_a_bound_holds_in_both_directions_and_needs_utility(study: Study, mean: float, ratio: float, met: bool) -> None:
    result = judged(study, BOUND, entry("fedau2-gender", mean, ratio))
    assert result["met"] is met
    assert result["must"] == "gender: at most 0.55 at 0.97× ndcg@10/30neg"


def test_of_several_arms_the_one_that_meets_everything_counts(study: Study) -> None:
    target = replace(BOUND, arms=("fedau2-gender", "leace-gender"))
    summary = entry("fedau2-gender", 0.5, 0.9), entry("leace-gender", 0.54, 0.99)
    result = judged(study, target, *summary)
    assert (result["met"], result["arm"]) == (True, "leace-gender")
    assert result["measured"] == "0.540 at 0.990× ndcg@10/30neg (linear erasure)"


def test_where_none_meets_it_the_one_that_keeps_enough_is_shown(study: Study) -> None:
    target = replace(BOUND, arms=("fedau2-gender", "leace-gender"))
    result = judged(study, target, entry("fedau2-gender", 0.5, 0.9), entry("leace-gender", 0.7, 0.99))
    assert (result["met"], result["arm"]) == (False, "leace-gender")


@pytest.mark.parametrize(
    ("kind", "mean", "met"),
    [("plus", 0.72, True), ("plus", 0.6, True), ("plus", 0.73, False), ("within", 0.68, True), ("within", 0.6, False),
     ("within", 0.28, True)],
)  # fmt: skip
def test_relations_compare_distances_from_chance(study: Study, kind: Any, mean: float, met: bool) -> None:
    target = Target("left alone", ("fedau2-gender",), "gender", relation=Relation("none", "user_embedding", kind, 0.02))
    assert judged(study, target, entry("fedau2-gender", mean), entry("none", 0.7))["met"] is met


def test_a_relation_may_be_to_another_surface(study: Study) -> None:
    relation = Relation("fedau2-gender", "user_embedding", "plus", 0.02)
    target = Target("no more than the last", ("fedau2-gender",), "gender", "trajectory", relation=relation)
    summary = entry("fedau2-gender", 0.85, surface="trajectory"), entry("fedau2-gender", 0.54)
    result = judged(study, target, *summary)
    assert not result["met"]
    assert result["must"] == (
        "gender from trajectory: at most 0.040 + 0.02 from chance (that of fedau2-gender from user_embedding)"
    )


def inverted(attack: str, accuracy: float, **changes: Any) -> dict[str, Any]:
    found = {
        "adversary": "dsvae", "head": "weight", "stage": "initial", "defence": "none", "attack": attack,
        "n": 210, "classes": 2, "chance": 0.5, "accuracy": accuracy,
    }  # fmt: skip
    return found | changes


@pytest.mark.parametrize(
    ("kind", "accuracies", "met", "shown"),
    [
        ("within", {"dlg": 0.55, "gram": 0.46}, True, "0.550 (dlg"),
        ("within", {"dlg": 0.52, "gram": 0.40}, False, "0.400 (gram"),
        ("at_least", {"dlg": 0.99, "gram": 0.95}, True, "0.950 (gram"),
        ("at_least", {"dlg": 0.99, "gram": 0.94}, False, "0.940 (gram"),
    ],
)
def test_attacks_on_gradients_are_judged_by_the_worst(
    study: Study, kind: Any, accuracies: dict[str, float], met: bool, shown: str
) -> None:
    bound = InversionBound(2, "dsvae/weight", "none", ("dlg", "gram"), kind, 0.05 if kind == "within" else 0.95)
    study = replace(study, targets=(Target("gradients", inversion=bound),))
    others = [
        inverted("dlg", 0.0, classes=7),
        inverted("dlg", 0.0, defence="pruning"),
        inverted("dlg", 0.0, head="none"),
        inverted("dlg", 0.0, adversary="mlp", head="none"),
        inverted("exact", 0.0),
    ]
    (result,) = judge(study, [], [*others, *(inverted(*item) for item in accuracies.items())])
    assert result["met"] is met
    assert result["measured"].startswith(shown)


def test_an_attack_that_was_not_carried_out_does_not_count_as_failed(study: Study) -> None:
    bound = InversionBound(2, "dsvae/weight", "none", ("dlg", "gram"), "within", 0.05)
    study = replace(study, targets=(Target("gradients", inversion=bound),))
    (result,) = judge(study, [], [inverted("dlg", 0.5)])
    assert (result["met"], result["measured"]) == (False, "gram not carried out")
