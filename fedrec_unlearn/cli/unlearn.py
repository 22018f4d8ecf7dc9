"""``fedrec unlearn``: remove user attributes from a trained run, or train a recommender without them."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from fedrec_unlearn.cli.options import add_config_options, given_options, print_config
from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.cli.progress import command_progress
from fedrec_unlearn.cli.runs import print_path, print_results, run_folder, shown_path
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.errors import ConfigError

AFTER_TRAINING = "moments"
"""Method for a trained run, where none is named."""
IN_TRAINING = "fedau2"
"""Method for a configuration, where none is named."""


def configure(parser: CommandParser) -> None:
    """Add the verb's options."""
    parser.usage = f"{parser.prog} RUN|CONFIG --attribute A[,B] [options]"
    parser.add_argument(
        "subject",
        nargs="?",
        metavar="RUN|CONFIG",
        help=f"a run folder, which is left as it is (method {AFTER_TRAINING} unless another is named); or a "
        f"configuration to train without the attributes (method {IN_TRAINING})",
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print the resulting configuration with comments and do nothing"
    )
    add_config_options(parser, short={"unlearn.attributes": ("--attribute",)})
    parser.epilog = (
        "With a run, only the options of section unlearn, --output and --seed count; the rest is the run's own.\n"
        "fedrec unlearn runs/a --attribute gender\n"
        "fedrec unlearn demo --attribute gender,age --method fedau2 --epsilon 0.1"
    )


def run(args: argparse.Namespace) -> int:
    """Unlearn and print what recommendations are worth afterwards."""
    given = given_options(args)
    of_run = args.subject is not None and Path(args.subject).is_dir()
    given.setdefault("unlearn.method", AFTER_TRAINING if of_run else IN_TRAINING)
    if of_run:
        folder = _unlearn_run(args, given)
    else:
        config = load_config(args.subject, given)
        if args.print_config:
            return print_config(config)
        from fedrec_unlearn import pipeline

        folder = pipeline.train(config, progress=command_progress(args.quiet))
    if folder is None:
        return 0
    print_results(folder, args.quiet, attack=False)
    before = " --before" if (folder / "before.safetensors").exists() else ""
    print_path(args.quiet, "Run folder", folder, f"fedrec attack {shlex.quote(shown_path(folder))}{before}")
    return 0


def _unlearn_run(args: argparse.Namespace, given: dict[str, object]) -> Path | None:
    source = run_folder(args.subject)
    own = {name: value for name, value in given.items() if name.startswith("unlearn.") or name in ("output", "seed")}
    others = [f"--{name.replace('_', '-')}" for name in given if name not in own]
    if others:
        raise ConfigError(
            f"a trained run keeps its own configuration; leave out {', '.join(others)}, or give a configuration "
            "instead of a run to train anew"
        )
    config = load_config(str(source / "config.yaml"), own)
    if args.print_config:
        print_config(config)
        return None
    from fedrec_unlearn import pipeline

    output, seed = given.get("output"), given.get("seed")
    return pipeline.unlearn(
        source,
        config.unlearn,
        output=None if output is None else Path(str(output)),
        seed=seed if isinstance(seed, int) else None,
        progress=command_progress(args.quiet),
    )
