"""What a report is made from: the files of a run folder as they are, checked once when they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.errors import RunError
from fedrec_unlearn.report.checks import check_attack, check_event, check_metrics, check_run


@dataclass(frozen=True)
class Users:
    """User embeddings and attributes, for the projection."""

    user_ids: NDArray[np.str_]
    """Shape (n_users,). They name users in error messages only: no report shows them."""
    representation: NDArray[np.float32]
    """Shape (n_users, width): what an attacker would see of each user."""
    attributes: dict[str, tuple[tuple[str, ...], NDArray[np.int64]]]
    """Attribute name -> (names of the classes, labels of shape (n_users,); -1 = not known)."""

    def __post_init__(self) -> None:
        shape = self.representation.shape
        if len(shape) != 2 or shape[0] != len(self.user_ids) or 0 in shape:
            raise RunError(
                f"representation has shape {shape}, but there are {len(self.user_ids)} user ids; "
                "give one row a user and at least one column"
            )
        finite = np.isfinite(self.representation).all(axis=1)
        if not finite.all():
            first = self.user_ids[int(np.argmin(finite))]
            raise RunError(
                f"the representation of {int((~finite).sum())} user(s), first {first!r}, holds NaN or infinity: "
                "training diverged; lower the learning rates"
            )
        for name, (classes, labels) in self.attributes.items():
            if labels.shape != (shape[0],):
                raise RunError(f"attribute {name!r} has labels of shape {labels.shape}, not ({shape[0]},)")
            if labels.min() < -1 or labels.max() >= len(classes):
                raise RunError(f"attribute {name!r} has a label outside -1..{len(classes) - 1}")


@dataclass(frozen=True)
class RunRecord:
    """One run folder in memory; `read_run` makes it."""

    folder: Path
    config: dict[str, Any]
    """config.yaml."""
    run: dict[str, Any]
    """run.json."""
    metrics: dict[str, Any] | None
    """metrics.json, None while the run is in progress."""
    events: list[dict[str, Any]]
    """events.jsonl, in file order."""
    attack: dict[str, Any] | None
    """attack.json, None before `fedrec attack`."""
    users: Users | None = None
    users_before: Users | None = None
    """The same users before unlearning."""

    def __post_init__(self) -> None:
        if self.users is None or self.users_before is None:
            return
        after, before = self.users, self.users_before
        if not np.array_equal(after.user_ids, before.user_ids):
            raise RunError(f"{self.folder}: users and users_before are not the same users in the same order")
        if after.representation.shape[1] != before.representation.shape[1]:
            raise RunError(
                f"{self.folder}: users have embeddings of length {after.representation.shape[1]}, users_before of "
                f"length {before.representation.shape[1]}; both must come from the same model"
            )


def read_run(folder: Path, users: Users | None = None, users_before: Users | None = None) -> RunRecord:
    """Read a run folder, which may belong to a run still in progress.

    `run.json` and `config.yaml` must be there. Without `metrics.json`, `attack.json` or `events.jsonl` the
    report leaves the sections out and says so. A last line of `events.jsonl` that is still being written is
    ignored.

    Args:
        folder: written by `fedrec train`.
        users: embeddings and attributes for the projection, if it is wanted.
        users_before: the same users before unlearning, for a projection of both on the same axes.

    Raises:
        RunError: a file is missing, is not what docs/run-folder.md describes, or cannot be read; the message
            names the file and, for `events.jsonl`, the line.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise RunError(f"{folder}: no such folder; give a run folder, as written by `fedrec train`")
    if not (folder / "run.json").is_file():
        raise RunError(f"{folder}: no run.json, so this is not a run folder; give one written by `fedrec train`")
    run = _json_object(folder / "run.json")
    check_run(run, folder / "run.json")
    config = _yaml_mapping(folder / "config.yaml")
    metrics = _json_object(folder / "metrics.json") if (folder / "metrics.json").is_file() else None
    if metrics is not None:
        check_metrics(metrics, folder / "metrics.json")
    attack = _json_object(folder / "attack.json") if (folder / "attack.json").is_file() else None
    if attack is not None:
        check_attack(attack, folder / "attack.json")
    return RunRecord(folder, config, run, metrics, _events(folder / "events.jsonl"), attack, users, users_before)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror or error}") from error


def _json_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_bytes(path))
    except UnicodeDecodeError as error:
        raise RunError(f"{path}: not UTF-8 text at byte {error.start}; restore the file or repeat the run") from error
    except (json.JSONDecodeError, RecursionError) as error:
        line = f"{path}:{error.lineno}" if isinstance(error, json.JSONDecodeError) else f"{path}"
        what = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        raise RunError(f"{line}: not valid JSON ({what}); restore the file or repeat the run") from error
    if not isinstance(content, dict):
        raise RunError(f"{path}: must hold a JSON object, not {type(content).__name__}")
    return content


def _yaml_mapping(path: Path) -> dict[str, Any]:
    import yaml

    if not path.is_file():
        raise RunError(f"{path}: missing; a run folder holds its resolved configuration there")
    try:
        content = yaml.safe_load(_bytes(path))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else f"{path}"
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be parsed"
        raise RunError(f"{where}: not valid YAML ({what})") from error
    if not isinstance(content, Mapping):
        raise RunError(f"{path}: must hold options and values (a YAML mapping), not {type(content).__name__}")
    return dict(content)


def _events(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    events = []
    lines = _bytes(path).split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                # no newline yet: the trainer is still writing it, or was killed while it did
                break
            raise RunError(f"{path}:{number}: not valid JSON; remove the line or repeat the run") from error
        check_event(event, f"{path}:{number}")
        events.append(event)
    return events
