"""`attack`: attribute inference against a trained run, from every surface asked for."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrec_unlearn.attacks import infer_attribute, update_support, update_values
from fedrec_unlearn.config import AttackConfig
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.data import load_dataset
from fedrec_unlearn.errors import AttackError, DataError
from fedrec_unlearn.federation.run_folder import RunFolder, write_json
from fedrec_unlearn.federation.state import RunState
from fedrec_unlearn.federation.vectorised import VectorisedEngine
from fedrec_unlearn.pipeline.assembly import Assembly, reopen, torch_threads, trained_state
from fedrec_unlearn.progress import Progress, SilentProgress


def attack(run: Path, config: AttackConfig | None = None, *, progress: Progress | None = None) -> dict[str, Any]:
    """Infer user attributes from a trained run and write attack.json.

    Args:
        run: a run folder with a checkpoint (finished or not).
        config: which attributes, attackers and surfaces; unset: the run's own.
        progress: told after each fold.

    Returns:
        The content of attack.json, as docs/run-folder.md describes it.

    Raises:
        AttackError: the data has no such attribute, or it cannot be attacked.
        RunError: not a run folder, or its data has changed.
    """
    progress = progress or SilentProgress()
    folder = RunFolder(Path(run))
    run_config = load_config(folder.config)
    options = config or run_config.attack
    started = time.perf_counter()
    with torch_threads(run_config):
        folder, assembly = reopen(run)
        known = assembly.dataset.attributes
        names = options.attributes or tuple(known)
        if not set(names) <= known.keys():
            # a column that looks like an identifier, or is the same for all, is read only when asked for by name
            try:
                known = load_dataset(run_config.data, names).attributes
            except DataError as error:
                raise AttackError(f"attack.attributes: {error}") from error
        if not names:
            raise AttackError(f"{run_config.data.name!r} has no user attributes, so there is nothing to infer")
        state, _ = trained_state(folder, assembly)
        results = []
        for surface, features, users in _surfaces(options.surfaces, state, assembly):
            for name in names:
                attribute = known[name]
                progress.start(f"attack on {name} from {surface}", 0, "fold")
                try:
                    results += infer_attribute(
                        features,
                        attribute.labels[users],
                        attribute=name,
                        classes=attribute.classes,
                        surface=surface,
                        attackers=options.attackers,
                        folds=options.folds,
                        inner_folds=options.inner_folds,
                        seeds=options.seeds,
                        jobs=options.jobs,
                        progress=lambda done, total, attacker: progress.advance(done, {"attacker": attacker}),
                    )
                finally:
                    progress.finish()
    content = {
        "format": 1,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - started, 1),
        "round": state.server.rounds_done,
        "config": asdict(options),
        "results": [result.to_json() for result in results],
    }
    write_json(folder.attack, content)
    return content


def _surfaces(names: tuple[str, ...], state: RunState, assembly: Assembly) -> Iterator[tuple[str, Any, Any]]:
    """Name, features and user ids of each surface; users that never take part show nothing on the wire."""
    model = assembly.workload.model
    trained = assembly.workload.eligible()
    if "user_embedding" in names:
        rows = model.user_representation(state.private).cpu().to(torch.float64).numpy()
        yield "user_embedding", rows[trained], trained
    if "update_support" not in names and "update_values" not in names:
        return
    users, indptr, items, values = observe_round(state, assembly, with_values="update_values" in names)
    if "update_support" in names:
        yield "update_support", update_support(indptr, items, model.n_items), users
    if values is not None:
        yield "update_values", update_values(indptr, items, values), users


def observe_round(
    state: RunState, assembly: Assembly, with_values: bool
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """What each client would upload in the round after `state`: what a curious server reads under `plain` or `sparse`.

    Args:
        state: where the clients start from; not changed.
        assembly: the run.
        with_values: also collect the rows, not only their ids.

    Returns:
        users (n,), indptr (n + 1,), item ids (nnz,) and item row updates (nnz, width) or None.
    """
    work = assembly.workload
    users, counts, items, values = [], [], [], []
    for local, result in VectorisedEngine(work).observe(state, work.eligible(), state.server.rounds_done):
        users.append(local.users)
        counts.append(local.counts + local.pools)
        used = torch.zeros(len(result.block.items), dtype=torch.bool, device=local.users.device)
        used[result.block.pos_cells] = True
        used[result.block.neg_cells] = True
        items.append(result.block.items[used])
        if with_values:
            values.append(result.item_delta.reshape(len(result.block.items), -1)[used])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64, device=assembly.device), torch.cat(counts).cumsum(0)])
    rows = torch.cat(values).cpu().numpy() if with_values else None
    return torch.cat(users).cpu().numpy(), indptr.cpu().numpy(), torch.cat(items).cpu().numpy(), rows
