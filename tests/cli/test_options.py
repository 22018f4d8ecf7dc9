from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn.cli.options import SHORT
from fedrec_unlearn.config import AttackConfig, Config
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.config_options import options_by_name


@pytest.fixture
def printed(fedrec: Any, tmp_path: Path) -> Any:
    """The configuration that --print-config prints, read back."""

    def read(*words: str) -> Config:
        told = fedrec("train", *words, "--print-config")
        assert (told.status, told.err) == (0, "")
        file = tmp_path / "printed.yaml"
        file.write_text(told.out, encoding="utf-8")
        return load_config(file)

    return read


def test_the_printed_configuration_is_read_back(printed: Any, pipeline: Any) -> None:
    assert printed() == Config()
    assert printed("demo") == load_config("demo")
    assert not pipeline.calls


def test_options_change_the_printed_configuration(printed: Any, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("federation: {rounds: 5, l2: 0.5}\n", encoding="utf-8")
    words = [str(file), "--rounds", "9", "--topk=5,10", "--model", "ncf", "-o", "out", "--data.min-rating", "3"]
    expected = load_config(
        file,
        {
            "federation.rounds": 9,
            "evaluation.topk": (5, 10),
            "model.name": "ncf",
            "output": "out",
            "data.min_rating": 3.0,
        },
    )
    assert printed(*words) == expected


@pytest.mark.parametrize(
    "words",
    [
        ["--federation.local-epochs", "5"],
        ["--federation.local_epochs", "5"],
        ["--federation.local_epochs=5"],
        ["--local-epochs", "5"],
        ["--local_epochs=5"],
    ],
)
def test_spellings_of_one_option_are_one(printed: Any, words: list[str]) -> None:
    assert printed(*words).federation.local_epochs == 5


def test_a_value_keeps_its_underscores_and_dashes(printed: Any) -> None:
    assert printed("--split=leave_one_out").split.method == "leave_one_out"
    assert printed("--split", "leave_one_out", "--data-dir=a_b-c").data.dir == "a_b-c"


@pytest.mark.parametrize(
    ("words", "ring"),
    [
        (["--federation.ring"], True),
        (["--federation.ring", "true"], True),
        (["--federation.ring=yes"], True),
        (["--federation.ring", "off"], False),
        (["--federation.ring=false"], False),
    ],
)
def test_a_switch_may_leave_its_value_out(printed: Any, words: list[str], ring: bool) -> None:
    assert printed(*words).federation.ring is ring


def test_a_switch_does_not_swallow_the_configuration(printed: Any) -> None:
    config = printed("--federation.ring", "demo")
    assert config == load_config("demo", {"federation.ring": True})


def test_short_names_belong_to_options_and_to_one_each() -> None:
    assert set(SHORT) <= set(options_by_name())
    names = [name for short in SHORT.values() for name in short]
    assert len(names) == len(set(names))


def test_attack_options_lie_over_those_of_the_run(fedrec: Any, pipeline: Any, run_folder: Any) -> None:
    config = load_config(None, {"attack.folds": 3, "attack.attributes": ("gender",)})
    folder = run_folder("runs/a", config=config)
    assert fedrec("attack", str(folder)).status == 0
    assert fedrec("attack", str(folder), "--attackers", "knn", "--attack.seeds", "4,5").status == 0
    asked = AttackConfig(attributes=("gender",), folds=3, attackers=("knn",), seeds=(4, 5))
    assert pipeline.calls == [("attack", folder, None), ("attack", folder, asked)]
