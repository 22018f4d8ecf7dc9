"""Does a file of a run folder hold what docs/run-folder.md says, as far as a report needs it?

Only the fields that a report reads are checked, and fields that are not known are let through, so that a
run of a later minor version can still be reported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrec_unlearn.errors import RunError

FORMAT = 1
"""Layout of run.json and attack.json that this version reads."""

ESTIMATES = ("balanced_accuracy", "macro_f1", "auc", "accuracy")
"""Quality measures of an attack that come with an interval."""


def is_number(value: object) -> bool:
    """True for int and float, false for bool (which Python counts among the integers)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def finite(value: object) -> float | None:
    """The number, or None for what is no finite number; whole numbers stay whole."""
    if not is_number(value):
        return None
    assert isinstance(value, int | float)
    return value if math.isfinite(value) else None


def _need(condition: bool, where: object, problem: str) -> None:
    if not condition:
        raise RunError(f"{where}: {problem}")


def _field(content: Mapping[str, Any], key: str, kind: str, where: object, *, required: bool = True) -> None:
    value = content.get(key)
    if value is None and not required:
        return
    fits = {
        "a number": is_number(value),
        "a whole number": isinstance(value, int) and not isinstance(value, bool),
        "a text": isinstance(value, str),
        "an object": isinstance(value, dict),
        "a list": isinstance(value, list),
        "true or false": isinstance(value, bool),
    }[kind]
    found = "missing" if key not in content else f"{str(value)[:40]!r}"
    _need(fits, where, f"{key!r} must be {kind}, but is {found}")


def _check_format(content: Mapping[str, Any], where: Path) -> None:
    _need(
        content.get("format") == FORMAT,
        where,
        f"has format {content.get('format')!r}, this version reads {FORMAT}; use the version that wrote the run",
    )


def check_run(run: Mapping[str, Any], path: Path) -> None:
    """Check run.json.

    Raises:
        RunError: a field is missing or of the wrong type.
    """
    _check_format(run, path)
    _field(run, "status", "a text", path)
    for key in ("name", "version", "created", "device"):
        _field(run, key, "a text", path, required=False)
    for key in ("seed", "rounds_done", "best_round"):
        _field(run, key, "a whole number", path, required=False)
    for key in ("train_seconds", "peak_memory_mib"):
        _field(run, key, "a number", path, required=False)
    _field(run, "stopped_early", "true or false", path, required=False)
    for key in ("data", "model"):
        _field(run, key, "an object", path, required=False)
        _field(run.get(key) or {}, "name", "a text", f"{path}: {key}", required=False)
    for key in ("n_users", "n_items", "n_train", "n_valid", "n_test"):
        _field(run.get("data") or {}, key, "a whole number", f"{path}: data", required=False)


def _check_values(values: object, where: str) -> None:
    _need(isinstance(values, dict), where, "must be an object of metric names and numbers")
    assert isinstance(values, dict)
    for name, value in values.items():
        _need(value is None or is_number(value), where, f"{name!r} must be a number, but is {str(value)[:40]!r}")


def check_event(event: object, where: str) -> None:
    """Check a line of events.jsonl; events of unknown kinds pass.

    Raises:
        RunError: a field is missing or of the wrong type.
    """
    _need(isinstance(event, dict), where, "must hold a JSON object")
    assert isinstance(event, dict)
    _field(event, "event", "a text", where)
    if event["event"] == "round":
        for key in ("round", "clients"):
            _field(event, key, "a whole number", where)
        for key in ("interactions", "loss", "seconds", "bytes_up", "bytes_down"):
            _field(event, key, "a number", where, required=False)
    elif event["event"] == "evaluation":
        _field(event, "round", "a whole number", where)
        _field(event, "part", "a text", where)
        _check_values(event.get("metrics"), f"{where}: metrics")


def check_metrics(metrics: Mapping[str, Any], path: Path) -> None:
    """Check metrics.json.

    Raises:
        RunError: a field is missing or of the wrong type.
    """
    _field(metrics, "best_round", "a whole number", path, required=False)
    _field(metrics, "selected_by", "a text", path, required=False)
    for part in ("valid", "test", "popularity"):
        if metrics.get(part) is not None:
            _check_values(metrics[part], f"{path}: {part}")


def check_attack(attack: Mapping[str, Any], path: Path) -> None:
    """Check attack.json.

    Raises:
        RunError: a field is missing or of the wrong type.
    """
    _check_format(attack, path)
    _field(attack, "config", "an object", path, required=False)
    _field(attack, "results", "a list", path)
    for number, result in enumerate(attack["results"]):
        where = f"{path}: results[{number}]"
        _need(isinstance(result, dict), where, "must be an object")
        for key in ("attribute", "surface", "attacker"):
            _field(result, key, "a text", where)
        for key in ("classes", "counts"):
            _field(result, key, "a list", where)
        _need(all(isinstance(c, str) for c in result["classes"]), where, "'classes' must be texts")
        _need(all(type(c) is int for c in result["counts"]), where, "'counts' must be whole numbers")
        _need(len(result["classes"]) == len(result["counts"]), where, "'classes' and 'counts' differ in length")
        for key in ("n_users", "n_missing"):
            _field(result, key, "a whole number", where, required=False)
        _field(result, "chance", "a number", where)
        _need(0 < result["chance"] < 1, where, f"'chance' must lie between 0 and 1, but is {result['chance']!r}")
        _field(result, "majority", "a number", where, required=False)
        for key in ESTIMATES:
            _field(result, key, "an object", where, required=key == "balanced_accuracy")
            for bound in ("mean", "low", "high"):
                needed = key == "balanced_accuracy" and bound == "mean"
                _field(result.get(key) or {}, bound, "a number", f"{where}: {key}", required=needed)
