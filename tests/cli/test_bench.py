from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn import bench
from fedrec_unlearn.bench.run import run_study as real_run_study
from fedrec_unlearn.cli.bench import configure
from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.errors import DataError

STUDY = """\
paper: fedau2
title: A tiny study
seeds: [1]
base:
  data: {name: synthetic}
  model: {embedding_dim: 4}
  federation: {rounds: 6, clients_per_round: 60, server_learning_rate: 0.01}
  evaluation: {topk: [10], metrics: [ndcg], every: 3, sampled_negatives: 30}
  attack: {attributes: [gender], attackers: [logistic], folds: 2, inner_folds: 2}
surfaces: {table: {user_embedding: all}}
arms:
  - {name: none}
  - {method: grl, unlearns: [gender], epsilon: 0.1}
targets:
  - {aim: gender hidden, arm: grl-gender, attribute: gender, at_most: 1.0}
quick: {arms: [none]}
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(STUDY, encoding="utf-8")
    return Path("tiny.yaml")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool, int]]:
    """Studies that would be run, as name, quick, jobs; nothing is."""
    calls: list[tuple[str, bool, int]] = []

    def run_study(study: Any, output: Path, *, jobs: int, progress: Any) -> Path:
        calls.append((study.name, study.quick, jobs))
        return output / study.folder_name

    monkeypatch.setattr(bench, "run_study", run_study)
    monkeypatch.setattr("fedrec_unlearn.cli.bench._print_results", lambda folder: None)
    return calls


def test_a_study_is_carried_out_and_its_tables_printed(fedrec: Any, tiny: Path) -> None:
    told = fedrec("bench", "--study", "tiny.yaml", "-o", "out")
    assert told.status == 0
    assert "Gender, attackers see user embedding" in told.out
    assert "gradient reversal, ε 0.1" in told.out
    assert told.out.endswith("1 of 1 targets are met\nPage: out/tiny/study.html\nStudy: out/tiny\n")
    assert "run 2/2" in told.err
    again = fedrec("bench", "--study", "tiny.yaml", "-o", "out", "-q")
    assert (again.out, again.err) == ("out/tiny\n", "")
    listed = fedrec("bench", "--study", "tiny.yaml", "-o", "out", "--list")
    assert [line.split()[-1] for line in listed.out.splitlines() if line.startswith(("none", "grl"))] == ["1/1", "1/1"]


def test_list_does_nothing(fedrec: Any, tiny: Path, asked: list[Any]) -> None:
    told = fedrec("bench", "--study", "tiny.yaml", "--list")
    assert told.status == 0
    assert asked == []
    assert not Path("runs").exists()
    assert "0/1" in told.out


def test_without_a_study_every_one_with_data_is_carried_out(
    fedrec: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_data(study: Any) -> None:
        if study.base.data.name == "taobao-nfa":
            raise DataError("not here")

    monkeypatch.setattr(bench, "check_data", check_data)
    told = fedrec("bench", "--paper", "fedau2", "--quick", "--jobs", "2")
    assert told.status == 0
    assert asked == [("fedau2_ml-100k", True, 2), ("fedau2_ml-1m", True, 2)]
    assert "fedau2_taobao is left out: its data (taobao-nfa) is not there" in told.err


def test_without_any_data_the_first_error_is_told(
    fedrec: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_data(study: Any) -> None:
        raise DataError(f"no {study.base.data.name}")

    monkeypatch.setattr(bench, "check_data", check_data)
    told = fedrec("bench", "--paper", "fedau2")
    assert told.status == DataError.exit_code
    assert "no ml-100k" in told.err
    assert asked == []


def test_a_study_named_without_its_paper(fedrec: Any, asked: list[Any]) -> None:
    assert fedrec("bench", "--paper", "fedau2", "--study", "ml-100k").status == 0
    assert fedrec("bench", "--study", "fedau2_ml-100k").status == 0
    assert asked == [("fedau2_ml-100k", False, 1)] * 2


def test_a_study_of_transports_is_one_of_the_studies(
    fedrec: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "check_data", lambda study: None)
    assert fedrec("bench", "--paper", "secemb", "--quick").status == 0
    assert fedrec("bench", "--study", "secemb").status == 0
    assert asked == [("secemb", True, 1), ("secemb", False, 1)]
    listed = fedrec("bench", "--paper", "secemb", "--list").out
    assert "Yelp, binned: https round" in listed
    assert "SecEmb, m' = 200" in listed


TRANSPORTS = """\
kind: transports
paper: secemb
title: Tiny transports
seeds: [1]
costs:
  {width: 4, encodings: [binned], batches: [2], repeats: 1, client_repeats: 1,
    catalogues: [{name: small, items: 60, max_items: 6}]}
base:
  data: {name: synthetic}
  model: {embedding_dim: 4}
  federation: {rounds: 3, clients_per_round: 60}
  secemb: {execution: counted}
  evaluation: {topk: [10], metrics: [ndcg]}
transports: [plain, secemb]
comparisons:
  - {name: ranking, title: ranking items, metric: ndcg@10}
"""


def test_a_study_of_transports_is_carried_out_and_its_tables_printed(
    fedrec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TRANSPORTS, encoding="utf-8")
    told = fedrec("bench", "--study", "tiny.yaml", "-o", "out")
    assert told.status == 0
    for title in ("What a client sends", "Time of a client", "What transports cost and lose: ranking items"):
        assert title in told.out
    assert told.out.endswith("Study: out/tiny\n")
    assert "small, binned: server, 2 clients" in told.err
    assert "ranking-secemb-1" in told.err
    listed = fedrec("bench", "--study", "tiny.yaml", "-o", "out", "--list")
    assert [line.split()[-1] for line in listed.out.splitlines() if line.startswith(("costs", "ranking"))] == [
        "1/1"
    ] * 4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--paper is missing: name the paper (fedau2, secemb)"),
        (["--paper", "fedau"], "no studies of 'fedau'; did you mean fedau2?"),
        (["--paper", "fedau2", "--study", "ml-10k"], "did you mean ml-100k"),
        (["--study", "absent.yaml"], "no study file absent.yaml"),
        (["--paper", "fedau2", "--jobs", "0"], "--jobs: must be a whole number of at least 1, not '0'"),
        (["--paper", "fedau2", "--job", "2"], "unknown option --job; did you mean --jobs?"),
    ],
)
def test_mistakes_are_told(fedrec: Any, asked: list[Any], words: list[str], told: str) -> None:
    found = fedrec("bench", *words)
    assert found.status == 2
    assert told in found.err
    assert asked == []


def test_help_names_papers_and_studies() -> None:
    parser = CommandParser("bench", "reproduce a paper's tables")
    configure(parser)
    told = " ".join(parser.format_help().split())
    assert "fedau2" in told
    assert "fedau2_ml-100k, fedau2_ml-1m" in told
    assert "Default: runs/bench." in told


def test_ctrl_c_ends_with_the_shells_status(fedrec: Any, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: Any, **options: Any) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedrec_unlearn.bench.run.run_jobs", interrupted)
    assert bench.run_study is real_run_study
    told = fedrec("bench", "--study", "tiny.yaml", "-o", "out")
    assert told.status == 130
    assert "interrupted" in told.err
