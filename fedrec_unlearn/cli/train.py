"""``fedrec train``: train a recommender over rounds of clients, or resume a run."""

from __future__ import annotations

import argparse
import shlex

from fedrec_unlearn.cli.options import (
    add_config_file,
    add_config_options,
    config_from_arguments,
    given_options,
    print_config,
)
from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.cli.progress import command_progress
from fedrec_unlearn.cli.runs import print_path, print_results, run_folder, shown_path
from fedrec_unlearn.errors import ConfigError


def configure(parser: CommandParser) -> None:
    """Add the verb's options."""
    add_config_file(parser)
    parser.add_argument("--resume", metavar="RUN", help="go on with an interrupted run, under its own configuration")
    add_config_options(parser)
    parser.epilog = "fedrec train demo --rounds 100 -o runs/short"


def run(args: argparse.Namespace) -> int:
    """Train and print the ranking metrics."""
    if args.resume is None:
        config = config_from_arguments(args)
        if args.print_config:
            return print_config(config)
    else:
        _need_nothing_else(args)
        resumed = run_folder(args.resume)
    from fedrec_unlearn import pipeline

    progress = command_progress(args.quiet)
    if args.resume is None:
        folder = pipeline.train(config, progress=progress)
    else:
        folder = pipeline.resume(resumed, progress=progress)
    print_results(folder, args.quiet, attack=False)
    print_path(args.quiet, "Run folder", folder, f"fedrec attack {shlex.quote(shown_path(folder))}")
    return 0


def _need_nothing_else(args: argparse.Namespace) -> None:
    given = [f"--{name.replace('_', '-')}" for name in given_options(args)]
    given += [args.config] if args.config is not None else []
    given += ["--print-config"] if args.print_config else []
    if given:
        raise ConfigError(
            f"--resume goes on under the run's own configuration; leave out {', '.join(given)}, or start a new run"
        )
