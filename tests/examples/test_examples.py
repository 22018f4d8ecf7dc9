"""The programs in examples/ run as a user would run them, and find what is planted in their data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


def run(name: str, folder: Path, *arguments: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "FEDREC_DATA"}
    done = subprocess.run(
        [sys.executable, str(FOLDER / name), *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def figures(output: str, line_starts: str) -> list[float]:
    """First number of each line that starts so."""
    found = re.findall(rf"^\s*{line_starts}.*?(\d\.\d+)", output, re.MULTILINE)
    assert found, f"no line {line_starts!r} in\n{output}"
    return [float(number) for number in found]


def test_01_finds_the_planted_attribute_and_nothing_in_the_noise(tmp_path: Path) -> None:
    output = run("01_train_and_attack.py", tmp_path)
    assert min(figures(output, "gender")) > 0.75
    assert all(0.35 < value < 0.65 for value in figures(output, "noise"))
    (page,) = tmp_path.glob("runs/*/report.html")
    assert str(page.relative_to(tmp_path)) in output


def test_02_reads_its_own_files(tmp_path: Path) -> None:
    output = run("02_own_csv.py", tmp_path)
    assert sorted(path.name for path in (tmp_path / "shop").iterdir()) == ["shop.csv", "shop.users.csv"]
    assert "'missing': 10" in output
    assert figures(output, "status")[0] > 0.75
    assert abs(figures(output, "age")[0] - 1 / 3) < 0.15


def test_03_attacks_from_outside_and_inside(tmp_path: Path) -> None:
    output = run("03_outside_attack.py", tmp_path)
    assert (tmp_path / "users.npz").is_file()
    assert figures(output, "Outside")[0] > 0.75
    assert len(figures(output, "gender")) == 3
    assert min(figures(output, "gender")) > 0.75
    assert all(0.3 < value < 0.7 for value in figures(output, "shuffled"))


def test_04_engines_are_equal_in_ring_mode_and_writes_nothing_here(tmp_path: Path) -> None:
    output = run("04_engines.py", tmp_path, "--rounds", "5")
    floats, ring = output.split("ring mode\n")
    assert "largest difference" in floats
    assert ring.count("equal to the last bit") == 2
    assert list(tmp_path.iterdir()) == []


def test_05_unlearns_in_recboles_pipeline_and_writes_nothing_here(tmp_path: Path) -> None:
    pytest.importorskip("recbole", reason="the extra recbole is not installed")
    output = run("05_recbole.py", tmp_path, "--epochs", "10")
    gender = {line[:15].strip(): line.split("attackbacc@gender ")[1] for line in output.splitlines() if "bacc" in line}
    assert list(gender) == ["clients, before", "clients, after", "central", "leace"]
    assert float(gender["clients, before"]) > float(gender["clients, after"])
    assert list(tmp_path.iterdir()) == []


def test_06_trains_through_two_processes_and_survives_a_restart(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="the extra serve is not installed")
    output = run("06_two_servers.py", tmp_path, "--rounds", "4")
    assert "killed and started again" in output
    assert "equal to the last bit" in output
    assert not list(tmp_path.iterdir())
