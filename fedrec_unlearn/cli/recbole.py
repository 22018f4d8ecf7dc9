"""``fedrec recbole``: train a RecBole model with every user as a client, unlearn attributes, attack."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.cli.progress import command_progress
from fedrec_unlearn.cli.runs import print_path
from fedrec_unlearn.cli.tables import ABSENT, Table, print_table
from fedrec_unlearn.progress import Interrupted


def configure(parser: CommandParser) -> None:
    """Add the verb's options."""
    parser.usage = f"{parser.prog} -m MODEL -d DATASET [--config_files FILE ...] [--KEY=VALUE ...]"
    parser.takes_any = True
    parser.add_argument("--model", "-m", metavar="MODEL", help="a RecBole model, or FedMF, FedNCF, FedFM, FedDeepFM")
    parser.add_argument("--dataset", "-d", metavar="DATASET", help="RecBole's name of the data set")
    parser.add_argument(
        "--config-files", nargs="+", default=[], metavar="FILE", help="YAML files of options; later ones win"
    )
    parser.add_argument("--saved", metavar="FILE", help="write the final state there (plain tensors, no pickle)")
    parser.add_argument("--resume", metavar="FILE", help="go on with an interrupted run")
    parser.epilog = (
        "Every key of RecBole's configuration and of a federated run is an option, written --key=value:\n"
        "--epochs=100 --topk=[10,20] --clients_per_round=64 --transport=secemb --sensitive_fields=gender,age\n"
        "--unlearn=gender. fedrec_unlearn/recbole/properties/overall.yaml explains those that RecBole does not have.\n"
        "Examples:\n"
        "  fedrec recbole -m BPR -d ml-100k --unlearn=gender\n"
        "  fedrec recbole -m DeepFM -d ml-100k --config_files my.yaml --sensitive_fields=age --saved deepfm.pth"
    )
    parser.set_defaults(parser=parser)


def run(args: argparse.Namespace) -> int:
    """Run, and print test metrics and what attackers read, before and after unlearning."""
    from fedrec_unlearn.recbole import run_fedrec

    # RecBole's own command line takes several files in one text
    files = [name for text in args.config_files for name in text.split()]
    others: dict[str, str] = args.parser.others
    try:
        result = run_fedrec(
            args.model,
            args.dataset,
            files,
            others,
            resume=args.resume,
            verbose=False,
            progress=command_progress(args.quiet),
        )
    except Interrupted as stop:
        again = ["fedrec", "recbole"]
        for flag, value in (("-m", args.model), ("-d", args.dataset)):
            again += [flag, value] if value else []
        again += ["--config_files", *files] if files else []
        again += [f"--{key}={value}" for key, value in others.items()]
        raise Interrupted(stop.run, shlex.join([*again, "--resume", str(stop.run)])) from None
    saved = None if args.saved is None else result["trainer"].save(Path(args.saved).absolute())
    if not args.quiet:
        print_table(_ranking(result))
        for table in _attacks(result):
            print_table(table)
    if saved is not None:
        print_path(args.quiet, "Checkpoint", saved)
    return 0


def _ranking(result: Mapping[str, Any]) -> Table:
    after, before = result["test_result"], result.get("test_result_before")
    valid = result["best_valid_result"] or {}
    rows = []
    for name, value in after.items():
        figures = [valid.get(name), *([] if before is None else [before[name]]), value]
        rows.append((name, *(ABSENT if figure is None else f"{float(figure):.4f}" for figure in figures)))
    columns = ("metric", "valid", "test") if before is None else ("metric", "valid", "test before", "test after")
    done = result.get("unlearned")
    title = "Recommendation" if done is None else f"Recommendation, {', '.join(done['attributes'])} unlearned"
    return Table(title, columns, tuple(rows), figures=frozenset(range(1, len(columns))))


def _attacks(result: Mapping[str, Any]) -> list[Table]:
    tables = []
    after = " after unlearning" if "attack_before" in result else ""
    for when, key in ((" before unlearning", "attack_before"), (after, "attack")):
        if key not in result:
            continue
        rows = []
        for attribute, entries in result[key].items():
            for entry in entries:
                chance, majority = f"{entry['chance']:.3f}", f"{entry['majority']:.3f}"
                spreads = [_spread(entry[metric]) for metric in ("balanced_accuracy", "auc", "accuracy")]
                rows.append((attribute, entry["attacker"], spreads[0], chance, *spreads[1:], majority))
        columns = ("attribute", "attacker", "balanced accuracy", "chance", "AUC (chance .5)", "accuracy", "majority")
        note = "mean ± standard deviation over attack_seeds; the strongest attacker first"
        tables.append(
            Table(
                f"What attackers read from the users' rows{when}",
                columns,
                tuple(rows),
                figures=frozenset(range(2, 7)),
                note=note,
            )
        )
    return tables


def _spread(metric: Mapping[str, Any]) -> str:
    mean, std = metric["mean"], metric["std"]
    return f"{mean:.3f}" if std is None else f"{mean:.3f} ± {std:.3f}"
