"""RecBole's models trained by clients beside RecBole's own training of them: NDCG@10, and CPU time of a pass.

    python -m benchmarks.recbole_plugin [--models BPR,NeuMF] [--seeds 2020,2021,2022] [--parts times,quality,unlearning]

Data: RecBole's MovieLens 100K, the two ids alone, split per user at random 8:1:1, embeddings of 64. Both sides get the
same split, the same initial model and the same evaluator (full ranking, RecBole's), stop on NDCG@10 of the validation
data after ten evaluations without a better value, and test the best state. RecBole's learning rate, and the two of the
federation, are chosen on validation data; everything else of a model is what it has by default
(`fedrec_unlearn/recbole/properties` for the federation), dropout included.

Times: CPU seconds on one thread of a pass over all clients (15 rounds of 64, each with a step of the server's Adam) and
of one epoch of RecBole (batches of 2048), called in turn, medians after a warm-up, no evaluation in either.
`pass / epoch` is the ratio to read; at most 1 is asked for.

Unlearning: gender, by what `run_fedrec(..., unlearn="gender")` does with a model's defaults; balanced accuracy of the
strongest of four attackers, tuned by nested cross-validation with three seeds, beside NDCG@10, before and after.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import shutil
import statistics
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.atomic_files import movielens_pairs, write_atomic
from benchmarks.machine import one_thread
from benchmarks.program import interleaved, last_line, medians, parser, run, table
from benchmarks.recbole_baseline import RecBoleRun, fit, open_run, run_epoch
from fedrec_unlearn.errors import ConfigError

MODELS = ("BPR", "NeuMF", "FM", "DeepFM")
TUNED = {"learning_rate": (1e-3, 2e-3), "user_learning_rate": (2.0, 5.0)}
"""Candidates of the federation, every combination."""
RECBOLE_RATES = (5e-4, 1e-3, 2e-3)
"""Candidates of RecBole's learning rate."""
EPOCHS = 300


def open_federated(
    model: str, folder: Path, seed: int, values: Mapping[str, Any], epochs: int, late: Mapping[str, Any] | None = None
) -> tuple[Any, RecBoleRun]:
    """A federated trainer, with the loaders and the model `open_run` makes for RecBole.

    Args:
        model: RecBole's name.
        folder: RecBole's `data_path`.
        seed: of split, initial model and rounds.
        values: options of the federation that win over the model's defaults.
        epochs: passes at most.
        late: options that are no part of the split.
    """
    from fedrec_unlearn.recbole import FederatedTrainer
    from fedrec_unlearn.recbole.defaults import model_defaults

    of_the_split = ("train_neg_sample_args", "embedding_size")
    defaults = {key: value for key, value in model_defaults(model).items() if key not in of_the_split}
    given = {**defaults, **values, **(late or {})}
    opened = open_run(model, folder, "ml-100k", folder / "checkpoints", seed=seed, epochs=epochs, overrides=given)
    trainer = FederatedTrainer(opened.config, opened.model)
    trainer.prepare(opened.train)
    return trainer, opened


def same_split(one: RecBoleRun, other: RecBoleRun) -> bool:
    """Whether two runs train and test on the same interactions."""
    return all(
        np.array_equal(np.asarray(a.dataset.inter_feat[field]), np.asarray(b.dataset.inter_feat[field]))
        for a, b in ((one.train, other.train), (one.test, other.test))
        for field in ("user_id", "item_id")
    )


def federated_quality(model: str, folder: Path, seed: int, epochs: int, quick: bool) -> dict[str, Any]:
    """Train once for each combination of `TUNED` and test the one that is best on validation data."""
    results = []
    combinations = [dict(zip(TUNED, values, strict=True)) for values in itertools.product(*TUNED.values())]
    for values in combinations[-1:] if quick else combinations:
        trainer, opened = open_federated(model, folder, seed, values, epochs)
        best, _ = trainer.fit(opened.train, opened.valid, verbose=False)
        tested = trainer.evaluate(opened.test)
        results.append({**values, "valid": float(best), "test": {k: float(v) for k, v in tested.items()}})
    return max(results, key=lambda result: result["valid"])


def recbole_quality(model: str, folder: Path, seed: int, epochs: int, quick: bool) -> dict[str, Any]:
    """Train once for each of `RECBOLE_RATES` and test the one that is best on validation data."""
    results = []
    for rate in RECBOLE_RATES[1:2] if quick else RECBOLE_RATES:
        opened = open_run(
            model, folder, "ml-100k", folder / "checkpoints", seed=seed, learning_rate=rate, epochs=epochs
        )
        found = fit(opened)
        results.append({"learning_rate": rate, "valid": found["best_valid"], "test": found["test"]})
    return max(results, key=lambda result: result["valid"])


def unlearned(model: str, folder: Path, seed: int, epochs: int, quick: bool) -> dict[str, Any]:
    """Train with the model's defaults, attack, unlearn gender, attack again."""
    attack = {"attack_attackers": ["logistic"], "attack_seeds": [0]} if quick else {}
    values = {"sensitive_fields": ["gender"], **attack}
    trainer, opened = open_federated(model, folder, seed, {}, epochs, values)
    trainer.fit(opened.train, opened.valid, verbose=False)
    found = {}
    for when in ("before", "after"):
        strongest = max(trainer.attack(), key=lambda result: result.distance_from_chance)
        ndcg = float(trainer.evaluate(opened.test)["ndcg@10"])
        found[when] = {"gender": strongest.balanced_accuracy.mean, "attacker": strongest.attacker, "ndcg@10": ndcg}
        if when == "before":
            trainer.unlearn("gender")
    return found


def times(model: str, folder: Path, repeats: int) -> dict[str, float]:
    """Median CPU seconds of a pass over the clients and of an epoch of RecBole."""
    trainer, federated = open_federated(model, folder, 2020, {}, EPOCHS)
    stock = open_run(model, folder, "ml-100k", folder / "checkpoints")
    if not same_split(federated, stock):
        raise ConfigError("the two sides do not train on the same interactions")
    clients, never = trainer.prepare(federated.train), threading.Event()
    arms = {"pass": lambda: clients.train_pass(never), "epoch": lambda: run_epoch(stock)}
    return medians(interleaved(arms, repeats))


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    made = parser("recbole_plugin", __doc__ or "")
    made.add_argument("--models", default=",".join(MODELS), help=f"comma-separated (default {','.join(MODELS)})")
    made.add_argument("--seeds", default="2020", help="comma-separated, of split and training (default 2020)")
    made.add_argument("--parts", default="times,quality,unlearning", help="comma-separated (default all three)")
    given = made.parse_args(arguments)
    models = given.models.split(",")
    parts = set(given.parts.split(","))
    if parts - {"times", "quality", "unlearning"}:
        raise ConfigError(f"--parts: {given.parts}: choose among times, quality, unlearning")
    unknown = sorted(set(models) - set(MODELS))
    if unknown:
        raise ConfigError(f"--models: {', '.join(unknown)}: choose among {', '.join(MODELS)}")
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # RecBole's own, on every start
    seeds = [int(seed) for seed in given.seeds.split(",")]
    epochs = 2 if given.quick else EPOCHS
    figures: dict[str, Any] = {"times": {}, "quality": {}, "unlearning": {}}
    with tempfile.TemporaryDirectory(prefix="recbole-plugin-") as temporary, one_thread():
        folder = write_atomic(Path(temporary), "ml-100k", movielens_pairs("ml-100k", None))
        own = importlib.util.find_spec("recbole")
        if own is not None and own.origin is not None:
            users = Path(own.origin).parent / "dataset_example" / "ml-100k" / "ml-100k.user"
            shutil.copyfile(users, folder / "ml-100k" / users.name)
        for model in models if "times" in parts else []:
            figures["times"][model] = times(model, folder, 2 if given.quick else 7)
        rows = [
            (model, f"{t['pass']:.3f}", f"{t['epoch']:.3f}", f"{t['pass'] / t['epoch']:.2f}")
            for model, t in figures["times"].items()
        ]
        if rows:
            print(table(("model", "pass, CPU s", "RecBole's epoch", "pass / epoch"), rows), flush=True)
        for model in models if "quality" in parts else []:
            figures["quality"][model] = _quality(model, folder, seeds, epochs, given.quick)
        for model in models if "unlearning" in parts else []:
            figures["unlearning"][model] = _unlearning(model, folder, seeds, epochs, given.quick)
    last_line("recbole_plugin", figures)


def _quality(model: str, folder: Path, seeds: Sequence[int], epochs: int, quick: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for side, measure in (("federated", federated_quality), ("recbole", recbole_quality)):
        done = [measure(model, folder, seed, epochs, quick) for seed in seeds]
        ndcg = [one["test"]["ndcg@10"] for one in done]
        spread = f" ± {statistics.stdev(ndcg):.4f}" if len(ndcg) > 1 else ""
        chosen = "; ".join(
            " ".join(f"{key} {value:g}" for key, value in one.items() if key.endswith("rate")) for one in done
        )
        print(f"{model:7} {side:9} test NDCG@10 {statistics.mean(ndcg):.4f}{spread}   chosen: {chosen}", flush=True)
        found[side] = {"ndcg@10": statistics.mean(ndcg), "runs": done}
    found["difference"] = found["federated"]["ndcg@10"] - found["recbole"]["ndcg@10"]
    return found


def _unlearning(model: str, folder: Path, seeds: Sequence[int], epochs: int, quick: bool) -> list[dict[str, Any]]:
    done = [unlearned(model, folder, seed, epochs, quick) for seed in seeds]
    for when in ("before", "after"):
        means = {key: statistics.mean(one[when][key] for one in done) for key in ("gender", "ndcg@10")}
        print(
            f"{model:7} {when:6} gender {means['gender']:.3f} (chance 0.5)  NDCG@10 {means['ndcg@10']:.4f}", flush=True
        )
    return done


if __name__ == "__main__":
    sys.exit(run(main, "recbole_plugin"))
