from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn.config import UnlearnConfig


def test_a_run_folder_is_unlearned_by_moments_unless_a_method_is_named(
    fedrec: Any, pipeline: Any, run_folder: Any
) -> None:
    run_folder("runs/a")
    told = fedrec("unlearn", "runs/a", "--attribute", "gender,age", "-o", "runs/b", "--seed", "3")
    assert told.status == 0, told.err
    verb, run, config, output, seed = pipeline.calls[0]
    assert (verb, run, output, seed) == ("unlearn", Path("runs/a"), Path("runs/b"), 3)
    assert config == UnlearnConfig(attributes=("gender", "age"), method="moments")
    assert told.out.endswith("Run folder: runs/b\nNext: fedrec attack runs/b --before\n")


def test_a_configuration_is_trained_with_fedau2_unless_a_method_is_named(fedrec: Any, pipeline: Any) -> None:
    told = fedrec("unlearn", "demo", "--attribute", "gender", "--epsilon", "0.1")
    assert told.status == 0, told.err
    verb, config = pipeline.calls[0]
    assert verb == "train"
    assert (config.unlearn.method, config.unlearn.attributes, config.unlearn.epsilon) == ("fedau2", ("gender",), 0.1)


def test_options_a_trained_run_cannot_change_are_refused(fedrec: Any, pipeline: Any, run_folder: Any) -> None:
    run_folder("runs/a")
    told = fedrec("unlearn", "runs/a", "--attribute", "gender", "--rounds", "3")
    assert told.status == 2
    assert "a trained run keeps its own configuration; leave out --federation.rounds" in told.err
    assert pipeline.calls == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["demo", "--unlearn.attributes", ""], "method fedau2 needs at least one attribute"),
        (["demo", "--attribute", "gender", "--method", "none"], "none leaves gender as it is"),
        (["demo", "--attribute", "gender", "--epsilon", "-1"], "unlearn.epsilon: must be 0 (automatic) or more"),
        (["demo", "--attribute", "gender", "--method", "fedau"], "fedau2"),
    ],
)
def test_mistakes_are_told(fedrec: Any, pipeline: Any, words: list[str], problem: str) -> None:
    told = fedrec("unlearn", *words)
    assert told.status == 2
    assert problem in told.err


def test_a_sweep_shows_every_strength_and_what_it_chose(fedrec: Any, pipeline: Any) -> None:
    told = fedrec("sweep", "demo", "--attribute", "gender", "--method", "fedau2", "-o", "runs/s", "--from", "runs/a")
    assert told.status == 0, told.err
    verb, config, output, source = pipeline.calls[0]
    assert (verb, output, source) == ("sweep", Path("runs/s"), Path("runs/a"))
    assert config.unlearn.attributes == ("gender",)
    assert "none           ndcg@10/full 0.3000   distance from guessing: gender 0.180" in told.out
    assert "epsilon 0.1    ndcg@10/full 0.2900   distance from guessing: gender 0.030" in told.out
    assert told.out.endswith(
        "0.1 is read least\nSweep: runs/s/sweep.html\nNext: fedrec report runs/s/none runs/s/epsilon-0.1\n"
    )


def test_attack_before_is_passed_on(fedrec: Any, pipeline: Any, run_folder: Any) -> None:
    run_folder("runs/a", attacked=False)
    assert fedrec("attack", "runs/a", "--before").status == 0
    assert pipeline.calls[0][-1] == "before"
