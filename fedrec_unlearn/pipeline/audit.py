"""`attack`: attribute inference against a trained run, from every surface asked for."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrec_unlearn.attacks import (
    AttackResult,
    decoded_support,
    direction_features,
    infer_attribute,
    trajectory_features,
    update_support,
    update_values,
)
from fedrec_unlearn.config import RING_TRANSPORTS, AttackConfig
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.data import Attribute, load_dataset
from fedrec_unlearn.errors import AttackError, DataError
from fedrec_unlearn.federation.run_folder import RunFolder, read_json, write_json
from fedrec_unlearn.federation.state import RunState
from fedrec_unlearn.federation.vectorised import VectorisedEngine
from fedrec_unlearn.pipeline.assembly import Assembly, reopen, torch_threads, trained_state
from fedrec_unlearn.pipeline.selection import selection_users
from fedrec_unlearn.progress import Progress, SilentProgress


def attack(
    run: Path, config: AttackConfig | None = None, *, before: bool = False, progress: Progress | None = None
) -> dict[str, Any]:
    """Infer user attributes from a trained run and write attack.json.

    Args:
        run: a run folder with a checkpoint (finished or not).
        config: which attributes, attackers and surfaces; unset: the run's own.
        before: attack the state before unlearning as well.
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
        attributes = [known[name] for name in names]
        _need_clear(options.surfaces, run_config.federation.transport)
        state, _ = trained_state(folder, assembly)
        results = _attack_state(options, attributes, state, assembly, folder, progress, "")
        results_before = None
        if before:
            earlier, _ = trained_state(folder, assembly, "before")
            possible = options
            if (read_json(folder.run).get("unlearn") or {}).get("source"):
                # snapshots are those of this run's own rounds, which came after
                possible = replace(options, surfaces=_without_courses(options.surfaces))
            results_before = _attack_state(
                possible, attributes, earlier, assembly, folder, progress, " before unlearning"
            )
    content = {
        "format": 1,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - started, 1),
        "round": state.server.rounds_done,
        "config": asdict(options),
        "results": [result.to_json() for result in results],
    }
    if results_before is not None:
        content["before"] = [result.to_json() for result in results_before]
    write_json(folder.attack, content)
    return content


def _attack_state(
    options: AttackConfig,
    attributes: Sequence[Attribute],
    state: RunState,
    assembly: Assembly,
    folder: RunFolder,
    progress: Progress,
    when: str,
) -> list[AttackResult]:
    results = []
    audited = np.ones(assembly.dataset.n_users, dtype=np.bool_)
    if options.users == "audit":
        audited = ~selection_users(
            assembly.dataset.n_users, assembly.config.unlearn.selection_share, assembly.config.split.seed
        )
    for surface, features, users in _surfaces(options.surfaces, state, assembly, folder):
        kept = audited[users]
        for attribute in attributes:
            progress.start(f"attack on {attribute.name} from {surface}{when}", 0, "fold")
            try:
                results += infer_attribute(
                    features[kept],
                    attribute.labels[users[kept]],
                    attribute=attribute.name,
                    classes=attribute.classes,
                    surface=surface,
                    attackers=options.attackers,
                    folds=options.folds,
                    inner_folds=options.inner_folds,
                    seeds=options.seeds,
                    jobs=options.jobs,
                    control_shuffled=surface == "shuffled_labels",
                    progress=lambda done, total, attacker: progress.advance(done, {"attacker": attacker}),
                )
            finally:
                progress.finish()
    return results


def _surfaces(
    names: tuple[str, ...], state: RunState, assembly: Assembly, folder: RunFolder
) -> Iterator[tuple[str, Any, Any]]:
    """Name, features and user ids of each surface; users that never take part show nothing on the wire."""
    model = assembly.workload.model
    trained = assembly.workload.eligible()
    if "shuffled_labels" in names:
        yield "shuffled_labels", model.user_representation(state.private).cpu().double().numpy()[trained], trained
    if "trajectory" in names or "directions" in names:
        rows = _snapshots(state, assembly, folder)[:, trained]
        if "trajectory" in names:
            yield "trajectory", trajectory_features(rows), trained
        if "directions" in names:
            yield "directions", direction_features(rows), trained
    if "user_embedding" in names:
        rows = model.user_representation(state.private).cpu().to(torch.float64).numpy()
        yield "user_embedding", rows[trained], trained
    if not set(UPLOAD_SURFACES) & set(names):
        return
    users, indptr, items, values = observe_round(state, assembly, with_values="update_values" in names)
    if "update_support" in names:
        yield "update_support", update_support(indptr, items, model.n_items), users
    if "decoded_support" in names:
        yield "decoded_support", decoded_support(indptr, items, model.n_items, assembly.workload.num_negatives), users
    if values is not None:
        yield "update_values", update_values(indptr, items, values), users


def _need_clear(surfaces: tuple[str, ...], transport: str) -> None:
    """See that somebody sees what is to be attacked.

    Raises:
        AttackError: single uploads are to be read where servers add up shares.
    """
    hidden = [surface for surface in surfaces if surface in UPLOAD_SURFACES]
    if hidden and transport in RING_TRANSPORTS:
        raise AttackError(
            f"attack.surfaces: under the {transport} transport no server sees {', '.join(hidden)}, only sums over "
            "clients; leave them out, or train with federation.transport sparse to see what it protects"
        )


UPLOAD_SURFACES = ("update_support", "decoded_support", "update_values")
"""What a server reads from one user's upload."""


def _without_courses(surfaces: tuple[str, ...]) -> tuple[str, ...]:
    """The surfaces that one state shows.

    Raises:
        AttackError: none is left.
    """
    left = tuple(surface for surface in surfaces if surface not in ("trajectory", "directions"))
    if not left:
        raise AttackError(
            "attack: before has no trajectory or directions where unlearning started from another run, whose snapshots "
            "stayed with it; attack that run, or name another surface"
        )
    return left


SNAPSHOTS = 5
"""Private rows an attacker on a user's trajectory has seen."""


def _snapshots(state: RunState, assembly: Assembly, folder: RunFolder) -> np.ndarray[Any, Any]:
    """What an attacker saw of each user at five moments, the last being the state attacked: (5, n_users, width)."""
    rounds = [r for r in folder.snapshot_rounds(state.server.rounds_done) if r != state.server.rounds_done]
    if len(rounds) < SNAPSHOTS - 1:
        raise AttackError(
            f"attack.surfaces: trajectory and directions need {SNAPSHOTS - 1} snapshots before the state attacked; "
            f"{folder.path} has {len(rounds)}: train with federation.snapshot_every, for example "
            f"{max(1, state.server.rounds_done // SNAPSHOTS)}"
        )
    chosen = [rounds[k] for k in np.linspace(0, len(rounds) - 1, SNAPSHOTS - 1).round().astype(int)]
    model = assembly.workload.model
    rows = [folder.read_snapshot(number).to(state.private) for number in chosen] + [state.private]
    return np.stack([model.user_representation(private).cpu().double().numpy() for private in rows])


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
    # a state before unlearning has no adversaries
    work = assembly.workload if state.server.term else replace(assembly.workload, term=None)
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
