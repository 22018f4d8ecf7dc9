"""``fedrec run``: train, attack and report in one go."""

from __future__ import annotations

import argparse

from fedrec_unlearn.cli.options import add_config_file, add_config_options, config_from_arguments, print_config
from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.cli.progress import command_progress
from fedrec_unlearn.cli.runs import print_path, print_results


def configure(parser: CommandParser) -> None:
    """Add the verb's options."""
    add_config_file(parser)
    add_config_options(parser)
    parser.epilog = "fedrec run demo --attributes gender"


def run(args: argparse.Namespace) -> int:
    """Do all three and print both tables and where the report is."""
    config = config_from_arguments(args)
    if args.print_config:
        return print_config(config)
    from fedrec_unlearn import pipeline

    result = pipeline.run(config, progress=command_progress(args.quiet))
    print_results(result.run, args.quiet)
    if not args.quiet:
        print_path(False, "Run folder", result.run)
    print_path(args.quiet, "Report", result.report)
    return 0
