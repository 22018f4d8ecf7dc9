from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from fedrec_unlearn import __version__
from fedrec_unlearn.cli.command import VERBS
from fedrec_unlearn.config_options import options


def flowing(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)])
def test_the_overview_lists_every_verb(fedrec: Any, words: tuple[str, ...]) -> None:
    told = fedrec(*words)
    assert told.status == 0
    assert all(re.search(rf"^  {verb} +\w", told.out, re.MULTILINE) for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(fedrec: Any, verb: str) -> None:
    told = fedrec(verb, "--help")
    assert told.status == 0
    assert told.out.startswith(f"usage: fedrec {verb} ")
    assert flowing(VERBS[verb])[1:] in flowing(told.out)
    assert told.out == fedrec("help", verb).out


@pytest.mark.parametrize("verb", ["train", "run"])
def test_help_shows_every_option_with_docstring_and_default(
    fedrec: Any, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # words are broken at hyphens where lines are short
    monkeypatch.setenv("COLUMNS", "1000")
    text = flowing(fedrec(verb, "--help").out)
    for option in options():
        assert f"--{option.name.replace('_', '-')} " in text
        assert flowing(option.doc) in text
    assert "an interrupted run repeats at most this many. Default: 50." in text


def test_help_of_attack_shows_the_attack_alone(fedrec: Any) -> None:
    text = fedrec("attack", "--help").out
    assert "--attackers" in text
    assert "--federation.rounds" not in text


def test_the_version_is_told(fedrec: Any) -> None:
    assert fedrec("--version").out == f"fedrec {__version__}\n"


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["train", "demo", "--print-config"]])
def test_nothing_large_is_loaded_to_explain(words: list[str]) -> None:
    code = f"import sys; from fedrec_unlearn.cli import main; main({words!r}); print('LOADED', *sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = {name.partition(".")[0] for name in printed.rpartition("LOADED")[2].split()}
    assert "fedrec_unlearn" in loaded
    assert not loaded & {"torch", "numpy", "pandas", "scipy", "sklearn", "rich", "matplotlib", "recbole"}
