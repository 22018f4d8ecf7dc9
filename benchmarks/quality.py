"""Recommendation quality of the four models on MovieLens, over seeds, beside RecBole's own.

    python -m benchmarks.quality --data-dir DIR [--recbole]

MovieLens 100K, split per user at random 8:1:1 (the same split for every seed), every unseen item ranked: mean and
standard deviation over seeds of test NDCG@10 and Recall@10 at the round with the best validation NDCG@10, under
configs/ml-100k-{mf,ncf,fm,deepfm}.yaml. Then MF on MovieLens 1M under leave-one-out: HR@10 and NDCG@10 with each
user's latest item among 99 random ones, under configs/ml-1m-loo-mf.yaml.

Runs are `fedrec train` in processes of their own and go to a temporary folder. With --recbole, RecBole's BPR, NeuMF, FM
and DeepFM are trained centrally on the same split (RecBole's own, seed 2020), over the same number of seeds, the
learning rate chosen on validation data.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiments import CONFIGS, train
from benchmarks.program import data_folder, last_line, parser, run, table
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.errors import ConfigError

RIVALS = {"mf": "BPR", "ncf": "NeuMF", "fm": "FM", "deepfm": "DeepFM"}
FULL = ("ndcg@10", "recall@10")
SAMPLED = ("hr@10", "ndcg@10")
LEAVE_ONE_OUT = "ml-1m-loo-mf"
QUICK_PASSES = 4


def over_seeds(
    config: str, metrics: Sequence[str], seeds: Sequence[int], data_dir: Path | None, quick: bool
) -> dict[str, Any]:
    """Train a configuration once per seed."""
    options: dict[str, object] = {}
    if quick:
        options["federation.rounds"] = QUICK_PASSES * load_config(CONFIGS / f"{config}.yaml").evaluation.every
    runs = []
    with tempfile.TemporaryDirectory(prefix="quality-") as folder:
        for seed in seeds:
            finished = train(config, Path(folder) / str(seed), data_dir, {**options, "seed": seed})
            runs.append(
                {
                    "seed": seed,
                    "test": {metric: finished.test(metric) for metric in metrics},
                    "popularity": {metric: finished.popularity(metric) for metric in metrics},
                    "best_round": finished.metrics["best_round"],
                    "rounds": finished.run["rounds_done"],
                    "cpu_seconds": finished.cpu_seconds,
                    "peak_mib": finished.run["peak_memory_mib"],
                }
            )
            shown = "  ".join(f"{name} {value:.4f}" for name, value in runs[-1]["test"].items())
            print(f"  {config}, seed {seed}: {shown}", file=sys.stderr, flush=True)
    return {"config": config, "test": spread(runs, metrics), "popularity": runs[0]["popularity"], "runs": runs}


def spread(runs: Sequence[dict[str, Any]], metrics: Sequence[str]) -> dict[str, dict[str, float]]:
    """Mean and sample standard deviation over runs; the latter 0 for a single run."""
    found = {}
    for metric in metrics:
        values = [run["test"][metric] for run in runs]
        found[metric] = {
            "mean": statistics.mean(values),
            "std": statistics.stdev(values) if len(values) > 1 else 0.0,
        }
    return found


def recbole_over_seeds(
    model: str, seeds: Sequence[int], data_dir: Path | None, learning_rates: Sequence[float]
) -> dict[str, Any]:
    """RecBole's model on the split of seed 2020: the learning rate chosen with the first seed, kept for the others."""
    from benchmarks.atomic_files import movielens_pairs, write_atomic
    from benchmarks.recbole_baseline import train_recbole

    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="quality-") as folder:
        path = write_atomic(Path(folder), "ml-100k", movielens_pairs("ml-100k", data_folder(data_dir)))
        for seed in seeds:
            rates = [runs[0]["learning_rate"]] if runs else learning_rates
            runs.append(train_recbole(model, path, "ml-100k", learning_rates=rates, seed=seed, split_seed=2020))
            print(f"  {model}, seed {seed}: ndcg@10 {runs[-1]['test']['ndcg@10']:.4f}", file=sys.stderr, flush=True)
    return {"model": model, "test": spread(runs, FULL), "runs": runs}


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    options = parser("quality", __doc__)
    options.add_argument("--models", default=",".join(RIVALS), help="comma-separated (default all four)")
    options.add_argument("--seeds", default="2020,2021,2022", help="comma-separated (default 2020,2021,2022)")
    options.add_argument("--without-ml-1m", action="store_true", help="leave out leave-one-out on MovieLens 1M")
    options.add_argument("--recbole", action="store_true", help="train RecBole's models as well (long)")
    options.add_argument("--learning-rates", default="5e-4,1e-3,2e-3", help="RecBole's candidates")
    given = options.parse_args(arguments)
    models = given.models.split(",")
    for name in models:
        if name not in RIVALS:
            raise ConfigError(f"--models: unknown model {name!r}; known: {', '.join(RIVALS)}")
    seeds = [int(seed) for seed in given.seeds.split(",")][: 1 if given.quick else None]
    ours = {model: over_seeds(f"ml-100k-{model}", FULL, seeds, given.data_dir, given.quick) for model in models}
    leave_one_out = None
    if not given.without_ml_1m:
        leave_one_out = over_seeds(LEAVE_ONE_OUT, SAMPLED, seeds, given.data_dir, given.quick)
    theirs: dict[str, dict[str, Any]] = {}
    if given.recbole:
        rates = [float(rate) for rate in given.learning_rates.split(",")]
        theirs = {model: recbole_over_seeds(RIVALS[model], seeds, given.data_dir, rates) for model in models}
    print(f"MovieLens 100K, every unseen item ranked; mean ± standard deviation over {len(seeds)} seeds\n")
    header = ("model", *FULL, *(f"recbole {metric}" for metric in FULL), "best round", "CPU s a run")
    print(table(header, [_row(model, ours[model], theirs.get(model)) for model in models]))
    popularity = next(iter(ours.values()))["popularity"]
    print("\npopularity  " + "  ".join(f"{name} {value:.4f}" for name, value in popularity.items()))
    if leave_one_out:
        print("\nMovieLens 1M, the latest item among 99 random ones\n")
        quality = [_plus_minus(leave_one_out["test"][metric]) for metric in SAMPLED]
        popular = [f"{leave_one_out['popularity'][metric]:.4f}" for metric in SAMPLED]
        print(table(("model", *SAMPLED, *(f"popular {metric}" for metric in SAMPLED)), [("mf", *quality, *popular)]))
    last_line(
        "quality",
        {
            "seeds": seeds,
            "ml-100k": ours,
            "recbole": theirs,
            "ml-1m leave-one-out": leave_one_out,
            "quick": given.quick,
        },
    )


def _row(model: str, ours: dict[str, Any], theirs: dict[str, Any] | None) -> tuple[str, ...]:
    rival = ["" if theirs is None else _plus_minus(theirs["test"][metric]) for metric in FULL]
    rounds = ", ".join(str(run["best_round"]) for run in ours["runs"])
    seconds = statistics.median(run["cpu_seconds"] for run in ours["runs"])
    return (model, *(_plus_minus(ours["test"][metric]) for metric in FULL), *rival, rounds, f"{seconds:.1f}")


def _plus_minus(values: dict[str, float]) -> str:
    return f"{values['mean']:.4f} ± {values['std']:.4f}"


if __name__ == "__main__":
    sys.exit(run(main, "quality"))
