"""One command-line option for each field of the configuration, and the configuration the options ask for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.config import SECTIONS, AttackConfig, Config
from fedrec_unlearn.config_file import dump_config, load_config
from fedrec_unlearn.config_options import Option, options, options_by_name, parse_text

SHORT = {
    "output": ("-o",),
    "data.name": ("--data",),
    "data.dir": ("--data-dir",),
    "split.method": ("--split",),
    "model.name": ("--model",),
    "model.embedding_dim": ("--embedding-dim",),
    "federation.engine": ("--engine",),
    "federation.rounds": ("--rounds",),
    "federation.clients_per_round": ("--clients-per-round",),
    "federation.objective": ("--objective",),
    "federation.local_epochs": ("--local-epochs",),
    "federation.transport": ("--transport",),
    "evaluation.topk": ("--topk",),
    "unlearn.method": ("--method",),
    "unlearn.epsilon": ("--epsilon",),
    "attack.attributes": ("--attributes",),
    "attack.attackers": ("--attackers",),
    "attack.surfaces": ("--surfaces",),
    "attack.folds": ("--folds",),
    "attack.seeds": ("--seeds",),
    "attack.jobs": ("--jobs",),
}
"""Further names of the options most often given; each is a promise, so they are listed and not derived."""

TITLES = {
    "": "run",
    "data": "data: which interactions and attributes",
    "split": "split: train, validation and test",
    "model": "model: the recommender",
    "federation": "federation: rounds, clients and server",
    "secemb": "secemb: item rows through two servers",
    "evaluation": "evaluation: how recommendations are judged",
    "unlearn": "unlearn: which attributes to remove, and how",
    "attack": "attack: attribute inference",
}


def add_config_options(
    parser: CommandParser, sections: Sequence[str] = ("", *SECTIONS), short: Mapping[str, tuple[str, ...]] | None = None
) -> None:
    """Add an option for every field of the sections, grouped and documented.

    Args:
        parser: of the verb.
        sections: names from `SECTIONS`; the empty one stands for the fields at the top.
        short: further names of options in this verb, beside `SHORT`.
    """
    for section in sections:
        group = parser.add_argument_group(TITLES[section])
        for option in options():
            if option.section != section:
                continue
            flag = "--" + option.name.replace("_", "-")
            if option.annotation is bool:
                parser.switches.add(flag)
            group.add_argument(
                *SHORT.get(option.name, ()),
                *(short or {}).get(option.name, ()),
                flag,
                dest=option.name,
                default=argparse.SUPPRESS,
                metavar=_metavar(option),
                help=_help(option),
            )


def add_config_file(parser: CommandParser) -> None:
    """Add the positional CONFIG and ``--print-config``."""
    parser.usage = f"{parser.prog} [CONFIG] [options]"
    parser.add_argument(
        "config",
        nargs="?",
        metavar="CONFIG",
        help="a YAML file, or the name of one that comes with the package (demo); the options below override it",
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print the resulting configuration with comments and do nothing"
    )


def given_options(args: argparse.Namespace) -> dict[str, object]:
    """Values of the configuration options given on the command line, by dotted name.

    Raises:
        ConfigError: a value that does not fit its option.
    """
    known = options_by_name()
    return {name: parse_text(known[name], text) for name, text in vars(args).items() if name in known}


def config_from_arguments(args: argparse.Namespace) -> Config:
    """The configuration of a verb that has `add_config_file` and `add_config_options`.

    Raises:
        ConfigError: in the file or in an option.
    """
    return load_config(args.config, given_options(args))


def attack_config(args: argparse.Namespace, run_config: str) -> AttackConfig | None:
    """The attack a verb's options ask for, on top of the run's own; None where no option was given.

    Args:
        args: of a verb with the options of section attack.
        run_config: path of the run's config.yaml.

    Raises:
        ConfigError: in the file or in an option.
    """
    overrides = given_options(args)
    return load_config(run_config, overrides).attack if overrides else None


def print_config(config: Config) -> int:
    """Write the configuration with its comments to standard output, as a file that can be used."""
    print(dump_config(config, comments=True), end="")
    return 0


def _metavar(option: Option) -> str:
    if option.choices:
        return "{" + ",".join(option.choices) + "}"
    if option.annotation is bool:
        return "[true|false]"
    words = {"an integer": "N", "a number": "X", "text": "TEXT", "text, or null": "TEXT", "a number, or null": "X"}
    return words.get(option.type_name, "A,B,...")


def _help(option: Option) -> str:
    default = option.default
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
    if isinstance(default, bool):
        shown = shown.lower()
    text = option.doc if default is None or shown == "" else f"{option.doc} Default: {shown}."
    return text.replace("%", "%%")
