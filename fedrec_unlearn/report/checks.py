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


def need(condition: bool, where: object, problem: str) -> None:
    """Refuse a file unless the condition holds.

    Raises:
        RunError: it does not.
    """
    if not condition:
        raise RunError(f"{where}: {problem}")


def field(content: Mapping[str, Any], key: str, kind: str, where: object, *, required: bool = True) -> None:
    """Check the type of a field; where it is not required, null and absence pass.

    Raises:
        RunError: it is missing or of another type.
    """
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
    need(fits, where, f"{key!r} must be {kind}, but is {found}")


def check_format(content: Mapping[str, Any], where: object) -> None:
    """Check that this version reads the layout.

    Raises:
        RunError: it does not.
    """
    need(
        content.get("format") == FORMAT,
        where,
        f"has format {content.get('format')!r}, this version reads {FORMAT}; use the version that wrote the run",
    )


def check_run(run: Mapping[str, Any], path: Path) -> None:
    """Check run.json.

    Raises:
        RunError: a field is missing or of the wrong type.
    """
    check_format(run, path)
    field(run, "status", "a text", path)
    for key in ("name", "version", "created", "device"):
        field(run, key, "a text", path, required=False)
    for key in ("seed", "rounds_done", "best_round"):
        field(run, key, "a whole number", path, required=False)
    for key in ("train_seconds", "peak_memory_mib"):
        field(run, key, "a number", path, required=False)
    field(run, "stopped_early", "true or false", path, required=False)
    for key in ("data", "model"):
        field(run, key, "an object", path, required=False)
        field(run.get(key) or {}, "name", "a text", f"{path}: {key}", required=False)
    for key in ("n_users", "n_items", "n_train", "n_valid", "n_test"):
        field(run.get("data") or {}, key, "a whole number", f"{path}: data", required=False)
    field(run, "unlearn", "an object", path, required=False)
    if run.get("unlearn"):
        _check_unlearn(run["unlearn"], f"{path}: unlearn")


def _check_unlearn(unlearn: Mapping[str, Any], where: str) -> None:
    field(unlearn, "method", "a text", where)
    field(unlearn, "attributes", "a list", where)
    need(all(isinstance(name, str) for name in unlearn["attributes"]), where, "'attributes' must be texts")
    for key in ("epsilon", "seconds", "bytes_up", "bytes_down"):
        field(unlearn, key, "a number", where, required=False)
    for key in ("chosen", "secure_sums", "pooled_rows"):
        field(unlearn, key, "true or false", where, required=False)
    field(unlearn, "source", "a text", where, required=False)
    for key in ("known", "missing"):
        field(unlearn, key, "an object", where, required=False)
        for name in unlearn.get(key) or {}:
            field(unlearn[key], name, "a whole number", f"{where}: {key}", required=False)


def _check_values(values: object, where: str) -> None:
    need(isinstance(values, dict), where, "must be an object of metric names and numbers")
    assert isinstance(values, dict)
    for name, value in values.items():
        need(value is None or is_number(value), where, f"{name!r} must be a number, but is {str(value)[:40]!r}")


def check_event(event: object, where: str) -> None:
    """Check a line of events.jsonl; events of unknown kinds pass.

    Raises:
        RunError: a field is missing or of the wrong type.
    """
    need(isinstance(event, dict), where, "must hold a JSON object")
    assert isinstance(event, dict)
    field(event, "event", "a text", where)
    if event["event"] == "round":
        for key in ("round", "clients"):
            field(event, key, "a whole number", where)
        for key in ("interactions", "loss", "seconds", "bytes_up", "bytes_down"):
            field(event, key, "a number", where, required=False)
        field(event, "adversary", "an object", where, required=False)
        for name, group in (event.get("adversary") or {}).items():
            need(isinstance(group, dict), f"{where}: adversary", f"{name!r} must be an object")
            for key in ("clients", "loss", "accuracy"):
                field(group, key, "a number", f"{where}: adversary: {name}", required=False)
    elif event["event"] == "evaluation":
        field(event, "round", "a whole number", where)
        field(event, "part", "a text", where)
        _check_values(event.get("metrics"), f"{where}: metrics")


def check_metrics(metrics: Mapping[str, Any], path: Path) -> None:
    """Check metrics.json.

    Raises:
        RunError: a field is missing or of the wrong type.
    """
    field(metrics, "best_round", "a whole number", path, required=False)
    field(metrics, "selected_by", "a text", path, required=False)
    for part in ("valid", "test", "popularity", "before"):
        if metrics.get(part) is not None:
            _check_values(metrics[part], f"{path}: {part}")


def check_attack(attack: Mapping[str, Any], path: Path) -> None:
    """Check attack.json.

    Raises:
        RunError: a field is missing or of the wrong type.
    """
    check_format(attack, path)
    field(attack, "config", "an object", path, required=False)
    field(attack, "results", "a list", path)
    field(attack, "before", "a list", path, required=False)
    for part in ("results", "before"):
        check_results(attack.get(part) or [], f"{path}: {part}")


def check_results(results: list[Any], part: str) -> None:
    """Check entries of an attack.

    Raises:
        RunError: a field is missing or of the wrong type.
    """
    for number, result in enumerate(results):
        where = f"{part}[{number}]"
        need(isinstance(result, dict), where, "must be an object")
        for key in ("attribute", "surface", "attacker"):
            field(result, key, "a text", where)
        for key in ("classes", "counts"):
            field(result, key, "a list", where)
        need(all(isinstance(c, str) for c in result["classes"]), where, "'classes' must be texts")
        need(all(type(c) is int for c in result["counts"]), where, "'counts' must be whole numbers")
        need(len(result["classes"]) == len(result["counts"]), where, "'classes' and 'counts' differ in length")
        for key in ("n_users", "n_missing"):
            field(result, key, "a whole number", where, required=False)
        field(result, "chance", "a number", where)
        need(0 < result["chance"] < 1, where, f"'chance' must lie between 0 and 1, but is {result['chance']!r}")
        field(result, "majority", "a number", where, required=False)
        for key in ESTIMATES:
            field(result, key, "an object", where, required=key == "balanced_accuracy")
            for bound in ("mean", "low", "high"):
                needed = key == "balanced_accuracy" and bound == "mean"
                field(result.get(key) or {}, bound, "a number", f"{where}: {key}", required=needed)
