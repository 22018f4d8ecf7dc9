"""The arms train what they are named after, on the same clients, and the program prints what it measured."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import adversary


def test_arms_take_the_same_clients_and_only_methods_have_adversaries(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, set[str]]] = []
    stock = adversary.apply_contribution

    def spy(state: object, contribution: object, *rest: object) -> None:
        seen.append((contribution.interactions, set(contribution.term)))  # type: ignore[attr-defined]
        stock(state, contribution, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(adversary, "apply_contribution", spy)
    train, attribute = adversary.synthetic(users=30, items=60)
    found = adversary.measure("synthetic", train, attribute, clients=8, rounds=2)
    assert all(len(seconds) == 2 for seconds in found.rounds.values())
    assert list(found.rounds) == ["none", "grl", "grl_sut", "fedau2"]
    arms = [seen[place::4] for place in range(4)]
    assert len({tuple(n for n, _ in rounds) for rounds in arms}) == 1
    layers = [rounds[0][1] for rounds in arms]
    assert layers[0] == set()
    assert (
        layers[1]
        == layers[2]
        == {f"gender.{n}" for n in ("encoder_weight", "encoder_bias", "last_weight", "last_bias")}
    )
    assert "gender.last_deviation" in layers[3]


def test_a_ratio_is_the_median_over_rounds_of_the_same_clients() -> None:
    rounds = {"none": [1.0, 2.0, 4.0], "grl": [1.5, 2.2, 4.4], "grl_sut": [1.0] * 3, "fedau2": [3.0] * 3}
    found = adversary.Measured("synthetic", 8, rounds)
    assert found.ratio("grl") == pytest.approx(1.1)
    assert found.seconds("grl") == 2.2
    assert found.figures()["arms"]["none"]["ratio"] == 1.0


def test_synthetic_labels_are_a_function_of_the_seed() -> None:
    one, same, other = (adversary.synthetic(200, 40, seed)[1].labels for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert 0.55 < one.mean() < 0.85


def test_the_program_runs_without_data(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDREC_DATA", raising=False)
    adversary.main(["--rounds", "3"])
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    (result,) = figures["results"]
    assert (result["dataset"], result["clients"], result["rounds"]) == ("synthetic", 64, 3)
    assert all(arm["round_seconds"] > 0 for arm in result["arms"].values())


@pytest.mark.parametrize(("arguments", "told"), [(["--datasets", "netflix"], "netflix"), (["--rounds", "0"], "0")])
def test_options_that_make_no_sense_are_refused(arguments: list[str], told: str) -> None:
    from fedrec_unlearn.errors import ConfigError

    with pytest.raises(ConfigError, match=told):
        adversary.main(arguments)
