"""`unlearn`: from a trained run to a run without the attribute; and the step after training, where a method has one."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedrec_unlearn.config import AFTERWARDS, Config, UnlearnConfig
from fedrec_unlearn.config_file import dump_config, load_config
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.federation.checkpoint import Standing, save_state
from fedrec_unlearn.federation.cohort import Cohorts
from fedrec_unlearn.federation.engine import make_engine
from fedrec_unlearn.federation.run_folder import RunFolder, write_atomic, write_json
from fedrec_unlearn.federation.state import RunState, apply_contribution
from fedrec_unlearn.pipeline.assembly import Assembly, reopen, torch_threads, trained_state
from fedrec_unlearn.pipeline.terms import attributes_to_unlearn
from fedrec_unlearn.pipeline.training import describe, go_on, opening
from fedrec_unlearn.progress import Progress, SilentProgress


def unlearn(
    run: Path,
    config: UnlearnConfig,
    *,
    output: Path | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Remove user attributes from a trained run; the result is a run of its own.

    Adversarial methods train on from the run's best state for `config.further_rounds` rounds and keep the last; the
    others change its private rows once. The new folder also keeps the state before, so that both can be attacked.

    Args:
        run: a run folder with a checkpoint; it is not changed.
        config: method, attributes and their options.
        output: the new run folder; unset: beside `run`, named after it and the method.
        seed: of everything random in unlearning; unset: the run's.
        progress: told of every round.

    Returns:
        The new run folder.

    Raises:
        ConfigError: no method, or an attribute that cannot be unlearned.
        RunError: not a run folder, or its data has changed.
        FedRecError: as `train`.
    """
    progress = progress or SilentProgress()
    source = RunFolder(Path(run))
    before = load_config(source.config)
    if config.method == "none":
        raise ConfigError("unlearn.method: none changes nothing; name a method, for example moments or fedau2")
    with torch_threads(before):
        _, trained = reopen(source.path)
        state, standing = trained_state(source, trained)
        if config.adversarial and config.epsilon == 0:
            from fedrec_unlearn.pipeline.selection import choose_epsilon

            folder_of_trials = Path(f"{output or f'{source.path}-{config.method}'}-sweep")
            config, chosen = (
                choose_epsilon(replace(before, unlearn=config), folder_of_trials, source.path, progress),
                True,
            )
        else:
            chosen = False
        target = replace(
            before,
            seed=before.seed if seed is None else seed,
            output=None if output is None else str(output),
            unlearn=config,
            federation=replace(before.federation, rounds=config.further_rounds)
            if config.adversarial
            else before.federation,
            evaluation=replace(before.evaluation, keep="last") if config.adversarial else before.evaluation,
        )
        assembly = Assembly.of(target)
        attributes_to_unlearn(target, assembly.dataset)
        folder = (
            RunFolder.create(Path(output))
            if output is not None
            else RunFolder.next_in(source.path.parent, f"{source.path.name}-{config.method}")
        )
        write_atomic(folder.config, dump_config(target).encode())
        bare = without_term(state)
        save_state(folder.before, bare, standing)
        start = without_term(state)
        if config.adversarial:
            start.server.rounds_done = 0
            assert assembly.workload.term is not None
            start.server.add_term(assembly.workload.term.initial(target.seed), target.federation)
        fresh = Standing()
        save_state(folder.latest, start, fresh)
        described = describe(folder, assembly)
        described["unlearn"] |= {"source": source.path.name, "chosen": chosen}
        write_json(folder.run, described)
        progress.message(f"{opening(assembly)}; unlearning {', '.join(config.attributes)} by {config.method}")
        return go_on(folder, assembly, start, fresh, progress)


def without_term(state: RunState) -> RunState:
    """A copy of a state without the parameters of adversaries."""
    return replace(state, server=state.server.copy_without_term(), private=state.private.clone())


def apply_afterwards(assembly: Assembly, state: RunState, progress: Progress) -> tuple[RunState, dict[str, Any]]:
    """The step after training of the methods that have one.

    Args:
        assembly: of the run, with its configuration.
        state: after training; not changed.
        progress: told of the rounds of item training that may follow.

    Returns:
        the new state, and the fields of run.json's `unlearn` it fills in.
    """
    from fedrec_unlearn.unlearning.afterwards import change_rows

    config = assembly.config
    assert config.unlearn.method in AFTERWARDS
    started = time.perf_counter()
    attributes = attributes_quietly(config, assembly)
    changed = replace(without_term(state), server=state.server)
    trained = torch.from_numpy(assembly.workload.eligible()).to(state.private.device)
    rows = change_rows(
        state.private.index_select(0, trained),
        [replace(a, labels=a.labels[trained.cpu().numpy()]) for a in attributes],
        config.unlearn,
        items=score_directions(assembly, state),
        seed=config.seed,
    )
    changed.private.index_copy_(0, trained, rows.rows.to(changed.private))
    if config.unlearn.item_rounds:
        changed = replace(changed, server=without_term(state).server)
        train_items(assembly, changed, config.unlearn.item_rounds, progress)
    return changed, {
        "seconds": round(time.perf_counter() - started, 3),
        "bytes_up": rows.bytes_up,
        "bytes_down": rows.bytes_down,
        "pooled_rows": rows.pooled,
    }


def score_directions(assembly: Assembly, state: RunState) -> torch.Tensor | None:
    """What a private row is multiplied with to score each item, (m, private row width).

    Up to an offset that does not depend on the item, so that a column of zeros stands for a user's bias. None where
    the score is not linear in the private row.
    """
    model = assembly.workload.model
    if model.head_widths:
        return None
    with torch.no_grad():
        parts = model.item_layout.parts(state.server.items)
        factors = model.item_tower(parts, state.server.dense, assembly.workload.features).factors
    missing = model.user_layout.width - factors.shape[1]
    return torch.nn.functional.pad(factors, (0, missing)) if missing >= 0 else None


def attributes_quietly(config: Config, assembly: Assembly) -> list[Any]:
    """`attributes_to_unlearn` without repeating its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return attributes_to_unlearn(config, assembly.dataset)


def train_items(assembly: Assembly, state: RunState, rounds: int, progress: Progress) -> None:
    """Train item rows and dense parameters on, with private rows frozen; changes `state` in place."""
    work = replace(assembly.workload, frozen=True, term=None)
    engine = make_engine(work)
    cohorts = Cohorts(work.eligible(), work.config, assembly.config.seed)
    first = state.server.rounds_done
    progress.start("item rows after unlearning", rounds, "round")
    try:
        for number in range(first, first + rounds):
            contribution = engine.train_clients(state, cohorts.of(number), number)
            apply_contribution(state.server, contribution, work.config)
            progress.advance(number - first + 1, {"loss": contribution.mean_loss})
    finally:
        progress.finish()
