"""RecBole's own models as the baseline: trained centrally, judged by full ranking, timed per epoch.

    python -m benchmarks.recbole_baseline --data-dir DIR --dataset ml-100k --model BPR --learning-rate 5e-4,1e-3,2e-3

The protocol, the same for every model: all interactions are positive feedback; RS 8:1:1 per user in random order;
user and item id are the only fields (FM and DeepFM see no attributes); one uniform negative per positive; embeddings
of 64; Adam; batches of 2048; ranking of all items a user has not seen; training stops when NDCG@10 on validation data
has not improved for eleven epochs, and the best epoch is tested. A learning rate is chosen on validation data. Layer
widths and dropout are RecBole's defaults. The last line printed is one JSON object.

RecBole itself stops by MRR@10 unless told otherwise: `--valid-metric MRR@10` gives the run of an untouched RecBole.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.atomic_files import PARTS, movielens_pairs, write_atomic
from benchmarks.machine import one_thread, peak_memory_mib
from fedrec_unlearn.errors import FedRecError

MODELS = ("BPR", "NeuMF", "FM", "DeepFM")
"""Models of the command line; the functions take any of RecBole's that need no other input."""


@dataclass
class RecBoleRun:
    """A stock RecBole model with its data and its trainer, ready for its first epoch."""

    config: Any
    model: Any
    trainer: Any
    train: Any
    valid: Any
    test: Any
    epoch_cpu_seconds: list[float] = field(default_factory=list)
    """CPU seconds of each training epoch run so far, evaluation not included."""

    def sizes(self) -> dict[str, int]:
        """Users, items and interactions of each part, without RecBole's padding row."""
        counts = {f"n_{part}": len(getattr(self, part).dataset) for part in PARTS}
        data = self.train.dataset
        return {"n_users": data.user_num - 1, "n_items": data.item_num - 1, **counts}


def open_run(
    model: str,
    folder: Path,
    dataset: str,
    checkpoint_dir: Path,
    *,
    given_split: bool = False,
    seed: int = 2020,
    split_seed: int | None = None,
    learning_rate: float = 1e-3,
    epochs: int = 300,
    overrides: Mapping[str, Any] | None = None,
) -> RecBoleRun:
    """Load the data, split it and build the model and its trainer, in the order of RecBole's own `run_recbole`.

    Args:
        model: RecBole's name of the model.
        folder: RecBole's `data_path`, holding ``<dataset>/<dataset>.inter`` (or the three parts of a split).
        dataset: name of the data set.
        checkpoint_dir: folder for checkpoints.
        given_split: use the parts written by `write_atomic_split` instead of splitting.
        seed: RecBole's seed; it draws initial values, negatives and batches.
        split_seed: seed of the split, `seed` if not given (as in RecBole).
        learning_rate: Adam's step size.
        epochs: epochs at most.
        overrides: further RecBole options; they win.
    """
    from fedrec_unlearn.recbole import make_config, make_trainer

    options: dict[str, Any] = {
        "seed": seed,
        "gpu_id": "",
        "data_path": str(folder),
        "checkpoint_dir": str(checkpoint_dir),
        "benchmark_filename": list(PARTS) if given_split else None,
        "load_col": {"inter": ["user_id", "item_id"]},
        # RecBole's defaults for context-aware models on ml-100k drop ratings below 4 and rank labelled pairs only
        "threshold": None,
        "eval_args": {"split": {"RS": [0.8, 0.1, 0.1]}, "group_by": "user", "order": "RO", "mode": "full"},
        "train_neg_sample_args": {"distribution": "uniform", "sample_num": 1},
        "embedding_size": 64,
        "mf_embedding_size": 64,
        "mlp_embedding_size": 64,
        "learner": "adam",
        "learning_rate": learning_rate,
        "train_batch_size": 2048,
        "epochs": epochs,
        "stopping_step": 10,
        "metrics": ["Recall", "NDCG", "MRR"],
        "topk": [10, 20],
        "valid_metric": "NDCG@10",
        "metric_decimal_place": 6,
    }
    config = make_config(model, dataset, {**options, **(overrides or {})})
    data, tools = importlib.import_module("recbole.data"), importlib.import_module("recbole.utils")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tools.init_seed(seed if split_seed is None else split_seed, True)
        train, valid, test = data.data_preparation(config, data.create_dataset(config))
        tools.init_seed(seed, True)
        recommender = tools.get_model(config["model"])(config, train.dataset).to(config["device"])
        return RecBoleRun(config, recommender, make_trainer(config, recommender), train, valid, test)


def run_epoch(run: RecBoleRun) -> float:
    """Train one epoch and return its CPU seconds: batches, negatives, gradients, Adam; no evaluation.

    For measurements that alternate with a rival's; the number of threads is torch's, see `one_thread`.
    """
    with warnings.catch_warnings():
        # RecBole builds a gradient scaler of a deprecated class in every epoch
        warnings.simplefilter("ignore", FutureWarning)
        start = time.process_time()
        run.trainer._train_epoch(run.train, len(run.epoch_cpu_seconds))
        seconds = time.process_time() - start
    run.epoch_cpu_seconds.append(seconds)
    return seconds


def epoch_seconds(run: RecBoleRun, repeats: int = 3, warmup: int = 1) -> float:
    """Median CPU seconds of a training epoch on one thread; the run has that many epochs more behind it afterwards.

    Args:
        run: from `open_run`.
        repeats: measured epochs.
        warmup: epochs before them that are not measured.
    """
    with one_thread():
        for _ in range(warmup):
            run_epoch(run)
        return statistics.median(run_epoch(run) for _ in range(repeats))


def fit(run: RecBoleRun) -> dict[str, Any]:
    """Train with early stopping through RecBole's own loop, on one thread, and test the best epoch.

    Returns:
        `valid` and `test` (metric -> value), `best_epoch` (RecBole counts from 0), `epochs_run`,
        `epoch_cpu_seconds` (median), `cpu_seconds` (training and evaluation together) and the sizes of the data.
    """
    stock_epoch, scores = run.trainer._train_epoch, list[float]()

    def timed_epoch(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        loss = stock_epoch(*args, **kwargs)
        run.epoch_cpu_seconds.append(time.process_time() - start)
        return loss

    run.trainer._train_epoch = timed_epoch
    start = time.process_time()
    try:
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            _, valid = run.trainer.fit(
                run.train, run.valid, verbose=False, callback_fn=lambda _epoch, score: scores.append(float(score))
            )
            test = run.trainer.evaluate(run.test, load_best_model=True)
    finally:
        run.trainer._train_epoch = stock_epoch
    # on equal scores RecBole keeps the later epoch
    best_epoch = max(range(len(scores)), key=lambda epoch: (scores[epoch], epoch))
    return {
        "valid": {name: float(value) for name, value in valid.items()},
        "test": {name: float(value) for name, value in test.items()},
        "best_epoch": best_epoch,
        "epochs_run": len(scores),
        "epoch_cpu_seconds": statistics.median(run.epoch_cpu_seconds),
        "cpu_seconds": time.process_time() - start,
        "valid_metric": run.trainer.valid_metric,
        "best_valid": max(scores),
        **run.sizes(),
    }


def train_recbole(
    model: str,
    folder: Path,
    dataset: str,
    *,
    learning_rates: Sequence[float] = (1e-3,),
    seed: int = 2020,
    **options: Any,
) -> dict[str, Any]:
    """Train a RecBole model once per learning rate and keep the run with the best validation value.

    Args:
        model, folder, dataset, seed: as in `open_run`.
        learning_rates: candidates.
        options: further arguments of `open_run`.

    Returns:
        The result of `fit` for the chosen rate, with `model`, `dataset`, `seed`, `learning_rate`, and `tuning`: the
        validation value of each candidate.
    """
    results = {}
    for rate in learning_rates:
        with tempfile.TemporaryDirectory(prefix="recbole-baseline-") as checkpoints:
            run = open_run(model, folder, dataset, Path(checkpoints), seed=seed, learning_rate=rate, **options)
            results[rate] = fit(run)
    chosen = max(results, key=lambda rate: results[rate]["best_valid"])
    tuning = {f"{rate:g}": result["best_valid"] for rate, result in results.items()}
    names = {"model": model, "dataset": dataset, "seed": seed, "learning_rate": chosen}
    return {**names, "tuning": tuning, **results[chosen]}


def _numbers(kind: type) -> Any:
    def parse(text: str) -> list[Any]:
        return [kind(part) for part in text.split(",")]

    parse.__name__ = f"comma-separated {kind.__name__}"
    return parse


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recbole_baseline", description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", type=Path, help="folder with ml-100k/ or ml-1m/ (unset: recbole's own ml-100k)")
    parser.add_argument("--dataset", choices=("ml-100k", "ml-1m"), default="ml-100k")
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--seeds", type=_numbers(int), default=[2020], help="comma-separated (default 2020)")
    parser.add_argument(
        "--learning-rate", type=_numbers(float), default=[1e-3], help="comma-separated; the best on validation is kept"
    )
    parser.add_argument("--epochs", type=_positive, default=300, help="epochs at most (default 300)")
    metrics = [f"{metric}@{length}" for metric in ("NDCG", "Recall", "MRR") for length in (10, 20)]
    parser.add_argument("--valid-metric", choices=metrics, default="NDCG@10", help="chooses epoch and learning rate")
    parser.add_argument("--time-only", type=_positive, metavar="N", help="time N epochs after a warm-up and stop")
    given = parser.parse_args(arguments)
    try:
        pairs = movielens_pairs(given.dataset, given.data_dir)
        with tempfile.TemporaryDirectory(prefix="recbole-baseline-") as folder:
            path = write_atomic(Path(folder), given.dataset, pairs)
            summary = _time_only(given, path) if given.time_only else _train(given, path)
    except FedRecError as error:
        print(f"recbole_baseline: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(summary))
    return 0


def _time_only(given: argparse.Namespace, path: Path) -> dict[str, Any]:
    run = open_run(given.model, path, given.dataset, path / "checkpoints", seed=given.seeds[0])
    seconds = epoch_seconds(run, given.time_only)
    print(f"{given.model} on {given.dataset}: {seconds:.3f} CPU s an epoch (median of {given.time_only})")
    return {"model": given.model, "dataset": given.dataset, "epoch_cpu_seconds": seconds, **run.sizes()}


def _train(given: argparse.Namespace, path: Path) -> dict[str, Any]:
    results = []
    for seed in given.seeds:
        result = train_recbole(
            given.model,
            path,
            given.dataset,
            learning_rates=given.learning_rate,
            seed=seed,
            epochs=given.epochs,
            overrides={"valid_metric": given.valid_metric},
        )
        results.append(result)
        tuned = "  ".join(f"{rate}: {score:.4f}" for rate, score in result["tuning"].items())
        print(f"{given.model} on {given.dataset}, seed {seed}: learning rate {result['learning_rate']:g}")
        print(f"  valid {given.valid_metric} by rate  {tuned}")
        print("  test  " + "  ".join(f"{name} {value:.4f}" for name, value in result["test"].items()))
        print(
            f"  best epoch {result['best_epoch']} of {result['epochs_run']} (from 0), "
            f"{result['epoch_cpu_seconds']:.3f} CPU s an epoch (median)",
            flush=True,
        )
    means = {name: statistics.mean(result["test"][name] for result in results) for name in results[0]["test"]}
    return {"test_mean": means, "peak_memory_mib": peak_memory_mib(), "runs": results}


if __name__ == "__main__":
    sys.exit(main())
