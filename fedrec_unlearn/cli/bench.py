"""``fedrec bench``: reproduce a paper's tables: many runs over several seeds, measured alike and summarised."""

from __future__ import annotations

import argparse
import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.cli.progress import command_progress
from fedrec_unlearn.cli.runs import print_path, shown_path
from fedrec_unlearn.cli.tables import Table, print_table
from fedrec_unlearn.config_file import packaged_configs
from fedrec_unlearn.config_options import did_you_mean
from fedrec_unlearn.errors import ConfigError, DataError

if TYPE_CHECKING:
    from fedrec_unlearn.bench import AnyStudy
    from fedrec_unlearn.bench.tables import StudyTable
    from fedrec_unlearn.progress import Progress

OUTPUT = "runs/bench"
"""Folder of studies unless another is named."""


def configure(parser: CommandParser) -> None:
    """Add the verb's options."""
    known = _studies()
    parser.usage = f"{parser.prog} --paper PAPER [options]"
    papers = ", ".join(sorted({name.partition("_")[0] for name in known})) or "none"
    parser.add_argument("--paper", metavar="PAPER", help=f"the paper whose studies are carried out: {papers}")
    parser.add_argument(
        "--study",
        metavar="NAME",
        help=f"one of its studies, or a study file of your own. Default: every one whose data is there. "
        f"Studies: {', '.join(known) or 'none'}",
    )
    parser.add_argument("--quick", action="store_true", help="fewer seeds, arms and rounds: shows that it works")
    parser.add_argument("--jobs", metavar="N", default="1", help="runs at the same time, one thread each. Default: 1.")
    parser.add_argument(
        "--output",
        "-o",
        metavar="FOLDER",
        default=OUTPUT,
        help=f"a folder for each study goes here. Default: {OUTPUT}.",
    )
    parser.add_argument(
        "--list", action="store_true", help="print what would be done, and how far it is, and do nothing"
    )
    parser.epilog = (
        "Interrupted, it goes on where it was when started again; what is finished is not done again.\n"
        "fedrec bench --paper fedau2 --study ml-100k --quick --jobs 2\n"
        "fedrec bench --paper secemb --quick"
    )


def run(args: argparse.Namespace) -> int:
    """Carry out the studies and print their tables."""
    jobs = _jobs(args.jobs)
    from fedrec_unlearn import bench

    studies = _asked_for(args)
    progress = command_progress(args.quiet)
    output = Path(args.output)
    if args.list:
        for study in studies:
            print_table(_shown(bench.plan(study, output)))
        return 0
    if args.study is None:
        studies = _with_data(studies, progress)
    for study in studies:
        folder = bench.run_study(study, output, jobs=jobs, progress=progress)
        if not args.quiet:
            _print_results(folder)
        print_path(args.quiet, "Study", folder)
    return 0


def _studies() -> list[str]:
    # without importing the studies' package, which loads torch
    folder = next(iter(packaged_configs().values())).parent / "paper"
    return sorted(file.stem for file in folder.glob("*.yaml"))


def _jobs(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigError(f"--jobs: must be a whole number of at least 1, not {text!r}")
    return int(text)


def _asked_for(args: argparse.Namespace) -> list[AnyStudy]:
    from fedrec_unlearn import bench

    if args.study is not None:
        return [bench.load_study(bench.find_study(args.study, args.paper), quick=args.quick)]
    known = bench.paper_studies()
    papers = sorted({name.partition("_")[0] for name in known})
    if args.paper is None:
        raise ConfigError(f"--paper is missing: name the paper ({', '.join(papers)}), or a study with --study")
    if args.paper not in papers:
        near = did_you_mean(difflib.get_close_matches(args.paper, papers, n=1))
        raise ConfigError(f"--paper: no studies of {args.paper!r}{near or '; papers: ' + ', '.join(papers)}")
    return [bench.load_study(file, quick=args.quick) for file in bench.paper_studies(args.paper).values()]


def _with_data(studies: list[AnyStudy], progress: Progress) -> list[AnyStudy]:
    """The studies whose data is there; the others are told of and left out."""
    from fedrec_unlearn import bench

    kept, errors = [], []
    for study in studies:
        try:
            bench.check_data(study)
        except DataError as error:
            errors.append(error)
            progress.message(f"{study.name} is left out: its data ({study.base.data.name}) is not there or not usable")
            continue
        kept.append(study)
    if not kept:
        raise errors[0]
    return kept


def _shown(table: StudyTable) -> Table:
    figures = frozenset(range(table.words, len(table.columns)))
    return Table(table.title, table.columns, table.rows, figures=figures, note=table.note)


def _print_results(folder: Path) -> None:
    from fedrec_unlearn import bench

    content = json.loads((folder / "bench.json").read_text(encoding="utf-8"))
    for table in bench.study_tables(content):
        print_table(_shown(table))
    met = sum(target["met"] for target in content["targets"])
    if content["targets"]:
        print(f"{met} of {len(content['targets'])} targets are met")
    if (folder / "study.html").is_file():
        print(f"Page: {shown_path(folder / 'study.html')}")
