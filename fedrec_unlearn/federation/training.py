"""The rounds of a run: clients train, the server moves, validation decides which round is kept."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedrec_unlearn.config import Config
from fedrec_unlearn.federation.checkpoint import Standing, save_state
from fedrec_unlearn.federation.cohort import Cohorts
from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.engine import Workload, make_engine
from fedrec_unlearn.federation.evaluation import Evaluator
from fedrec_unlearn.federation.run_folder import RunFolder
from fedrec_unlearn.federation.state import RunState, apply_contribution
from fedrec_unlearn.progress import Interrupted, Progress


@contextmanager
def finish_round_first() -> Iterator[threading.Event]:
    """While active, the first Ctrl-C only sets the event it yields; the second one interrupts at once.

    Signals reach the main thread alone; elsewhere the event simply stays unset.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.getsignal(signal.SIGINT)

    def on_interrupt(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def train_rounds(
    work: Workload,
    state: RunState,
    standing: Standing,
    config: Config,
    evaluator: Evaluator,
    folder: RunFolder,
    progress: Progress,
) -> bool:
    """Train until the rounds are done or validation stops improving, from wherever `state` stands.

    A round's randomness depends on its number alone, so going on from a checkpoint gives the same bits as never
    having stopped.

    Args:
        work: what clients do.
        state: changed in place.
        standing: how far the run has come; changed in place.
        config: rounds, evaluation and checkpoint intervals.
        evaluator: judges states.
        folder: receives events and checkpoints.
        progress: told of every round.

    Returns:
        whether training stopped before its last round.

    Raises:
        Interrupted: Ctrl-C; the folder then holds a checkpoint of the last finished round.
        RunError: training diverged, or the folder cannot be written.
    """
    options = config.federation
    cohorts = Cohorts(work.eligible(), options, config.seed)
    engine = make_engine(work)
    server = state.server
    progress.start(folder.path.name, options.rounds, "round")
    try:
        with finish_round_first() as asked:
            while server.rounds_done < options.rounds:
                if _exhausted(standing, config):
                    _checkpoint(state, standing, folder)
                    return True
                started = time.perf_counter()
                number = server.rounds_done
                contribution = engine.train_clients(state, cohorts.of(number), number)
                rate = 0.0 if work.term is None else work.term.server_learning_rate
                apply_contribution(server, contribution, options, rate)
                seconds = time.perf_counter() - started
                fields: dict[str, float | str] = {"loss": contribution.mean_loss}
                folder.append_event(
                    {
                        "event": "round",
                        "round": server.rounds_done,
                        "clients": contribution.clients,
                        "interactions": contribution.interactions,
                        "loss": contribution.mean_loss,
                        "seconds": round(seconds, 6),
                        "bytes_up": contribution.bytes_up,
                        "bytes_down": contribution.bytes_down,
                        **contribution.traffic,
                        **_term_fields(contribution),
                    }
                )
                if evaluator.holds("valid") and _due(server.rounds_done, config):
                    fields |= _evaluate(state, standing, evaluator, folder, config.evaluation.keep == "last")
                standing.seconds += time.perf_counter() - started
                progress.advance(server.rounds_done, fields)
                if options.snapshot_every and server.rounds_done % options.snapshot_every == 0:
                    folder.add_snapshot(server.rounds_done, state.private)
                last = server.rounds_done == options.rounds
                if server.rounds_done % options.checkpoint_every == 0 or last or asked.is_set():
                    _checkpoint(state, standing, folder)
                if asked.is_set() and not last:
                    raise Interrupted(folder.path)
        return False
    finally:
        progress.finish()


def _term_fields(contribution: Contribution) -> dict[str, dict[str, dict[str, float]]]:
    """What a round tells of each adversary: clients that know their class, mean loss, share judged rightly."""
    adversaries = {
        group: {
            "clients": sums.known,
            "loss": sums.loss * contribution.scale / sums.known if sums.known else float("nan"),
            "accuracy": sums.correct / sums.known if sums.known else float("nan"),
        }
        for group, sums in contribution.term_sums.items()
    }
    return {"adversary": adversaries} if adversaries else {}


def _checkpoint(state: RunState, standing: Standing, folder: RunFolder) -> None:
    standing.events_size = folder.events_size()
    save_state(folder.latest, state, standing)


def _due(rounds_done: int, config: Config) -> bool:
    if rounds_done == config.federation.rounds:
        return True
    return config.evaluation.every > 0 and rounds_done % config.evaluation.every == 0


def _exhausted(standing: Standing, config: Config) -> bool:
    patience = config.evaluation.patience
    if config.evaluation.keep == "last":
        return False
    return patience > 0 and standing.evaluations_without_gain >= patience


def _evaluate(
    state: RunState, standing: Standing, evaluator: Evaluator, folder: RunFolder, keep_last: bool
) -> dict[str, float]:
    """Judge a state on validation data and keep it if it is the best, or in any case."""
    started = time.perf_counter()
    metrics = evaluator.evaluate(state, "valid")
    value = metrics[evaluator.select_by]
    best = keep_last or evaluator.better(value, standing.best_value)
    if best:
        standing.best_value, standing.best_round = value, state.server.rounds_done
        standing.evaluations_without_gain = 0
    else:
        standing.evaluations_without_gain += 1
    folder.append_event(
        {
            "event": "evaluation",
            "round": state.server.rounds_done,
            "part": "valid",
            "metrics": metrics,
            "best": best,
            "seconds": round(time.perf_counter() - started, 6),
        }
    )
    if best:
        save_state(folder.best, state, standing)
    return {evaluator.select_by: value}
