from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.progress import Interrupted


def test_train_trains_and_shows_the_ranking(fedrec: Any, pipeline: Any) -> None:
    told = fedrec("train", "demo", "--rounds", "7", "-o", "runs/a")
    assert told.status == 0
    assert pipeline.calls == [("train", load_config("demo", {"federation.rounds": 7, "output": "runs/a"}))]
    assert "ndcg@10/full    0.2412  0.2901" in told.out
    assert "gender" not in told.out
    assert told.out.endswith("Run folder: runs/a\nNext: fedrec attack runs/a\n")
    assert "training: done" in told.err


def test_resume_takes_the_run_and_nothing_else(fedrec: Any, pipeline: Any, run_folder: Any) -> None:
    run_folder("runs/a")
    assert fedrec("train", "--resume", "runs/a").status == 0
    assert pipeline.calls == [("resume", Path("runs/a"))]


def test_attack_shows_every_attacker_and_not_the_ranking(fedrec: Any, pipeline: Any, run_folder: Any) -> None:
    run_folder("runs/a", attacked=False)
    told = fedrec("attack", "runs/a")
    assert told.status == 0
    assert "* gender     user_embedding  logistic" in told.out
    assert "  gender     user_embedding  knn" in told.out
    assert "ndcg" not in told.out
    assert told.out.endswith("Attack: runs/a/attack.json\nNext: fedrec report runs/a\n")


def test_report_of_one_run_shows_its_tables(fedrec: Any, pipeline: Any, run_folder: Any) -> None:
    run_folder("runs/a")
    told = fedrec("report", "runs/a")
    assert pipeline.calls == [("report", [Path("runs/a")], None)]
    assert "0.2901" in told.out
    assert "0.680 [0.660, 0.700]" in told.out
    assert told.out.endswith("Report: runs/a/report.html\n")


def test_report_of_several_runs_compares_them(fedrec: Any, pipeline: Any, run_folder: Any) -> None:
    run_folder("runs/a")
    run_folder("runs/b", attacked=False)
    told = fedrec("report", "runs/a", "runs/b", "-o", "both")
    assert pipeline.calls == [("report", [Path("runs/a"), Path("runs/b")], Path("both"))]
    rows = {line.split()[0]: line.split()[1:] for line in told.out.splitlines() if line.startswith(("a ", "b "))}
    assert rows == {"a": ["0.2901", "0.680", "[0.660,", "0.700]", "(0.500)"], "b": ["0.2901", "-"]}
    assert told.out.endswith("Report: both/report.html\n")


def test_export_names_the_part(fedrec: Any, pipeline: Any, run_folder: Any) -> None:
    run_folder("runs/a")
    assert fedrec("export", "runs/a", "u.npz").out == "Exported: u.npz\n"
    fedrec("export", "runs/a", "u.npz", "--part", "latest")
    assert pipeline.calls == [
        ("export", Path("runs/a"), Path("u.npz"), "best"),
        ("export", Path("runs/a"), Path("u.npz"), "latest"),
    ]


def test_run_ends_with_both_tables_and_the_report(fedrec: Any, pipeline: Any) -> None:
    told = fedrec("run", "demo", "-o", "runs/a")
    assert told.status == 0
    assert pipeline.calls == [("run", load_config("demo", {"output": "runs/a"}))]
    assert told.out.index("0.2901") < told.out.index("0.680 [0.660, 0.700]")
    assert told.out.endswith("Run folder: runs/a\nReport: runs/a/report.html\n")


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["train", "-o", "runs/new"], "runs/new"),
        (["run", "-o", "runs/new"], "runs/new/report.html"),
        (["attack", "runs/a"], "runs/a/attack.json"),
        (["report", "runs/a"], "runs/a/report.html"),
        (["export", "runs/a", "u.npz"], "u.npz"),
    ],
)
@pytest.mark.parametrize("leading", [True, False])
def test_quiet_prints_the_path_of_the_result_alone(
    fedrec: Any, pipeline: Any, run_folder: Any, words: list[str], path: str, leading: bool
) -> None:
    run_folder("runs/a")
    told = fedrec("--quiet", *words) if leading else fedrec(*words, "-q")
    assert (told.status, told.out, told.err) == (0, f"{path}\n", "")


def test_ctrl_c_tells_how_to_go_on(fedrec: Any, pipeline: Any) -> None:
    pipeline.error = Interrupted(Path("runs/my run"))
    told = fedrec("train")
    assert told.status == 130
    assert told.err.startswith("fedrec: interrupted; ")
    assert told.err.endswith("\n  fedrec train --resume 'runs/my run'\n")
    assert "Traceback" not in told.err


def test_ctrl_c_before_there_is_a_run_is_short(fedrec: Any, pipeline: Any) -> None:
    pipeline.error = KeyboardInterrupt()
    told = fedrec("train")
    assert (told.status, told.err) == (130, "fedrec: interrupted\n")


def test_an_interruption_is_not_caught_as_an_ordinary_error() -> None:
    assert issubclass(Interrupted, KeyboardInterrupt)
    assert not issubclass(Interrupted, Exception)


def test_a_path_with_a_space_is_quoted_in_the_next_step(fedrec: Any, pipeline: Any) -> None:
    assert fedrec("train", "-o", "runs/my run").out.endswith("Next: fedrec attack 'runs/my run'\n")
