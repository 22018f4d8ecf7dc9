"""`train` and `resume`: from a configuration to a finished run folder."""

from __future__ import annotations

import datetime
import platform
import resource
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import fedrec_unlearn
from fedrec_unlearn.config import Config
from fedrec_unlearn.config_file import dump_config, load_config
from fedrec_unlearn.errors import FedRecError, RunError
from fedrec_unlearn.federation.checkpoint import Standing, save_state
from fedrec_unlearn.federation.cohort import Cohorts
from fedrec_unlearn.federation.exchange import ExchangeTransport
from fedrec_unlearn.federation.run_folder import RunFolder, read_json, write_atomic, write_json
from fedrec_unlearn.federation.state import RunState, initial_state
from fedrec_unlearn.federation.training import train_rounds
from fedrec_unlearn.pipeline.afterwards import apply_afterwards, without_term
from fedrec_unlearn.pipeline.assembly import Assembly, reopen, torch_threads, trained_state
from fedrec_unlearn.pipeline.secemb import privacy_spent
from fedrec_unlearn.pipeline.terms import attributes_to_unlearn
from fedrec_unlearn.privacy.accounting import PrivacySpent
from fedrec_unlearn.progress import Interrupted, Progress, SilentProgress


def train(config: Config, *, progress: Progress | None = None) -> Path:
    """Train a federated recommender.

    Args:
        config: every option of the run.
        progress: told of every round.

    Returns:
        The run folder, with the files docs/run-folder.md describes.

    Raises:
        Interrupted: Ctrl-C; the run can be resumed.
        FedRecError: anything wrong with the configuration, the data, the device or the folder; all but disk
            trouble and divergence are told before training starts.
    """
    progress = progress or SilentProgress()
    with torch_threads(config):
        chosen = config.unlearn.adversarial and config.unlearn.epsilon == 0
        if chosen:
            from fedrec_unlearn.pipeline.selection import choose_epsilon

            trials = Path(f"{config.output or f'runs/{config.data.name}-{config.unlearn.method}'}-sweep")
            config = replace(config, unlearn=choose_epsilon(config, trials, None, progress))
        assembly = Assembly.of(config)
        work = assembly.workload
        if config.unlearn.attributes and not config.unlearn.adversarial:
            attributes_to_unlearn(config, assembly.dataset)  # what cannot be unlearned is told before training
        cohorts = Cohorts(work.eligible(), config.federation, config.seed)
        assembly.evaluator.prepare()
        state = initial_state(work.model, config, assembly.device, assembly.rating_mean)
        if work.term is not None:
            state.server.add_term(work.term.initial(config.seed), config.federation)
        privacy = None
        if isinstance(work.transport, ExchangeTransport):
            for size in cohorts.sizes:
                work.transport.check(state.server, work.empty(state.server), size)
            privacy = privacy_spent(config, len(cohorts.eligible))
        stem = f"{config.data.name}-{config.model.name}"
        folder = RunFolder.create(Path(config.output)) if config.output else RunFolder.next_in(Path("runs"), stem)
        write_atomic(folder.config, dump_config(config).encode())
        standing = Standing()
        save_state(folder.latest, state, standing)
        described = describe(folder, assembly)
        described["privacy"] = _describe_privacy(privacy)
        if chosen:
            described["unlearn"]["chosen"] = True
        write_json(folder.run, described)  # last: from here on the run can be resumed
        progress.message(opening(assembly))
        if privacy is not None:
            progress.message(privacy.statement())
        if not assembly.evaluator.holds("valid"):
            progress.message(
                "no validation items: training does not stop early, and the last round is kept as the best one"
            )
        return go_on(folder, assembly, state, standing, progress)


def resume(run: Path, *, progress: Progress | None = None) -> Path:
    """Go on with a run that was interrupted or killed, to the bits it would have had.

    Args:
        run: its folder.
        progress: told of every round.

    Raises:
        RunError: not a run, already finished, or its data has changed.
        Interrupted: Ctrl-C again.
    """
    progress = progress or SilentProgress()
    folder = RunFolder(Path(run))
    if read_json(folder.run).get("status") == "finished":
        raise RunError(f"{folder.path} is finished; start a new run, or attack and report this one")
    with torch_threads(load_config(folder.config)):
        folder, assembly = reopen(run)
        state, standing = assembly.load(folder.latest)
        _need_same_optimizer(folder, assembly, state)
        folder.sweep()
        folder.cut_events(standing.events_size)
        folder.update_run(status="running")
        progress.message(f"resuming {folder.path} after round {state.server.rounds_done}")
        return go_on(folder, assembly, state, standing, progress)


def _need_same_optimizer(folder: RunFolder, assembly: Assembly, state: RunState) -> None:
    options = assembly.config.federation
    dtype = torch.float64 if options.ring else torch.float32
    if bool(state.server.moments) != (options.server_optimizer == "adam") or state.private.dtype != dtype:
        raise RunError(
            f"{folder.latest} was written under another federation.server_optimizer or federation.ring than "
            f"{folder.config} has now; restore the configuration or train again"
        )


def _trains(folder: RunFolder, assembly: Assembly) -> bool:
    """Whether the run has rounds of its own: not when it only changes the rows of another run."""
    started_from = (read_json(folder.run).get("unlearn") or {}).get("source")
    return started_from is None or assembly.config.unlearn.adversarial


def go_on(folder: RunFolder, assembly: Assembly, state: RunState, standing: Standing, progress: Progress) -> Path:
    """Train from wherever a run stands to its end, and write its results."""
    try:
        stopped = False
        if _trains(folder, assembly):
            stopped = train_rounds(
                assembly.workload, state, standing, assembly.config, assembly.evaluator, folder, progress
            )
        _finish(folder, assembly, state, standing, stopped, progress)
    except Interrupted:
        folder.update_run(status="interrupted", rounds_done=state.server.rounds_done)
        raise
    except KeyboardInterrupt as error:
        # in the middle of a round: the last checkpoint stands
        folder.update_run(status="interrupted")
        raise Interrupted(folder.path) from error
    except Exception:
        _mark_failed(folder)
        raise
    return folder.path


def _mark_failed(folder: RunFolder) -> None:
    try:
        folder.update_run(status="failed")
    except FedRecError:
        return  # the folder itself is the trouble, and that is what the user will be told


def _finish(
    folder: RunFolder,
    assembly: Assembly,
    state: RunState,
    standing: Standing,
    stopped: bool,
    progress: Progress,
) -> None:
    rounds_done = state.server.rounds_done
    if standing.best_value is None:  # nothing to validate on: the last round is all there is
        save_state(folder.best, state, standing)
        standing.best_round = rounds_done
    if assembly.config.unlearn.afterwards:
        _unlearn_afterwards(folder, assembly, standing, progress)
    best, _ = trained_state(folder, assembly)
    evaluator = assembly.evaluator
    metrics: dict[str, Any] = {
        "best_round": standing.best_round,
        "selected_by": evaluator.select_by,
        "valid": evaluator.evaluate(best, "valid"),
        "test": evaluator.evaluate(best, "test"),
        "popularity": evaluator.popularity("test"),
    }
    if folder.before.exists():
        metrics["before"] = evaluator.evaluate(trained_state(folder, assembly, "before")[0], "test")
    write_json(folder.metrics, metrics)
    folder.update_run(
        status="finished",
        rounds_done=rounds_done,
        best_round=standing.best_round,
        stopped_early=stopped,
        train_seconds=round(standing.seconds, 3),
        peak_memory_mib=round(_peak_memory_mib(), 1),
    )


def _unlearn_afterwards(folder: RunFolder, assembly: Assembly, standing: Standing, progress: Progress) -> None:
    """Apply the method's step after training to the best state; repeating it changes nothing.

    The state it starts from is written first, so that a process killed in between starts from it again.
    """
    if not folder.trained.exists():
        save_state(folder.trained, trained_state(folder, assembly)[0], standing)
    state, _ = assembly.load(folder.trained)
    if not folder.before.exists() and not assembly.config.unlearn.adversarial:
        save_state(folder.before, without_term(state), standing)
    changed, told = apply_afterwards(assembly, state, progress)
    save_state(folder.best, changed, standing)
    folder.update_run(unlearn={**read_json(folder.run)["unlearn"], **told})


def describe(folder: RunFolder, assembly: Assembly) -> dict[str, Any]:
    """The content of a new run's run.json."""
    return {
        "format": 1,
        "status": "running",
        "name": folder.path.name,
        "version": fedrec_unlearn.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": str(assembly.device),
        "seed": assembly.config.seed,
        "rounds_done": 0,
        "best_round": None,
        "stopped_early": None,
        "train_seconds": None,
        "peak_memory_mib": None,
        "data": assembly.describe_data(),
        "model": assembly.describe_model(),
        "unlearn": _describe_unlearning(assembly),
        "privacy": None,
    }


def _describe_privacy(found: PrivacySpent | None) -> dict[str, Any] | None:
    """What the noise of all rounds promises, or None without noise; fewer rounds spend less."""
    if found is None:
        return None
    return {
        "epsilon": found.epsilon,
        "delta": found.delta,
        "noise_multiplier": found.noise_multiplier,
        "rounds": found.schedule.rounds,
        "accountant": found.accountant,
        "assumes": list(found.assumes),
    }


def _describe_unlearning(assembly: Assembly) -> dict[str, Any] | None:
    options = assembly.config.unlearn
    if options.method == "none":
        return None
    labels = {name: assembly.dataset.attributes[name].labels for name in options.attributes}
    return {
        "method": options.method,
        "attributes": list(options.attributes),
        "epsilon": options.epsilon if options.adversarial else None,
        "chosen": False,
        "source": None,
        "secure_sums": options.secure_sums,
        "seconds": 0.0,
        "bytes_up": 0,
        "bytes_down": 0,
        "known": {name: int((values >= 0).sum()) for name, values in labels.items()},
        "missing": {name: int((values < 0).sum()) for name, values in labels.items()},
        "pooled_rows": False,
    }


def opening(assembly: Assembly) -> str:
    """What is about to be trained, in one line."""
    data, work = assembly.dataset, assembly.workload
    cohort = assembly.config.federation.clients_per_round or len(work.eligible())
    return (
        f"{assembly.config.data.name}: {data.n_users:,} users, {data.n_items:,} items, "
        f"{len(assembly.split.train.items):,} training interactions; {work.model.name} on {assembly.device}, "
        f"{min(cohort, data.n_users):,} clients a round, {work.config.engine} engine"
    )


def _peak_memory_mib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
