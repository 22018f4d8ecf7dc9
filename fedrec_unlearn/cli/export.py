"""``fedrec export``: the trained embeddings of a run as a file for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.cli.runs import print_path, run_folder
from fedrec_unlearn.errors import ConfigError


def configure(parser: CommandParser) -> None:
    """Add the verb's options."""
    parser.usage = f"{parser.prog} RUN OUTPUT.npz [options]"
    parser.add_argument("run", metavar="RUN", help="run folder, as fedrec train writes it")
    parser.add_argument("output", metavar="OUTPUT", help="file to write, a numpy archive (.npz)")
    parser.add_argument(
        "--part",
        choices=("best", "latest", "before"),
        default="best",
        help="whose state is written: of the round with the best validation value (after unlearning), of the last "
        "round, or before unlearning. Default: best.",
    )
    parser.epilog = "fedrec export runs/a users.npz"


def run(args: argparse.Namespace) -> int:
    """Export and print the file's path."""
    output = Path(args.output)
    if output.suffix != ".npz":
        raise ConfigError(f"output {args.output!r} must end in .npz, for example {output.with_suffix('.npz')}")
    folder = run_folder(args.run)
    from fedrec_unlearn import pipeline

    print_path(args.quiet, "Exported", pipeline.export(folder, output, part=args.part))
    return 0
