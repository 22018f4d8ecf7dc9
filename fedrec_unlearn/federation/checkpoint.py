"""A state as one safetensors file: tensors, and everything else as JSON in its header.

One file, so that tensors and counters cannot disagree. Never pickle: reading a file runs no code from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fedrec_unlearn.errors import RunError
from fedrec_unlearn.federation.named_vector import NamedVector
from fedrec_unlearn.federation.run_folder import write_atomic
from fedrec_unlearn.federation.state import RunState, ServerState
from fedrec_unlearn.models import Recommender

_FORMAT = 1


@dataclass
class Standing:
    """How far a run has come, apart from its tensors."""

    best_value: float | None = None
    """Best validation value so far, None before the first evaluation."""
    best_round: int = 0
    """Rounds done when it was reached."""
    evaluations_without_gain: int = 0
    seconds: float = 0.0
    """Wall-clock seconds of training so far."""
    events_size: int = 0
    """Bytes of the event log that belong to this state."""


def save_state(path: Path, state: RunState, standing: Standing) -> None:
    """Write a checkpoint atomically.

    Raises:
        RunError: it cannot be written.
    """
    from safetensors.torch import save

    tensors = {
        "private": state.private,
        **state.server.parameters(),
        **{f"moment.{name}": value for name, value in state.server.named_moments().items()},
    }
    header = {
        "format": _FORMAT,
        "rounds_done": state.server.rounds_done,
        "steps": state.server.steps,
        "term_steps": state.server.term_steps,
        "rating_mean": state.rating_mean,
        "standing": asdict(standing),
    }
    content = save({name: value.cpu().contiguous() for name, value in tensors.items()}, {"fedrec": json.dumps(header)})
    write_atomic(path, content)


def load_state(
    path: Path, model: Recommender, device: torch.device, term_shapes: Mapping[str, tuple[int, ...]] | None = None
) -> tuple[RunState, Standing]:
    """Read a checkpoint.

    Args:
        path: written by `save_state`.
        model: the run's recommender; shapes are checked against it.
        device: where the tensors go.
        term_shapes: shared parameters of the run's term, if it has one.

    Raises:
        RunError: missing, damaged, of another format, or of another model.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            header = json.loads((file.metadata() or {})["fedrec"])
            # copied, so that they lie as torch places tensors: the last bit of a matrix product may depend on it
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError as error:
        raise RunError(
            f"{path} is missing: the run was stopped before its first checkpoint, or the file was removed; "
            "train again into another folder"
        ) from error
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise RunError(f"{path} is damaged or not a checkpoint of this package ({error}); train again") from error
    try:
        return _assemble(header, tensors, model, device, term_shapes or {})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{path} lacks a part of a checkpoint ({error}); train again") from error
    except RunError as error:
        raise RunError(f"{path}: {error}") from error


def _assemble(
    header: dict[str, Any],
    tensors: dict[str, torch.Tensor],
    model: Recommender,
    device: torch.device,
    term_shapes: Mapping[str, tuple[int, ...]],
) -> tuple[RunState, Standing]:
    if header["format"] != _FORMAT:
        raise RunError(
            f"checkpoint format {header['format']}, this version reads {_FORMAT}; use the version that wrote it"
        )
    placed = {name: value.to(device) for name, value in tensors.items()}
    expected = {
        "private": (model.n_users, model.user_layout.width),
        "items": (model.n_items, model.item_layout.width),
        **{f"dense.{name}": shape for name, shape in model.dense_shapes.items()},
        **{f"term.{name}": shape for name, shape in term_shapes.items()},
    }
    for name, shape in expected.items():
        if tuple(placed[name].shape) != tuple(shape):
            raise RunError(
                f"{name} has shape {tuple(placed[name].shape)}, the model needs {tuple(shape)}; is it another run's?"
            )
    moved = [name for name in expected if name != "private"]
    moments = {f"moment.{order}.{name}": name for name in moved for order in ("first", "second")}
    if not set(placed) - set(expected):
        moments = {}
    for name, of in moments.items():
        if placed[name].shape != placed[of].shape:
            raise RunError(f"{name} and {of} have different shapes; is it another run's?")
    if placed.keys() != expected.keys() | moments.keys() or len({value.dtype for value in placed.values()}) > 1:
        raise RunError("its tensors do not fit together; is it another run's?")
    kept = {name.removeprefix("moment."): value for name, value in placed.items() if name.startswith("moment.")}
    term = NamedVector.of({name: placed[f"term.{name}"] for name in term_shapes})
    if term and kept:
        for order in ("first", "second"):
            parts = {name: kept.pop(f"{order}.term.{name}") for name in term_shapes}
            kept[f"{order}.term"] = NamedVector.of(parts).flat
    server = ServerState(
        items=placed["items"],
        dense={name: placed[f"dense.{name}"] for name in model.dense_shapes},
        rounds_done=int(header["rounds_done"]),
        steps=int(header["steps"]),
        term=term,
        term_steps=int(header.get("term_steps", 0)),
        moments=kept,
    )
    return RunState(server, placed["private"], float(header["rating_mean"])), Standing(**header["standing"])
