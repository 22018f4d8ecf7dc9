"""`report`, `export` and `run`: what a user takes away from a run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrec_unlearn.config import Config
from fedrec_unlearn.errors import DependencyError, RunError
from fedrec_unlearn.federation.run_folder import RunFolder, read_json, write_atomic
from fedrec_unlearn.pipeline.assembly import reopen, trained_state
from fedrec_unlearn.pipeline.audit import attack
from fedrec_unlearn.pipeline.training import train
from fedrec_unlearn.progress import Progress, SilentProgress

if TYPE_CHECKING:
    from fedrec_unlearn.report import Users


@dataclass(frozen=True)
class RunResult:
    """What `run` made."""

    run: Path
    """The run folder."""
    report: Path
    """The HTML report."""
    metrics: dict[str, Any]
    """metrics.json."""
    attack: dict[str, Any] | None
    """attack.json, None for data without user attributes."""


def report(runs: Sequence[Path], output: Path | None = None) -> Path:
    """Write one report on one run, or on several side by side.

    Args:
        runs: run folders.
        output: folder or .html file; unset: the run's own folder, or ./report for several.

    Returns:
        The HTML file; JSON and CSV of the same figures lie beside it.

    Raises:
        RunError: a folder is not a run, or the report cannot be written.
        DependencyError: the `report` extra is not installed.
    """
    missing = [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        raise DependencyError(f"reports need {' and '.join(missing)}: pip install 'fedrec-unlearn[report]'")
    from fedrec_unlearn.report import read_run, write_report

    if not runs:
        raise RunError("a report needs at least one run folder")
    records = []
    for run in runs:
        read_json(RunFolder(Path(run)).run)
        folder = RunFolder(Path(run))
        users = _users(folder, "best") if folder.latest.exists() else None
        earlier = _users(folder, "before") if folder.before.exists() else None
        records.append(read_run(folder.path, users, earlier))
    target = output or (Path(runs[0]) if len(runs) == 1 else Path("report"))
    return write_report(records, Path(target))[0]


def _users(folder: RunFolder, part: str) -> Users:
    """What a report shows of the users in a state of a run."""
    from fedrec_unlearn.report import Users

    table = _users_table(folder.path, part)
    names = [name.removeprefix("classes_") for name in table if name.startswith("classes_")]
    attributes = {name: (tuple(table[f"classes_{name}"].tolist()), table[f"attribute_{name}"]) for name in names}
    return Users(table["user_ids"], table["representation"], attributes)


def export(run: Path, output: Path, *, part: str = "best") -> Path:
    """Write user ids, what an attacker would see of each user, and attributes, for any outside tool.

    Args:
        run: a run folder.
        output: an .npz file with `user_ids` (n,), `representation` float32 (n, width), and for each attribute
            `attribute_<name>` int64 (n,), -1 where unknown, and `classes_<name>`. No pickled objects.
        part: `best` (by validation; after unlearning, where it comes afterwards), `latest`, or `before` unlearning.

    Raises:
        RunError: not a run folder, or the file cannot be written.
    """
    output = Path(output)
    if output.suffix != ".npz":
        raise RunError(f"{output}: give a file name that ends in .npz")
    table = _users_table(Path(run), part)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **table)  # type: ignore[arg-type]
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{output.parent} could not be made: {error.strerror}") from error
    write_atomic(output, buffer.getvalue())
    return output


def _users_table(run: Path, part: str) -> dict[str, np.ndarray[Any, Any]]:
    folder, assembly = reopen(run)
    state, _ = trained_state(folder, assembly, part)
    dataset = assembly.dataset
    table: dict[str, np.ndarray[Any, Any]] = {
        "user_ids": np.asarray(dataset.user_tokens, dtype=np.str_),
        "representation": assembly.workload.model.user_representation(state.private).cpu().float().numpy(),
    }
    for name, attribute in dataset.attributes.items():
        table[f"attribute_{name}"] = attribute.labels
        table[f"classes_{name}"] = np.asarray(attribute.classes, dtype=np.str_)
    return table


def run(config: Config, *, progress: Progress | None = None) -> RunResult:
    """Train, attack and report in one go.

    Args:
        config: every option; `attack` says what is inferred.
        progress: told of every step.

    Raises:
        FedRecError: as `train`, `attack` and `report`.
    """
    progress = progress or SilentProgress()
    folder = train(config, progress=progress)
    described = read_json(RunFolder(folder).run)
    found = None
    if described["data"]["attributes"]:
        found = attack(folder, config.attack, before=RunFolder(folder).before.exists(), progress=progress)
    else:
        progress.message(f"{config.data.name} has no user attributes; the attack is left out")
    page = report([folder])
    return RunResult(folder, page, read_json(RunFolder(folder).metrics), found)


def sweep_page(content: dict[str, Any], output: Path) -> Path:
    """Write the page of a sweep beside its sweep.json.

    Args:
        content: what `sweep` returned.
        output: its folder.

    Returns:
        The page; sweep.json where the `report` extra is not installed.

    Raises:
        RunError: it cannot be written.
    """
    if any(find_spec(name) is None for name in ("jinja2", "matplotlib")):
        return output / "sweep.json"
    from fedrec_unlearn.report import write_sweep

    return write_sweep(content, output)[0]
