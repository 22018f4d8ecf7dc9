"""``fedrec attack``: infer user attributes from what a trained run shows."""

from __future__ import annotations

import argparse
import shlex

from fedrec_unlearn.cli.options import add_config_options, attack_config
from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.cli.progress import command_progress
from fedrec_unlearn.cli.runs import print_path, print_results, run_folder, shown_path


def configure(parser: CommandParser) -> None:
    """Add the verb's options."""
    parser.usage = f"{parser.prog} RUN [options]"
    parser.add_argument("run", metavar="RUN", help="run folder, as fedrec train writes it")
    parser.add_argument("--before", action="store_true", help="attack the state before unlearning as well")
    add_config_options(parser, ["attack"])
    parser.epilog = "Options not given are those of the run. Example: fedrec attack runs/a --attributes gender,age"


def run(args: argparse.Namespace) -> int:
    """Attack and print every attacker beside chance."""
    folder = run_folder(args.run)
    config = attack_config(args, str(folder / "config.yaml"))
    from fedrec_unlearn import pipeline

    pipeline.attack(folder, config, before=args.before, progress=command_progress(args.quiet))
    print_results(folder, args.quiet, ranking=False)
    print_path(args.quiet, "Attack", folder / "attack.json", f"fedrec report {shlex.quote(shown_path(folder))}")
    return 0
