"""``fedrec report``: one page, JSON and CSV on one or several runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.cli.runs import print_path, print_results, run_folder
from fedrec_unlearn.cli.tables import comparison_table, figures_of_runs, print_table


def configure(parser: CommandParser) -> None:
    """Add the verb's options."""
    parser.usage = f"{parser.prog} RUN [RUN ...] [options]"
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, as fedrec train writes them")
    parser.add_argument(
        "--output",
        "-o",
        metavar="FOLDER",
        help="folder to write report.html, report.json and report.csv to. Default: the run folder, for one run.",
    )
    parser.epilog = "fedrec report runs/a runs/b -o comparison"


def run(args: argparse.Namespace) -> int:
    """Write the report and print the tables it holds."""
    folders = [run_folder(text) for text in args.runs]
    from fedrec_unlearn import pipeline

    page = pipeline.report(folders, None if args.output is None else Path(args.output))
    if len(folders) == 1:
        print_results(folders[0], args.quiet)
    elif not args.quiet:
        print_table(comparison_table(figures_of_runs(folders)))
    print_path(args.quiet, "Report", page)
    return 0
