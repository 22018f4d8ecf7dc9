from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn.report import read_run
from fedrec_unlearn.report.figures import figures_of
from fedrec_unlearn.report.summary import compare, shared_metric, summarise

MakeRun = Callable[..., Path]


def _attack(mean: float, low: float | None, high: float | None, **more: Any) -> dict[str, Any]:
    result = {
        "attribute": "gender",
        "surface": "user_embedding",
        "attacker": "logistic",
        "classes": ["F", "M"],
        "counts": [273, 670],
        "chance": 0.5,
        "majority": 0.7105,
        "balanced_accuracy": {"mean": mean, "low": low, "high": high},
    }
    return {"format": 1, "results": [result | more]}


def _sentences(folder: Path) -> list[str]:
    (figures,) = figures_of([read_run(folder)])
    return [sentence.replace("\u00a0", " ") for sentence in summarise(figures)]


@pytest.mark.parametrize(
    ("figures", "end"),
    [
        (
            (0.68, 0.66, 0.7),
            "right in 68 % of cases (balanced accuracy, 95 % interval 66 to 70 %), against 50 % by chance: "
            "gender leaks.",
        ),
        ((0.51, 0.48, 0.54), "50 % by chance, which lies within the interval: no leak is shown."),
        (
            (0.45, 0.42, 0.48),
            "50 % by chance: it is reliably wrong; turned round, its answers are right in 55 %: gender leaks.",
        ),
        (
            (0.53, 0.52, 0.54),  # 0.03 is below 1.96 standard errors of guessing, 0.035
            "50 % by chance; guessing comes as far by luck with so few users: no leak is shown.",
        ),
        ((0.68, None, None), "right in 68 % of cases (balanced accuracy), against 50 % by chance."),
    ],
)
def test_the_leak_is_told_against_chance(
    make_run: MakeRun, figures: tuple[float, float | None, float | None], end: str
) -> None:
    found = [s for s in _sentences(make_run(attack=_attack(*figures))) if "attacker" in s]
    assert len(found) == 1
    assert found[0].startswith(
        "An attacker who sees the user embeddings (logistic regression) names the gender of a user"
    )
    assert found[0].endswith(end)


def test_the_strongest_attacker_speaks_for_each_attribute(make_run: MakeRun) -> None:
    folder = make_run()
    results = json.loads((folder / "attack.json").read_text())["results"]
    for attribute in ("gender", "age"):
        best = max(r["balanced_accuracy"]["mean"] for r in results if r["attribute"] == attribute)
        found = [s for s in _sentences(folder) if f"names the {attribute} of" in s]
        assert len(found) == 1
        assert f"{100 * best:.1f} %" in found[0]
        assert "the strongest of 4" in found[0]


def test_ranking_is_told_against_popularity(make_run: MakeRun) -> None:
    folder = make_run()
    metrics = json.loads((folder / "metrics.json").read_text())
    test, popular = metrics["test"]["ndcg@10/full"], metrics["popularity"]["ndcg@10/full"]
    assert _sentences(folder)[0] == (
        f"The best model (round {metrics['best_round']}) reaches a test NDCG@10 of {test:.3f}, "
        f"{test / popular:.2f} times the {popular:.3f} of recommending the most popular items."
    )


def test_an_error_measure_is_not_told_as_times(make_run: MakeRun) -> None:
    folder = make_run(attack=False)
    parts = {"test": {"rmse": 0.95}, "valid": {"rmse": 0.94}, "popularity": {"rmse": 1.05}}
    (folder / "metrics.json").write_text(json.dumps({"best_round": 3, "selected_by": "rmse", **parts}))
    assert _sentences(folder)[0] == (
        "The best model (round 3) reaches a test RMSE of 0.950, against 1.050 for the popularity baseline."
    )


def test_a_run_in_progress_says_so_first(make_run: MakeRun) -> None:
    folder = make_run(rounds=37, metrics=False, attack=False, status="running", rounds_done=0, best_round=None)
    assert _sentences(folder)[0] == "The run is still in progress, 37 of 600 rounds so far: figures will change."


def test_runs_are_compared_by_quality_and_by_leak(make_run: MakeRun) -> None:
    folders = [
        make_run("a", attack=_attack(0.70, 0.69, 0.71)),
        make_run("b", attack=_attack(0.55, 0.53, 0.57)),
        make_run("c", attack=_attack(0.58, 0.56, 0.60)),
    ]
    for folder, value in zip(folders, (0.3, 0.2, 0.25), strict=True):
        content = {"selected_by": "ndcg@10/full", "test": {"ndcg@10/full": value}}
        (folder / "metrics.json").write_text(json.dumps(content))
    sentences = [s.replace("\u00a0", " ") for s in compare(figures_of([read_run(folder) for folder in folders]))]
    assert sentences == [
        "a recommends best: test NDCG@10 0.300, against 0.200 for b and 0.250 for c.",
        "b gives away least of gender to an attacker who sees the user embeddings: balanced accuracy 55 %, against "
        "70 % for a and 58 % for c (50 % by chance); the 95 % intervals overlap, so the order is uncertain.",
    ]


def test_runs_on_different_data_are_not_compared(make_run: MakeRun) -> None:
    other = {"name": "other", "n_users": 10}
    runs = figures_of([read_run(make_run("a")), read_run(make_run("b", data=other))])
    assert compare(runs) == ["The runs use different data sets (made-up and other): their figures cannot be compared."]


def test_metrics_of_different_protocols_are_not_compared(make_run: MakeRun) -> None:
    folders = [make_run("a", attack=False), make_run("b", attack=False)]
    for folder, name in zip(folders, ("ndcg@10/full", "ndcg@10/99neg"), strict=True):
        (folder / "metrics.json").write_text(json.dumps({"selected_by": name, "test": {name: 0.2}}))
    runs = figures_of([read_run(folder) for folder in folders])
    assert shared_metric(runs) is None
    assert compare(runs) == []
