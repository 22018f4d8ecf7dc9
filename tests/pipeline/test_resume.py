"""A run that is stopped, in whatever way, and resumed is the run that never stopped, bit for bit."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from fedrec_unlearn.cli import main
from fedrec_unlearn.config import Config
from fedrec_unlearn.errors import RunError
from fedrec_unlearn.pipeline import resume, train
from fedrec_unlearn.progress import Interrupted, SilentProgress

MakeConfig = Callable[..., Config]
SameRun = Callable[[Path, Path], None]


def status_of(run: Path) -> str:
    return str(json.loads((run / "run.json").read_text())["status"])


def rounds_logged(run: Path) -> int:
    if not (run / "events.jsonl").exists():
        return 0
    return (run / "events.jsonl").read_bytes().count(b'"event": "round"')


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, quick_config: MakeConfig) -> Path:
    """The quick run, never stopped."""
    return train(quick_config(tmp_path_factory.mktemp("quick") / "run"))


def stopped(made: Config, progress: Any) -> Path:
    with pytest.raises(Interrupted) as told:
        train(made, progress=progress)
    assert status_of(told.value.run) == "interrupted"
    return told.value.run


# rounds 5 and 10 have a checkpoint, 3, 6 and 9 an evaluation
@pytest.mark.parametrize("after", [1, 3, 4, 5, 7, 9, 10, 11])
def test_one_ctrl_c_finishes_the_round_and_resuming_gives_the_same_bits(
    config: MakeConfig, assert_same_run: SameRun, stop_after: Any, quick: Path, after: int
) -> None:
    run = stopped(config("stopped"), stop_after(after))
    assert rounds_logged(run) == after
    assert json.loads((run / "run.json").read_text())["rounds_done"] == after
    assert resume(run) == run
    assert_same_run(quick, run)


@pytest.mark.parametrize("after", [2, 6, 8])
def test_two_ctrl_c_stop_at_once_and_resuming_gives_the_same_bits(
    config: MakeConfig, assert_same_run: SameRun, stop_after: Any, quick: Path, after: int
) -> None:
    run = stopped(config("stopped"), stop_after(after, times=2))
    resume(run)
    assert_same_run(quick, run)


@pytest.mark.parametrize(
    "options",
    [
        {"model.name": "ncf", "model.hidden_sizes": [8, 4]},
        {"model.name": "deepfm", "model.hidden_sizes": [8], "data.item_features": ["genre"]},
        {"federation.ring": True},
        {"federation.server_optimizer": "sgd", "federation.server_learning_rate": 1.0},
        {"federation.client_sampling": "uniform", "federation.local_epochs": 2},
        {"federation.engine": "reference", "federation.rounds": 5},
        {
            "federation.objective": "mse",
            "federation.user_learning_rate": 0.2,
            "evaluation.select_by": "rmse",
            "model.name": "fm",
        },
        {"evaluation.protocol": "sampled", "evaluation.sampled_negatives": 20},
        {"split.ratios": [0.8, 0.0, 0.2]},
    ],
    ids=["ncf", "deepfm", "ring", "sgd", "uniform", "reference", "mse", "sampled", "no validation"],
)
def test_every_kind_of_run_resumes_to_the_same_bits(
    config: MakeConfig, assert_same_run: SameRun, stop_after: Any, options: dict[str, Any]
) -> None:
    run = stopped(config("stopped", options), stop_after(4))
    resume(run)
    assert_same_run(train(config("whole", options)), run)


def test_a_run_may_be_stopped_again_and_again(
    config: MakeConfig, assert_same_run: SameRun, stop_after: Any, quick: Path
) -> None:
    run = stopped(config("stopped"), stop_after(2))
    for after in (3, 6, 7, 11):
        with pytest.raises(Interrupted):
            resume(run, progress=stop_after(after))
        assert rounds_logged(run) == after
    resume(run)
    assert_same_run(quick, run)


def test_ctrl_c_in_the_last_round_lets_the_run_finish(config: MakeConfig, stop_after: Any) -> None:
    run = train(config("run"), progress=stop_after(12))
    assert status_of(run) == "finished"


EARLY = {
    "federation.rounds": 500, "federation.server_learning_rate": 0.05, "evaluation.every": 2, "evaluation.patience": 3,
}  # fmt: skip


@pytest.mark.parametrize("back", [0, 1, 5])
def test_a_run_that_stops_early_stops_at_the_same_round_after_resuming(
    config: MakeConfig, assert_same_run: SameRun, stop_after: Any, back: int
) -> None:
    whole = train(config("whole", EARLY))
    last = json.loads((whole / "run.json").read_text())["rounds_done"]
    run = stopped(config("stopped", EARLY), stop_after(last - back))
    resume(run)
    assert_same_run(whole, run)


def test_the_signal_handler_of_before_is_put_back(config: MakeConfig, stop_after: Any) -> None:
    before = signal.getsignal(signal.SIGINT)
    stopped(config("run"), stop_after(1))
    assert signal.getsignal(signal.SIGINT) is before


# ---- kill -9: real processes, which get no chance to tidy up


def start(work: Callable[[], Any]) -> multiprocessing.process.BaseProcess:
    """A process of its own that does `work`; forked, so that it need not load torch again."""
    process = multiprocessing.get_context("fork").Process(target=work, daemon=True)
    process.start()
    return process


def kill_when(process: multiprocessing.process.BaseProcess, ready: Callable[[], bool], delay: float = 0.0) -> None:
    while process.is_alive() and not ready():
        time.sleep(0.0005)
    time.sleep(delay)
    process.kill()
    process.join()


def start_again_or_resume(run: Path, made: Config) -> None:
    """What a user does after a crash."""
    if not (run / "run.json").exists():
        with pytest.raises(RunError, match=r"run\.json is missing"):
            resume(run)
        train(made)
    elif status_of(run) != "finished":
        resume(run)


LONG = {"federation.rounds": 16, "federation.checkpoint_every": 1, "evaluation.every": 1, "evaluation.patience": 0}


def test_kill_9_at_random_moments(config: MakeConfig, assert_same_run: SameRun) -> None:
    whole = train(config("whole", LONG))
    draw = random.Random(3)
    killed_in_training = 0
    for number, rounds in enumerate((0, 1, 2, 6, 11, 14)):
        made = config(f"killed{number}", LONG)
        run = Path(made.output or "")
        process = start(lambda made=made: train(made))  # type: ignore[misc]
        kill_when(process, lambda run=run, n=rounds: rounds_logged(run) >= n, draw.random() * 0.01)  # type: ignore[misc]
        if not run.exists():
            train(made)
        else:
            killed_in_training += (run / "run.json").exists() and status_of(run) == "running"
            start_again_or_resume(run, made)
        assert_same_run(whole, run)
    assert killed_in_training >= 3


def dies_at(step: str, count: int, made: Config) -> None:
    """Trains until the `count`-th call of os.`step`, then is killed in it, before or after it has worked."""
    real, calls = getattr(os, step.removeprefix("after ")), 0

    def deadly(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count and not step.startswith("after"):
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*args, **options)
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(os, step.removeprefix("after "), deadly)
    train(made)


@pytest.mark.parametrize("step", ["fsync", "replace", "after replace"])
def test_kill_9_while_files_are_written(config: MakeConfig, assert_same_run: SameRun, step: str) -> None:
    options = {"federation.rounds": 4, "federation.checkpoint_every": 1, "evaluation.every": 1}
    whole = train(config("whole", options))
    left_over = deaths = 0
    # a run of four rounds writes some twenty files; every third serves
    for count in range(1, 40, 3):
        made = config(f"killed{count}", options)
        run = Path(made.output or "")
        process = start(lambda made=made, count=count: dies_at(step, count, made))  # type: ignore[misc]
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        deaths += 1
        left_over += any(path.suffix == ".part" for path in run.iterdir())
        start_again_or_resume(run, made)
        assert_same_run(whole, run)
    assert deaths >= 4
    assert step == "after replace" or left_over >= 2


def test_kill_9_after_any_file_of_a_run_without_validation_items(config: MakeConfig, assert_same_run: SameRun) -> None:
    options = {"federation.rounds": 1, "split.ratios": [0.8, 0.0, 0.2]}
    whole = train(config("whole", options))
    for count in range(1, 20):
        made = config(f"killed{count}", options)
        process = start(lambda made=made, count=count: dies_at("after replace", count, made))  # type: ignore[misc]
        process.join()
        if process.exitcode == 0:
            break
        start_again_or_resume(Path(made.output or ""), made)
        assert_same_run(whole, Path(made.output or ""))
    assert count > 6


def test_kill_9_of_the_command_and_resuming_by_the_command(config: MakeConfig, assert_same_run: SameRun) -> None:
    whole = train(config("whole", LONG | {"federation.rounds": 40}))
    made = config("killed", LONG | {"federation.rounds": 40})
    run = Path(made.output or "")
    given = run.parent / "config.yaml"
    given.write_bytes((whole / "config.yaml").read_bytes().replace(str(whole).encode(), str(run).encode()))
    command = subprocess.Popen([sys.executable, "-m", "fedrec_unlearn", "train", str(given), "-q"])
    while command.poll() is None and rounds_logged(run) < 2:
        time.sleep(0.001)
    command.kill()
    assert command.wait() == -signal.SIGKILL, "the run was over before it could be killed"
    assert status_of(run) == "running"
    process = start(lambda: main(["train", "--resume", str(run), "-q"]))
    kill_when(process, lambda: rounds_logged(run) >= 20)
    assert process.exitcode == -signal.SIGKILL
    assert status_of(run) == "running"
    assert main(["train", "--resume", str(run), "-q"]) == 0
    assert_same_run(whole, run)


# ---- what cannot be resumed


def test_a_finished_run_is_not_resumed(config: MakeConfig) -> None:
    run = train(config())
    with pytest.raises(RunError, match="is finished; start a new run, or attack and report this one"):
        resume(run)


def test_a_folder_that_is_no_run_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"run\.json is missing; is .* a run folder"):
        resume(tmp_path)


@pytest.fixture
def interrupted(config: MakeConfig, stop_after: Any, own_files: Path) -> Callable[..., Path]:
    """A run on files of the test's own, interrupted after round 4."""

    def make(**options: Any) -> Path:
        dotted = {name.replace("__", "."): value for name, value in options.items()}
        return stopped(config("run", {"data.dir": str(own_files), **dotted}), stop_after(4))

    return make


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_run_whose_interactions_have_changed_is_not_resumed(
    interrupted: Callable[..., Path], own_files: Path
) -> None:
    run = interrupted()
    lines = (own_files / "synthetic.inter").read_text().splitlines()
    (own_files / "synthetic.inter").write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(RunError, match=r"the data it was trained on has changed .* point \$FEDREC_DATA"):
        resume(run)
    assert status_of(run) == "interrupted"


def swap_first_rating(path: Path) -> None:
    lines = path.read_text().splitlines()
    fields = lines[1].split("\t")
    fields[2] = "1" if float(fields[2]) != 1 else "5"
    path.write_text("\n".join([lines[0], "\t".join(fields), *lines[2:]]) + "\n")


def test_changed_ratings_matter_where_ratings_are_trained_on(interrupted: Callable[..., Path], own_files: Path) -> None:
    run = interrupted(federation__objective="mse", evaluation__select_by="rmse", federation__user_learning_rate=0.2)
    swap_first_rating(own_files / "synthetic.inter")
    with pytest.raises(RunError, match="has changed"):
        resume(run)


def test_changed_ratings_do_not_matter_elsewhere(interrupted: Callable[..., Path], own_files: Path) -> None:
    run = interrupted()
    swap_first_rating(own_files / "synthetic.inter")
    resume(run)
    assert status_of(run) == "finished"


def test_changed_item_features_matter_to_a_model_that_reads_them(
    interrupted: Callable[..., Path], own_files: Path
) -> None:
    run = interrupted(model__name="fm", data__item_features=["genre"])
    lines = (own_files / "synthetic.item").read_text().splitlines()
    item = lines[1].split("\t")[0]
    (own_files / "synthetic.item").write_text("\n".join([lines[0], f"{item}\twestern horror", *lines[2:]]) + "\n")
    with pytest.raises(RunError, match="has changed"):
        resume(run)


@pytest.mark.parametrize("damage", ["cut", "empty", "junk"])
def test_a_damaged_checkpoint_is_told(interrupted: Callable[..., Path], damage: str) -> None:
    run = interrupted()
    path = run / "latest.safetensors"
    content = path.read_bytes()
    path.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "junk": b"\xff" * len(content)}[damage])
    with pytest.raises(RunError, match=r"latest\.safetensors is damaged or not a checkpoint .* train again"):
        resume(run)


def test_a_missing_checkpoint_is_told(interrupted: Callable[..., Path]) -> None:
    run = interrupted()
    (run / "latest.safetensors").unlink()
    with pytest.raises(RunError, match=r"latest\.safetensors is missing: .* train again into another folder"):
        resume(run)


def test_a_shortened_log_is_told(interrupted: Callable[..., Path]) -> None:
    run = interrupted()
    (run / "events.jsonl").write_text("")
    with pytest.raises(RunError, match=r"events\.jsonl has 0 bytes, the checkpoint was written after"):
        resume(run)


@pytest.mark.parametrize("content", ["", "{", "[]", "\xff"])
def test_a_damaged_run_json_is_told(interrupted: Callable[..., Path], content: str) -> None:
    run = interrupted()
    (run / "run.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(RunError, match=r"run\.json"):
        resume(run)


@pytest.mark.parametrize("data", [None, [], "x"])
def test_a_run_json_without_its_data_section_is_told(interrupted: Callable[..., Path], data: Any) -> None:
    run = interrupted()
    described = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**described, "data": data}))
    with pytest.raises(RunError, match=r"run\.json does not tell which data"):
        resume(run)


@pytest.mark.parametrize(
    ("old", "new"), [("server_optimizer: adam", "server_optimizer: sgd"), ("ring: false", "ring: true")]
)
def test_a_configuration_edited_against_its_checkpoint_is_told(
    interrupted: Callable[..., Path], old: str, new: str
) -> None:
    run = interrupted()
    edit(run / "config.yaml", old, new)
    with pytest.raises(RunError, match=r"another federation\.server_optimizer or federation\.ring"):
        resume(run)


def test_the_checkpoint_of_a_run_with_another_model_is_told(interrupted: Callable[..., Path]) -> None:
    run = interrupted()
    edit(run / "config.yaml", "embedding_dim: 8", "embedding_dim: 9")
    with pytest.raises(RunError, match="is it another run's"):
        resume(run)


class Watch(SilentProgress):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.steps: list[int] = []

    def message(self, text: str) -> None:
        self.said.append(text)

    def advance(self, step: int, fields: Mapping[str, float | str]) -> None:
        self.steps.append(step)


def test_resuming_says_where_it_goes_on_and_counts_from_there(config: MakeConfig, stop_after: Any) -> None:
    run, watch = stopped(config(), stop_after(7)), Watch()
    resume(run, progress=watch)
    assert watch.said == [f"resuming {run} after round 7"]
    assert watch.steps == [8, 9, 10, 11, 12]


def test_training_time_adds_up_over_the_parts(config: MakeConfig, stop_after: Any) -> None:
    run = stopped(config(), stop_after(7))
    resume(run)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    told = json.loads((run / "run.json").read_text())["train_seconds"]
    assert told >= sum(event["seconds"] for event in events if event["event"] == "round") - 0.001
    assert load_file(run / "latest.safetensors").keys() == load_file(run / "best.safetensors").keys()
