from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn.data import download as download_module
from fedrec_unlearn.data.cards import card_names
from fedrec_unlearn.errors import DataError


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Calls of `fedrec_unlearn.data.download.download`, which fetches nothing."""
    calls: list[Any] = []

    def download(name: str, folder: Path | None = None, *, progress: Any, accept_unverified: bool = False) -> Path:
        calls.append((name, folder, accept_unverified))
        for done in (1_000, 5_000_000):
            progress("ratings.zip", done, 5_000_000)
        progress("users.zip", 2_000, None)
        return folder or tmp_path / "cache" / name

    monkeypatch.setattr(download_module, "download", download)
    monkeypatch.setenv("FEDREC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDREC_DATA", raising=False)
    return calls


def test_the_list_has_every_card_and_what_is_here(fedrec: Any, fetched: list[Any]) -> None:
    told = fedrec("download", "--list")
    assert told.status == 0
    rows = {line.split()[0]: line.split()[-1] for line in told.out.splitlines()[2:] if line}
    assert set(rows) == set(card_names())
    assert rows["synthetic"] == "yes"
    assert rows["ml-1m"] == "no"
    assert not fetched


def test_licence_and_citation_are_told_before_the_download(fedrec: Any, fetched: list[Any], tmp_path: Path) -> None:
    told = fedrec("download", "ml-1m")
    assert (told.status, fetched) == (0, [("ml-1m", None, False)])
    assert told.err.index("Licence: ") < told.err.index("Cite: ") < told.err.index("ratings.zip: 5,000 kilobytes")
    assert "users.zip: done" in told.err
    assert told.out == f"MovieLens 1M: {tmp_path / 'cache' / 'ml-1m'}\n"


def test_a_folder_of_ones_own_is_named_in_the_next_step(fedrec: Any, fetched: list[Any]) -> None:
    told = fedrec("download", "ml-1m", "-o", "here", "--accept-unverified")
    assert fetched == [("ml-1m", Path("here"), True)]
    assert told.out.endswith("Next: fedrec train --data ml-1m --data-dir here\n")


def test_quiet_prints_the_folder_alone(fedrec: Any, fetched: list[Any]) -> None:
    told = fedrec("download", "ml-1m", "-o", "here", "-q")
    assert (told.out, told.err) == ("here\n", "")


def test_a_name_is_needed_and_must_be_known(fedrec: Any, fetched: list[Any]) -> None:
    told = fedrec("download")
    assert told.status == 2
    assert "which data set? fedrec download NAME" in told.err
    told = fedrec("download", "ml-1n")
    assert told.status == DataError.exit_code
    assert "did you mean" in told.err
    assert not fetched
