from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn.cli import environment
from fedrec_unlearn.cli.environment import Check


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDREC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDREC_DATA", raising=False)
    return tmp_path


def subjects(checks: Any) -> dict[str, Check]:
    return {check.subject: check for check in checks}


def test_this_installation_is_explained(fedrec: Any, here: Path) -> None:
    told = fedrec("doctor")
    assert told.status == 0, told.out
    for word in ("Python", "torch", "device", "folder", "disk", "FEDREC_DATA", "data ml-100k", "data synthetic"):
        assert word in told.out
    assert metadata.version("torch") in told.out
    assert list(here.iterdir()) == []


def test_a_missing_package_fails_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = environment._version
    monkeypatch.setattr(environment, "_version", lambda name: None if name == "scipy" else real(name))
    check = subjects(environment.check_packages())["scipy"]
    assert (check.status, check.detail) == ("fail", "not installed")
    assert check.remedy.startswith("pip install 'scipy>=")


def test_a_package_that_is_too_old_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_version", lambda name: "1.9.9" if name == "pandas" else "99.0")
    found = subjects(environment.check_packages())
    assert found["pandas"].status == "fail"
    assert {check.status for name, check in found.items() if name != "pandas"} == {"ok"}


def test_a_missing_extra_is_a_warning_with_its_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    real = environment._version
    monkeypatch.setattr(environment, "_version", lambda name: None if name == "jinja2" else real(name))
    check = subjects(environment.check_extras())["extra report"]
    assert check.status == "warn"
    assert "without jinja2; it is for the pages and plots" in check.detail
    assert check.remedy == "pip install 'fedrec-unlearn[report]'"


def test_the_requirements_are_those_of_the_project_file() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [name for name, _ in environment._requirements(None)]
    assert sorted(named) == sorted(line.partition(">=")[0] for line in project["dependencies"])
    assert set(environment.EXTRAS) <= set(project["optional-dependencies"])
    assert dict(environment._requirements("report"))["jinja2"] == "3.1"


def test_a_marker_for_another_python_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: ["a>=1; python_version < '3.12' and extra == 'recbole'"])
    monkeypatch.setattr(sys, "version_info", (3, 11, 0))
    assert environment._requirements("recbole") == [("a", "1")]
    monkeypatch.setattr(sys, "version_info", (3, 12, 0))
    assert environment._requirements("recbole") == []


def test_a_wrong_data_folder_fails_and_ends_with_status_1(
    fedrec: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDREC_DATA", str(here / "nowhere"))
    told = fedrec("doctor", "--quiet")
    assert told.status == 1
    assert f"fail FEDREC_DATA          {here / 'nowhere'} is no folder" in told.out
    assert "ok " not in told.out


def test_a_data_set_in_the_data_folder_is_found(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = here / "data" / "gowalla"
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text("0 1 2\n", encoding="utf-8")
    (folder / "test.txt").write_text("0 3\n", encoding="utf-8")
    monkeypatch.setenv("FEDREC_DATA", str(here / "data"))
    found = subjects(environment.check_data())
    assert str(folder) in found["data gowalla"].detail
    assert "gowalla" not in found["data not here"].detail
    assert "ml-1m" in found["data not here"].detail


def test_without_the_default_data_set_there_is_a_warning(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedrec_unlearn.data import places

    monkeypatch.setattr(places, "find_spec", lambda name: None)
    check = subjects(environment.check_data())["data ml-100k"]
    assert (check.status, check.remedy) == ("warn", "fedrec download ml-100k")


def test_a_folder_that_cannot_be_written_to_fails(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(dir: Path) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(environment.tempfile, "TemporaryFile", refuse)
    check = subjects(environment.check_folder())["folder"]
    assert (check.status, check.remedy) == ("fail", "change folder, or give -o")


def test_a_check_that_breaks_is_a_finding_and_the_others_go_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise ZeroDivisionError("x")

    broken.__name__ = "check_torch"
    monkeypatch.setattr(environment, "check_torch", broken)
    found = subjects(environment.all_checks())
    assert found["torch"].status in ("ok", "fail")
    assert found["disk"].status in ("ok", "warn")
    assert [c.status for c in environment.all_checks() if c.detail == "ZeroDivisionError: x"] == ["fail"]
