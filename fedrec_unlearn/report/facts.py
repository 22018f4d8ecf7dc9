"""What was run: data, model, rounds, machine, and the options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedrec_unlearn.report.checks import finite
from fedrec_unlearn.report.methods import method_of
from fedrec_unlearn.report.record import RunRecord
from fedrec_unlearn.report.wording import listed, printable, strength

Facts = dict[str, str | float | int | bool | None]
"""Fact -> value; the keys are those of report.json."""


def facts_of(record: RunRecord) -> Facts:
    """What was run, from run.json and, where that is silent, from the configuration; None where neither tells."""
    run, config = record.run, record.config
    data, model = run.get("data") or {}, run.get("model") or {}
    unlearn = run.get("unlearn") or {}

    def option(section: str, name: str) -> Any:
        found = config.get(section)
        return found.get(name) if isinstance(found, Mapping) else None

    return {
        "status": _text(run["status"]),
        "data": _text(data.get("name") or option("data", "name")),
        "model": _text(model.get("name") or option("model", "name")),
        "embedding_dim": finite(option("model", "embedding_dim")),
        "objective": _text(option("federation", "objective")),
        "transport": _text(option("federation", "transport")),
        "engine": _text(option("federation", "engine")),
        "unlearned": _unlearned(unlearn) if unlearn.get("method", "none") != "none" else None,
        "n_users": finite(data.get("n_users")),
        "n_items": finite(data.get("n_items")),
        "n_train": finite(data.get("n_train")),
        "n_valid": finite(data.get("n_valid")),
        "n_test": finite(data.get("n_test")),
        "clients_per_round": finite(option("federation", "clients_per_round")),
        "rounds_done": finite(run.get("rounds_done")),
        "rounds_planned": finite(option("federation", "rounds")),
        "best_round": finite(run.get("best_round")),
        "stopped_early": run.get("stopped_early"),
        "device": _text(run.get("device")),
        "seed": finite(run.get("seed", config.get("seed"))),
        "train_seconds": finite(run.get("train_seconds")),
        "peak_memory_mib": finite(run.get("peak_memory_mib")),
        "created": _text(run.get("created")),
        "version": _text(run.get("version")),
    }


def options_of(config: Mapping[str, Any]) -> dict[str, str]:
    """The configuration, flat and as text: `federation.rounds` -> `600`."""
    return dict(_flat(config))


def _unlearned(unlearn: Mapping[str, Any]) -> str:
    name = method_of(printable(unlearn["method"])).name
    epsilon = finite(unlearn.get("epsilon"))
    strong = f", ε {strength(epsilon)}" if epsilon else ""
    return f"{listed([printable(a) for a in unlearn['attributes']] or ['nothing'])} ({name}{strong})"


def _text(value: object) -> str | None:
    return None if value is None else printable(str(value))


def _flat(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    options: list[tuple[str, str]] = []
    for key, value in config.items():
        name = printable(f"{prefix}{key}")
        if isinstance(value, Mapping):
            options.extend(_flat(value, f"{name}."))
        else:
            options.append((name, "unset" if value is None else printable(str(value))))
    return options
