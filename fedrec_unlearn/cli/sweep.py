"""``fedrec sweep``: try strengths of unlearning, judge each by fresh attackers, choose one."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from fedrec_unlearn.cli.options import add_config_file, add_config_options, config_from_arguments, print_config
from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.cli.progress import command_progress
from fedrec_unlearn.cli.runs import print_path, shown_path


def configure(parser: CommandParser) -> None:
    """Add the verb's options."""
    add_config_file(parser)
    add_config_options(parser, short={"unlearn.attributes": ("--attribute",)})
    parser.add_argument("--from", dest="source", metavar="RUN", help="start each from a trained run instead of anew")
    parser.epilog = "fedrec sweep demo --attribute gender --method fedau2 --unlearn.epsilons 0.03,0.1,0.3 -o runs/sweep"


def run(args: argparse.Namespace) -> int:
    """Sweep, print a line a strength, and write sweep.json and its page."""
    config = config_from_arguments(args)
    if args.print_config:
        return print_config(config)
    from fedrec_unlearn import pipeline

    output = Path(config.output or f"runs/{config.data.name}-{config.unlearn.method}-sweep")
    found = pipeline.sweep(
        config,
        output,
        source=None if args.source is None else Path(args.source),
        progress=command_progress(args.quiet),
    )
    page = pipeline.sweep_page(found, output)
    if not args.quiet:
        for point in found["points"]:
            leaks = ", ".join(f"{name} {worst:.3f}" for name, worst in point["worst"].items())
            shown = f"epsilon {point['epsilon']:g}" if point["epsilon"] else "none"
            print(f"{shown:<14} {found['select_by']} {point['valid']:.4f}   distance from guessing: {leaks}")
        print(found["reason"])
    chosen = found["chosen"]
    follow = f"fedrec report {shlex.quote(shown_path(output / 'none'))}"
    if chosen is not None:
        follow += f" {shlex.quote(shown_path(output / f'epsilon-{chosen:g}'))}"
    print_path(args.quiet, "Sweep", page, follow)
    return 0
