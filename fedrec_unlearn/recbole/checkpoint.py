"""Checkpoints of a federated RecBole run: plain tensors and numbers, nothing of users but their rows.

RecBole's own checkpoints pickle its Config and keep the optimiser's moments of every user row, in which an attribute
survives whatever is done to the rows. These hold neither: private rows are moved by plain gradient steps, and what the
server's optimiser remembers is of item rows and dense parameters.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedrec_unlearn.errors import RunError
from fedrec_unlearn.federation.run_folder import write_atomic
from fedrec_unlearn.federation.state import RunState, ServerState
from fedrec_unlearn.recbole._compat import plain

FORMAT = 1


def config_values(config: Any) -> dict[str, Any]:
    """RecBole's configuration as plain values; what is none is stored as its text."""
    values = {}
    for key, value in config.final_config_dict.items():
        try:
            values[key] = plain(value, key)
        except RunError:
            values[key] = str(value)
    return values


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a checkpoint in the place of what may be there, whole or not at all.

    Raises:
        RunError: the file cannot be written, or the content is not plain.
    """
    buffer = io.BytesIO()
    torch.save(plain(dict(content), "checkpoint"), buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, buffer.getvalue())


def read(path: str | os.PathLike[str], device: torch.device) -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
        RunError: missing, damaged, or not one of these.
    """
    file = Path(path)
    if not file.is_file():
        raise RunError(f"{file} does not exist; save a checkpoint first (trainer.save, or fit with saved=True)")
    try:
        content = torch.load(file, map_location=device, weights_only=True)
    except Exception as error:
        raise RunError(
            f"{file} is damaged or no checkpoint of plain data ({type(error).__name__}); it may be one of RecBole's "
            "own, which are pickled: train again with FederatedTrainer"
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT or "state_dict" not in content:
        raise RunError(f"{file} is no checkpoint of a federated run (format {FORMAT})")
    return content


def server_values(state: RunState, keep_tables: bool) -> dict[str, Any]:
    """What the server remembers between rounds; with all tables where the model cannot hold them exactly.

    Args:
        state: of the run.
        keep_tables: ring mode computes in float64, which the model's float32 parameters would round.
    """
    server = state.server
    values: dict[str, Any] = {
        "rounds_done": server.rounds_done,
        "steps": server.steps,
        "moments": {name: value.detach().clone() for name, value in server.moments.items()},
    }
    if keep_tables:
        values["tables"] = {"private": state.private, "items": server.items, "dense": dict(server.dense)}
    return values


def restored(values: Mapping[str, Any], start: RunState, path: str | os.PathLike[str]) -> RunState:
    """The state of `server_values`, on tables that came from the model or from the file.

    Args:
        values: from a checkpoint.
        start: a state with the model's tables, for shapes and number format.
        path: for messages.

    Raises:
        RunError: the checkpoint's tensors do not fit the run.
    """
    tables = values.get("tables")
    private, items, dense = start.private, start.server.items, start.server.dense
    if tables is not None:
        private, items, dense = tables["private"], tables["items"], dict(tables["dense"])
    moments: dict[str, Tensor] = dict(values["moments"])
    pairs = [(private, start.private), (items, start.server.items)]
    pairs += [(value, start.server.moments.get(name, value[:0])) for name, value in moments.items()]
    if moments.keys() != start.server.moments.keys() or any(a.shape != b.shape for a, b in pairs):
        raise RunError(
            f"{path}: its tensors do not fit this run; open it with the model, data and options (learner, "
            "embedding_size, ...) it was trained with"
        )
    server = ServerState(
        items=items.to(start.server.items),
        dense={name: value.to(start.server.dense[name]) for name, value in dense.items()},
        rounds_done=int(values["rounds_done"]),
        steps=int(values["steps"]),
        moments={name: value.to(start.server.items) for name, value in moments.items()},
    )
    return RunState(server, private.to(start.private))
