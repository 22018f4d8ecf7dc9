"""What goes wrong, as the user of the command sees it: one paragraph that names the remedy, and the exit status."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedrec_unlearn.cli import main
from fedrec_unlearn.config import Config
from fedrec_unlearn.pipeline import results, train

WORDS = ("train", "--quiet", "--data", "synthetic", "--rounds", "3", "--federation.checkpoint-every", "1")


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs the command in a folder of its own, checks status and form of its message, and returns the message."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, status: int) -> str:
        capsys.readouterr()
        assert main(list(words)) == status
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith("fedrec: error: ")
        assert "Traceback" not in told.err
        assert "defect of fedrec" not in told.err
        assert "\n\n" not in told.err
        return told.err.removeprefix("fedrec: error: ").rstrip("\n")

    return run


def test_an_unknown_option_suggests_the_nearest(fails: Any, tmp_path: Path) -> None:
    told = fails(*WORDS, "--federation.rouns", "3", status=2)
    assert told.startswith("unknown option --federation.rouns; did you mean --federation.rounds")
    (tmp_path / "mine.yaml").write_text("data: {name: synthetic}\nevaluation:\n  top_k: [5]\n")
    told = fails("train", "mine.yaml", status=2)
    assert told == "mine.yaml:3: unknown option evaluation.top_k; did you mean evaluation.topk?"
    assert not (tmp_path / "runs").exists()


def test_a_missing_configuration_is_told(fails: Any) -> None:
    assert "nowhere.yaml" in fails("train", "nowhere.yaml", status=2)


def test_missing_data_lists_where_it_was_looked_for_and_how_to_get_it(fails: Any, tmp_path: Path) -> None:
    told = fails(*WORDS, "--data-dir", "nowhere", status=3)
    assert told == "data.dir: nowhere does not exist; give the folder with the files of synthetic"
    told = fails("train", "--data", "no-such-set", status=3)
    assert "was not found. Looked at:" in told
    assert "--data-dir FOLDER" in told
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("1\t2", "2 fields, expected 4 fields separated by tabs"),
        ("1\t2\tfive\t1", "five"),
        ("\t2\t3\t1", "empty"),
        ("1\t2\t\x00\t1", ""),
    ],
)
def test_a_corrupt_line_is_told_with_file_and_number(fails: Any, own_files: Path, line: str, problem: str) -> None:
    lines = (own_files / "synthetic.inter").read_text().splitlines()
    lines[6] = line
    (own_files / "synthetic.inter").write_text("\n".join(lines) + "\n")
    told = fails(*WORDS, "--data-dir", str(own_files), status=3)
    assert told.startswith(f"{own_files / 'synthetic.inter'}:7: ")
    assert problem in told


@pytest.mark.parametrize("content", [b"", b"\xff\x00\x80" * 500, b"\x1f\x8b not really gzip"])
def test_a_corrupt_file_is_told_by_name(fails: Any, own_files: Path, content: bytes) -> None:
    (own_files / "synthetic.inter").write_bytes(content)
    told = fails(*WORDS, "--data-dir", str(own_files), status=3)
    assert str(own_files) in told


def test_a_list_longer_than_the_catalogue_tells_its_size(fails: Any, tmp_path: Path) -> None:
    told = fails(*WORDS, "--evaluation.topk", "10,500", status=2)
    assert told == "evaluation.topk: K=500 is larger than the catalogue, n_items=149; choose at most 149"
    assert not (tmp_path / "runs").exists()


def test_more_negatives_than_untouched_items_are_told_before_training(fails: Any, tmp_path: Path) -> None:
    told = fails(*WORDS, "--evaluation.protocol", "sampled", "--evaluation.sampled-negatives", "140", status=2)
    assert "evaluation.sampled_negatives: 140 negatives cannot be drawn" in told
    assert "choose at most" in told
    assert not (tmp_path / "runs").exists()


def test_an_absent_gpu_names_the_devices_to_use(fails: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    told = fails(*WORDS, "--device", "cuda", status=8)
    assert told.startswith("device: 'cuda' was asked for, but the installed torch")
    assert "use --device auto or cpu" in told
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert "cuda:2" in fails(*WORDS, "--device", "cuda:2", status=8)
    assert fails(*WORDS, "--device", "cuda:x", status=2).endswith("use auto, cpu, cuda or cuda:N")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("when", [1, 5, 9, 13, 20])
def test_a_full_disk_asks_for_space_and_the_run_can_go_on(
    fails: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    real, calls = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls > when:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        told = fails(*WORDS, "-o", "run", status=5)
    assert "could not be written: the disk is full; free some space. Nothing written before is lost." in told
    assert told.startswith("run/")
    assert not list((tmp_path / "run").glob(".*"))
    started = (tmp_path / "run" / "run.json").exists()
    assert main(["train", "--quiet", "--resume", "run"] if started else [*WORDS, "-o", "run"]) == 0


def mount(place: Path, options: str) -> None:
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("mounting a file system takes root")
    place.mkdir()
    tried = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"this machine lets nobody mount: {tried.stderr.strip()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a small file system."""
    place = tmp_path / "disk"

    def make(options: str) -> Path:
        mount(place, options)
        return place

    yield make
    if place.is_mount():
        subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_really_fills_up_in_training_fails_the_run_which_then_goes_on(
    fails: Any, disk: Callable[[str], Path]
) -> None:
    # a state takes about 70 KB: there is room for the first, not for the second while the first is kept
    place = disk("size=120k")
    told = fails(*WORDS, "--embedding-dim", "40", "-o", str(place / "run"), status=5)
    assert "the disk is full; free some space" in told
    assert json.loads((place / "run" / "run.json").read_text())["status"] == "failed"
    subprocess.run(["mount", "-o", "remount,size=2m", str(place)], check=True)
    assert main(["train", "--quiet", "--resume", str(place / "run")]) == 0
    assert json.loads((place / "run" / "run.json").read_text())["status"] == "finished"


def test_a_read_only_disk_names_the_option_that_helps(fails: Any, disk: Callable[[str], Path]) -> None:
    place = disk("ro,size=64k")
    told = fails(*WORDS, "-o", str(place / "run"), status=5)
    assert "the file system is read-only; choose another folder with --output" in told


def test_a_read_only_folder_names_the_option_that_helps(fails: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", denied)
    for words in (("-o", "run"), ()):
        assert "permission denied; choose another folder with --output" in fails(*WORDS, *words, status=5)


def test_a_folder_in_use_is_told_and_a_run_in_it_may_go_on(fails: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    told = fails(*WORDS, "-o", "run", status=5)
    assert told == "run exists and is not empty; choose another folder with --output"
    (tmp_path / "run" / "run.json").write_text("{}")
    told = fails(*WORDS, "-o", "run", status=5)
    assert told.endswith("choose another folder with --output, or go on with it: fedrec train --resume run")


@pytest.fixture
def finished(config: Callable[..., Config]) -> Path:
    return train(config("finished", {"federation.rounds": 1}))


def test_a_finished_run_is_not_resumed(fails: Any, finished: Path) -> None:
    assert "is finished; start a new run" in fails("train", "--resume", str(finished), status=5)


def test_a_damaged_checkpoint_is_told(fails: Any, finished: Path) -> None:
    (finished / "best.safetensors").write_bytes(b"junk")
    assert "best.safetensors is damaged or not a checkpoint" in fails("attack", str(finished), status=5)


def test_an_unknown_attribute_lists_the_known(fails: Any, finished: Path) -> None:
    told = fails("attack", str(finished), "--attributes", "shoe_size", status=7)
    assert "has no user attribute 'shoe_size'; it has age, gender, noise" in told


def test_a_missing_run_says_how_to_make_one(fails: Any) -> None:
    for verb in ("attack", "report"):
        assert fails(verb, "runs/nothing", status=5) == "no run folder runs/nothing; fedrec train makes one"


def test_a_run_without_its_configuration_is_told(fails: Any, finished: Path) -> None:
    (finished / "config.yaml").unlink()
    assert str(finished / "config.yaml") in fails("attack", str(finished), "--attributes", "gender", status=2)


def test_a_diverged_run_names_the_rates_to_lower(fails: Any) -> None:
    told = fails(
        *WORDS, "--objective", "mse", "--evaluation.select-by", "rmse", "--federation.user-learning-rate", "1e6",
        "--federation.local-epochs", "9", "--federation.client-learning-rate", "1e6", "-o", "run", status=5,
    )  # fmt: skip
    assert "diverged" in told
    assert "federation.user_learning_rate" in told


def test_nothing_of_all_this_touches_the_global_generators(finished: Path) -> None:
    before = str(np.random.get_state(legacy=False)), torch.random.get_rng_state()
    assert main([*WORDS, "-o", str(finished.parent / "again")]) == 0
    assert str(np.random.get_state(legacy=False)) == before[0]
    assert torch.equal(torch.random.get_rng_state(), before[1])


@pytest.mark.parametrize("absent", [["jinja2"], ["matplotlib"], ["jinja2", "matplotlib"]])
def test_a_report_without_its_extra_says_what_to_install(
    fails: Any, finished: Path, monkeypatch: pytest.MonkeyPatch, absent: list[str]
) -> None:
    monkeypatch.setattr(results, "find_spec", lambda name: None if name in absent else object())
    told = fails("report", str(finished), status=8)
    assert told == f"reports need {' and '.join(absent)}: pip install 'fedrec-unlearn[report]'"
