from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn import errors
from fedrec_unlearn.errors import FedRecError


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["trian"], "unknown verb 'trian'; did you mean train?"),
        (["xyzzy"], "unknown verb 'xyzzy'; verbs are run, train, "),
        (["my.yaml"], "no verb before the configuration; write fedrec run my.yaml"),
        (["--rounds", "5", "train"], "the verb comes first: fedrec VERB --rounds ..."),
        (["train", "--rouns", "5"], "unknown option --rouns; did you mean --rounds"),
        (["train", "--lr=1"], "unknown option --lr; did you mean --federation.client-learning-rate?"),
        (["train", "--federation.local_epoch", "5"], "did you mean --federation.local-epochs"),
        (["train", "--xyzzy"], "unknown option --xyzzy; see fedrec train --help"),
        (["attack", "runs/a", "--rounds", "5"], "unknown option --rounds; see fedrec attack --help"),
        (["train", "--round", "5"], "unknown option --round; did you mean --rounds"),
        (["train", "--rounds"], "--rounds/--federation.rounds: expected one argument; see fedrec train --help"),
        (["train", "--rounds", "many"], "federation.rounds: expected an integer, not the text 'many'"),
        (["train", "--rounds", "0"], "federation.rounds: must be at least 1"),
        (["train", "--model", "svd"], "model.name: expected one of mf, ncf, fm, deepfm, pfedrec, not the text 'svd'"),
        (["train", "demo", "--attributes", "gender", "age"], "'age'; lists are written with commas"),
        (["train", "--resume", "runs/a", "--rounds", "5"], "leave out --federation.rounds, or start a new run"),
        (["train", "demo", "--resume", "runs/a"], "leave out demo, or start a new run"),
        (["attack"], "the following arguments are required: RUN; see fedrec attack --help"),
        (["export", "runs/a", "users.csv"], "must end in .npz, for example users.npz"),
        (["export", "runs/a", "u.npz", "--part", "last"], "invalid choice: 'last'"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_arguments_ends_with_status_2_and_a_remedy(
    fedrec: Any, pipeline: Any, words: list[str], problem: str
) -> None:
    told = fedrec(*words)
    assert told.status == 2
    assert told.out == ""
    assert told.err.startswith("fedrec: error: ")
    assert problem in told.err
    assert told.err.count("\n") == 1
    assert not pipeline.calls


def test_a_mistake_in_a_file_is_told_with_its_line(fedrec: Any, pipeline: Any) -> None:
    Path("a.yaml").write_text("federation:\n  rouns: 5\n", encoding="utf-8")
    told = fedrec("train", "a.yaml")
    assert told.status == 2
    assert told.err == "fedrec: error: a.yaml:2: unknown option federation.rouns; did you mean federation.rounds?\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["attack", "runs/aa"], "no run folder runs/aa; did you mean runs/a?"),
        (["report", "a"], "no run folder a; did you mean runs/a?"),
        (["report", "runs"], "runs is not a run folder (it has no run.json); runs inside it: runs/a"),
        (["report", "empty"], "empty is not a run folder (it has no run.json); fedrec train makes one"),
        (["attack", "runs/a/run.json"], "runs/a/run.json is a file; name the run folder that holds it: runs/a"),
        (["train", "--resume", "nowhere"], "no run folder nowhere; fedrec train makes one"),
    ],
)
def test_a_folder_that_is_no_run_ends_with_the_status_of_its_error(
    fedrec: Any, pipeline: Any, run_folder: Any, words: list[str], problem: str
) -> None:
    run_folder("runs/a")
    Path("empty").mkdir()
    told = fedrec(*words)
    assert told.status == errors.RunError.exit_code
    assert told.err == f"fedrec: error: {problem}\n"
    assert not pipeline.calls


@pytest.mark.parametrize("kind", [FedRecError, *FedRecError.__subclasses__()], ids=lambda kind: kind.__name__)
def test_errors_of_the_work_end_with_their_own_status(fedrec: Any, pipeline: Any, kind: type[FedRecError]) -> None:
    pipeline.error = kind("the users are missing; bring them")
    told = fedrec("train")
    assert told.status == kind.exit_code
    assert told.err == "fedrec: error: the users are missing; bring them\n"


def test_statuses_tell_the_errors_apart() -> None:
    codes = [kind.exit_code for kind in FedRecError.__subclasses__()]
    assert len(codes) == len(set(codes))
    assert 0 not in codes


def test_an_unexpected_error_is_one_line_and_the_traceback_on_request(fedrec: Any, pipeline: Any) -> None:
    pipeline.error = ZeroDivisionError("division by zero")
    told = fedrec("train")
    assert told.status == 1
    assert told.err.startswith("fedrec: error: unexpected ZeroDivisionError: division by zero\n")
    assert "--debug" in told.err
    assert "Traceback" not in told.err
    for words in (("train", "--debug"), ("--debug", "train")):
        told = fedrec(*words)
        assert told.status == 1
        assert "Traceback" in told.err
        assert "in train" in told.err


def test_trouble_of_the_system_is_told_in_its_words(fedrec: Any, pipeline: Any) -> None:
    pipeline.error = OSError(errno.ENOSPC, "No space left on device", "runs/a/latest.safetensors")
    told = fedrec("train")
    assert told.status == 1
    assert told.err == "fedrec: error: No space left on device: runs/a/latest.safetensors\n"


def test_lack_of_memory_names_the_options_that_need_less(fedrec: Any, pipeline: Any) -> None:
    pipeline.error = MemoryError()
    told = fedrec("train")
    assert told.status == 1
    assert "--federation.block-mib" in told.err


def test_a_warning_is_one_line(fedrec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import warnings

    from fedrec_unlearn.cli import doctor

    def warn(args: Any) -> int:
        warnings.warn("3 users were left out", stacklevel=1)
        return 0

    monkeypatch.setattr(doctor, "run", warn)
    shown = warnings.showwarning
    told = fedrec("doctor")
    assert told.err == "fedrec: warning: 3 users were left out\n"
    assert warnings.showwarning is shown
