"""What a report knows of unlearning: which state is "before", and figures before and after."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrec_unlearn.config import KNOWN_ATTACKERS, METHODS
from fedrec_unlearn.config import SURFACES as ALL_SURFACES
from fedrec_unlearn.report import read_run
from fedrec_unlearn.report.figures import RunFigures, figures_of
from fedrec_unlearn.report.methods import METHODS as DESCRIBED
from fedrec_unlearn.report.unlearning import Unlearning
from fedrec_unlearn.report.wording import ATTACKERS, CONTROLS, SURFACES

MakeRun = Callable[..., Path]
Attacked = Callable[..., dict[str, Any]]


def _unlearning(*folders: Path) -> Unlearning:
    run: RunFigures = figures_of([read_run(folder) for folder in folders])[-1]
    assert run.unlearning is not None
    return run.unlearning


def test_every_method_surface_and_attacker_of_the_configuration_has_words() -> None:
    assert set(DESCRIBED) == set(METHODS) - {"none"}
    assert set(SURFACES) | set(CONTROLS) == set(ALL_SURFACES)
    assert set(ATTACKERS) == set(KNOWN_ATTACKERS)


def test_a_run_without_unlearning_has_none(make_run: MakeRun, make_unlearned: MakeRun) -> None:
    folders = [make_run("plain"), make_run("null", unlearn=None), make_unlearned(unlearn={"method": "none"})]
    assert [figures.unlearning for figures in figures_of([read_run(folder) for folder in folders])] == [None] * 3


def test_the_state_before_is_the_runs_own_where_it_was_attacked(
    make_run: MakeRun, make_unlearned: MakeRun, attacked: Attacked
) -> None:
    base = make_run("base", attack={"format": 1, "results": [attacked("gender", 0.75)]})
    after = make_unlearned(results=[attacked("gender", 0.51)], before=[attacked("gender", 0.68)])
    found = _unlearning(base, after)
    (leak,) = found.leaks
    assert leak.before is not None
    assert leak.before.balanced_accuracy.value == 0.68
    assert leak.change == pytest.approx(0.01 - 0.18)
    assert (found.leaks_before, found.kept_before) == ("the run base", "the run base")
    assert [(pair.before, pair.after, pair.ratio) for pair in found.kept] == [(0.30, 0.29, 0.29 / 0.30)]


def test_else_it_is_the_run_beside_that_it_started_from(
    make_run: MakeRun, make_unlearned: MakeRun, attacked: Attacked
) -> None:
    folders = [
        make_run(name, seed=seed, attack={"format": 1, "results": [attacked("gender", mean)]})
        for name, seed, mean in (("other", 1, 0.61), ("base", 2, 0.68))
    ]
    after = make_unlearned(results=[attacked("gender", 0.51)], ndcg=(None, 0.29), seed=1)
    found = _unlearning(*folders, after)
    assert found.leaks[0].before is not None
    assert found.leaks[0].before.balanced_accuracy.value == 0.68
    assert found.leaks_before == "the run base"
    expected = json.loads((folders[1] / "metrics.json").read_text())["test"]["ndcg@10/full"]
    assert [pair.before for pair in found.kept] == [expected]
    # trained from scratch: the run of the same seed
    scratch = make_unlearned("scratch", results=[attacked("gender", 0.51)], seed=1, unlearn={"source": None})
    assert _unlearning(*folders, scratch).leaks_before == "the run other"


def test_runs_on_other_data_or_with_unlearning_are_no_reference(
    make_run: MakeRun, make_unlearned: MakeRun, attacked: Attacked
) -> None:
    other = make_run("other", data={"name": "made-up", "n_users": 9, "fingerprint": "1"})
    results = [attacked("gender", 0.51)]
    first = make_unlearned("first", results=results, data={"name": "made-up", "n_users": 9, "fingerprint": "2"})
    second = make_unlearned("second", results=results, data={"name": "made-up", "n_users": 9, "fingerprint": "2"})
    found = _unlearning(other, first, second)
    assert found.reference is None
    assert found.leaks_before is None
    assert found.leaks[0].before is None


def test_overshoot_is_more_readable_than_before_by_more_than_the_interval(
    make_unlearned: MakeRun, attacked: Attacked
) -> None:
    def overshoots(name: str, after: float, half: float | None, before: float = 0.60) -> bool:
        folder = make_unlearned(
            name, results=[attacked("gender", after, half=half)], before=[attacked("gender", before)]
        )
        return _unlearning(folder).leaks[0].overshoot

    assert overshoots("above", 0.70, 0.02)
    assert overshoots("below", 0.30, 0.02)
    assert not overshoots("within", 0.61, 0.02)
    assert overshoots("one-seed", 0.61, None)
    assert not overshoots("luck", 0.53, 0.001, before=0.51)


def test_an_attacker_that_is_beyond_luck_speaks_where_the_worst_is_not(
    make_unlearned: MakeRun, attacked: Attacked
) -> None:
    results = [attacked("gender", 0.57, attacker="knn", half=0.2), attacked("gender", 0.56, attacker="mlp")]
    (leak,) = _unlearning(make_unlearned(results=results)).leaks
    assert leak.after is not None
    assert leak.telling is not None
    assert (leak.after.attacker, leak.telling.attacker) == ("knn", "mlp")


def test_the_adversarys_accuracy_is_smoothed_over_rounds(make_unlearned: MakeRun) -> None:
    values = np.random.default_rng(0).uniform(0.4, 0.7, 400).tolist()
    classes = {"gender": {"classes": {"F": 273, "M": 670}, "missing": 0}}
    data = {"name": "made-up", "n_users": 943, "attributes": classes}
    (found,) = _unlearning(make_unlearned(rounds=400, adversary={"gender": values}, data=data)).adversary
    np.testing.assert_allclose(found.accuracy, values)
    assert found.window == 25
    np.testing.assert_allclose(found.smooth[100], np.mean(values[88:113]))
    assert (found.n_classes, found.majority) == (2, 670 / 943)


def test_unlearned_attributes_come_first(make_unlearned: MakeRun, attacked: Attacked) -> None:
    found = _unlearning(make_unlearned(results=[attacked("age", 0.4), attacked("gender", 0.5)]))
    assert [(leak.attribute, leak.unlearned) for leak in found.leaks] == [("gender", True), ("age", False)]
