from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedrec_unlearn.bench.measure import complete
from fedrec_unlearn.bench.study import Study, tasks_of
from fedrec_unlearn.bench.summary import summarise
from fedrec_unlearn.errors import DataError


def rows_of(study: Study, folder: Path, steps: Any) -> list[dict[str, Any]]:
    return [complete(task, steps).row for task in tasks_of(study, folder)]


def t_interval(values: list[float]) -> tuple[float, float, float]:
    """By scipy alone."""
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    return float(np.mean(values)), float(low), float(high)


@pytest.fixture
def seeds() -> tuple[int, ...]:
    return (5, 1, 9, 4)


def test_means_intervals_and_paired_ratios_are_those_of_scipy(
    study: Study, seeds: tuple[int, ...], steps: Any, tmp_path: Path
) -> None:
    study = replace(study, seeds=seeds)
    rows = rows_of(study, tmp_path, steps)
    summary = summarise(study, rows[::-1])  # in any order
    entry = next(e for e in summary if (e["arm"], e["attribute"]) == ("fedau2-gender", "age"))

    def of(arm: str, seed: int) -> dict[str, Any]:
        return next(row for row in rows if (row["arm"], row["seed"]) == (arm, seed))

    distances = {}
    for attacker in ("logistic", "knn"):
        values = [
            found["balanced_accuracy"]
            for seed in seeds
            for found in of("fedau2-gender", seed)["attack"]
            if (found["attribute"], found["attacker"]) == ("age", attacker)
        ]
        mean, low, high = t_interval(values)
        got = entry["attackers"][attacker]
        assert got["per_seed"] == values
        assert (got["mean"], got["low"], got["high"]) == pytest.approx((mean, low, high))
        distances[attacker] = abs(mean - 1 / 3)
    assert entry["worst"]["attacker"] == max(distances, key=lambda name: distances[name])
    assert entry["worst"]["distance"] == pytest.approx(max(distances.values()))
    for key in study.utility_keys:
        ratios = [of("fedau2-gender", s)["metrics"][key] / of("none", s)["metrics"][key] for s in seeds]
        kept = entry["utility"][key]
        assert (kept["ratio"], kept["low"], kept["high"]) == pytest.approx(t_interval(ratios))
        assert kept["mean"] == pytest.approx(np.mean([of("fedau2-gender", s)["metrics"][key] for s in seeds]))


def attacked(study: Study, values: dict[str, list[float]]) -> dict[str, Any]:
    """Summary of one arm where attackers reach these accuracies, seed by seed."""
    study = replace(study, arms=study.arms[:1], targets=())
    rows = [
        {
            "arm": "none",
            "seed": seed,
            "epsilon": None,
            "metrics": dict.fromkeys(study.utility_keys, 0.3),
            "attack": [
                {
                    "attribute": "gender",
                    "surface": "user_embedding",
                    "attacker": attacker,
                    "balanced_accuracy": accuracies[n],
                    "chance": 0.5,
                }
                for attacker, accuracies in values.items()
            ],
        }
        for n, seed in enumerate(study.seeds)
    ]
    (entry,) = summarise(study, rows)
    return entry


def test_an_attacker_that_is_reliably_wrong_is_the_worst(study: Study) -> None:
    worst = attacked(study, {"logistic": [0.40, 0.42], "knn": [0.55, 0.57]})["worst"]
    assert worst["attacker"] == "logistic"
    assert worst["mean"] == pytest.approx(0.41)
    assert worst["distance"] == pytest.approx(0.09)
    _, low, high = t_interval([0.40, 0.42])
    assert (worst["distance_low"], worst["distance_high"]) == pytest.approx((0.5 - high, 0.5 - low))


def test_the_interval_of_the_distance_begins_below_zero_where_chance_is_inside(study: Study) -> None:
    worst = attacked(study, {"logistic": [0.45, 0.57]})["worst"]
    assert worst["distance_low"] < 0 < worst["distance_high"]


def test_one_seed_has_no_interval(study: Study) -> None:
    entry = attacked(replace(study, seeds=(1,)), {"logistic": [0.6]})
    assert entry["worst"]["low"] is None
    assert entry["worst"]["distance_high"] is None
    assert entry["utility"]["ndcg@10/full"] == {"mean": 0.3, "ratio": 1.0, "low": None, "high": None}


def test_a_missing_seed_is_told(study: Study, steps: Any, tmp_path: Path) -> None:
    rows = rows_of(study, tmp_path, steps)
    with pytest.raises(DataError, match="arm none: there are results for 1 seeds"):
        summarise(study, rows[1:])


def test_a_baseline_that_recommends_nothing_is_told(study: Study, steps: Any, tmp_path: Path) -> None:
    rows = rows_of(study, tmp_path, steps)
    rows[0]["metrics"]["ndcg@10/full"] = 0.0
    with pytest.raises(DataError, match="ndcg@10/full of none is 0"):
        summarise(study, rows)


def test_strengths_chosen_seed_by_seed_have_no_common_value(study: Study, steps: Any, tmp_path: Path) -> None:
    rows = rows_of(study, tmp_path, steps)
    next(row for row in rows if row["arm"] == "fedau2-gender")["epsilon"] = 0.3
    found = {entry["arm"]: entry["epsilon"] for entry in summarise(study, rows)}
    assert found["fedau2-gender"] is None
    assert found["grl-gender-epsilon-0.1"] == 0.1
