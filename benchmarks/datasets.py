"""Larger data sets trained end to end: quality beside popularity, time a round, peak memory.

    python -m benchmarks.datasets --data-dir DIR [--recbole]

Yelp2018 and Gowalla as LightGCN splits them (where the files hold no validation part, a tenth of each user's training
items is held out), MovieLens 1M split per user at random 8:1:1; MF and FM under configs/<data>-mf.yaml. Every item a
user has not seen is ranked; the round with the best validation NDCG@20 is tested. Yelp2018 is looked for as `yelp2018`,
then as `yelp2018-partial`, the part that holds the first users only: the figures of a part are not those of the whole.

Each run is a `fedrec train` in a process of its own, on one thread. `round s` is the median wall time of a round with
its server step; `peak MiB` the largest resident memory of the process, evaluation included. With --recbole, RecBole's
BPR is trained centrally on the same split, its learning rate chosen on validation data.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiments import CONFIGS, Finished, train
from benchmarks.program import data_folder, last_line, parser, run, table
from fedrec_unlearn.config import Config
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.errors import ConfigError

DATASETS = ("yelp2018", "gowalla", "ml-1m")
METRICS = ("recall@20", "ndcg@20")
EVALUATION = {"evaluation.topk": "20", "evaluation.metrics": "recall,ndcg", "evaluation.select-by": "ndcg@20"}
"""The same for all, whatever else a configuration reports."""
QUICK_PASSES = 2


def found_name(dataset: str, data_dir: Path | None) -> str:
    """The data set's name, or that of its partial folder where only that is there."""
    place = data_folder(data_dir) or Path()
    partial = f"{dataset}-partial"
    return partial if (place / partial).is_dir() and not (place / dataset).exists() else dataset


def trained(dataset: str, model: str, data_dir: Path | None, output: Path, quick: bool) -> Finished:
    """One run."""
    options: dict[str, object] = {"data.name": found_name(dataset, data_dir), "model.name": model, **EVALUATION}
    if quick:
        every = load_config(CONFIGS / f"{dataset}-mf.yaml").evaluation.every
        options["federation.rounds"] = QUICK_PASSES * every
    return train(f"{dataset}-mf", output, data_dir, options)


def recbole_on_split(config: Config, learning_rates: Sequence[float]) -> dict[str, Any]:
    """RecBole's BPR on the split of a run, item for item."""
    from benchmarks.atomic_files import write_atomic_split
    from benchmarks.recbole_baseline import train_recbole
    from fedrec_unlearn.data import load_dataset, make_split

    split = make_split(load_dataset(config.data), config.split)
    parts = {}
    for name, part in (("train", split.train), ("valid", split.valid), ("test", split.test)):
        parts[name] = (np.repeat(np.arange(part.n_users), part.counts), part.items)
    with tempfile.TemporaryDirectory(prefix="datasets-") as folder:
        path = write_atomic_split(Path(folder), config.data.name, parts)
        return train_recbole(
            "BPR",
            path,
            config.data.name,
            given_split=True,
            learning_rates=learning_rates,
            overrides={"valid_metric": "NDCG@20"},
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    options = parser("datasets", __doc__)
    options.add_argument("--datasets", default=",".join(DATASETS), help="comma-separated (default all three)")
    options.add_argument("--models", default="mf,fm", help="comma-separated (default mf,fm)")
    options.add_argument("--recbole", action="store_true", help="train RecBole's BPR on the same split (long)")
    options.add_argument("--learning-rates", default="5e-4,1e-3,2e-3", help="RecBole's candidates")
    given = options.parse_args(arguments)
    for name in given.datasets.split(","):
        if name not in DATASETS:
            raise ConfigError(f"--datasets: unknown data set {name!r}; known: {', '.join(DATASETS)}")
    results: list[dict[str, Any]] = []
    rivals: list[dict[str, Any]] = []
    # runs of our own first: this process stays small until RecBole is loaded
    with tempfile.TemporaryDirectory(prefix="datasets-") as folder:
        configs = []
        for dataset in given.datasets.split(","):
            for model in given.models.split(","):
                finished = trained(dataset, model, given.data_dir, Path(folder) / f"{dataset}-{model}", given.quick)
                configs.append(finished.config)
                results.append(_figures(dataset, model, finished))
                print(f"  {dataset}, {model}: ndcg@20 {finished.test('ndcg@20'):.4f}", file=sys.stderr, flush=True)
    print(_table(results))
    if given.recbole:
        rates = [float(rate) for rate in given.learning_rates.split(",")]
        for config in {config.data.name: config for config in configs}.values():
            rivals.append(recbole_on_split(config, rates))
        print("\nRecBole's BPR on the same splits\n\n" + _rival_table(rivals))
    last_line("datasets", {"results": results, "recbole": rivals, "quick": given.quick})


def _figures(dataset: str, model: str, finished: Finished) -> dict[str, Any]:
    data = finished.run["data"]
    return {
        "dataset": data["name"],
        "model": model,
        "config": f"{dataset}-mf",
        **{name: data[name] for name in ("n_users", "n_items", "n_train", "n_valid", "n_test")},
        "clients_per_round": finished.config.federation.clients_per_round,
        "test": {metric: finished.test(metric) for metric in METRICS},
        "popularity": {metric: finished.popularity(metric) for metric in METRICS},
        "best_round": finished.metrics["best_round"],
        "rounds": finished.run["rounds_done"],
        "round_seconds": finished.round_seconds,
        "evaluation_seconds": finished.evaluation_seconds,
        "train_seconds": finished.run["train_seconds"],
        "cpu_seconds": finished.cpu_seconds,
        "peak_mib": finished.run["peak_memory_mib"],
    }


def _table(results: Sequence[dict[str, Any]]) -> str:
    header = ("data", "model", "users", "items", "train", *METRICS, *(f"popular {metric}" for metric in METRICS))
    header = (*header, "best round", "round s", "evaluation s", "peak MiB")
    rows = []
    for entry in results:
        quality = [f"{entry[source][metric]:.4f}" for source in ("test", "popularity") for metric in METRICS]
        rows.append(
            (
                entry["dataset"],
                entry["model"],
                f"{entry['n_users']:,}",
                f"{entry['n_items']:,}",
                f"{entry['n_train']:,}",
                *quality,
                f"{entry['best_round']} of {entry['rounds']}",
                f"{entry['round_seconds']:.3f}",
                f"{entry['evaluation_seconds']:.2f}",
                f"{entry['peak_mib']:.0f}",
            )
        )
    return table(header, rows)


def _rival_table(rivals: Sequence[dict[str, Any]]) -> str:
    return table(
        ("data", *METRICS, "learning rate", "best epoch", "epoch CPU s"),
        [
            (
                entry["dataset"],
                *(f"{entry['test'][metric]:.4f}" for metric in METRICS),
                f"{entry['learning_rate']:g}",
                f"{entry['best_epoch']} of {entry['epochs_run']}",
                f"{entry['epoch_cpu_seconds']:.2f}",
            )
            for entry in rivals
        ],
    )


if __name__ == "__main__":
    sys.exit(run(main, "datasets"))
