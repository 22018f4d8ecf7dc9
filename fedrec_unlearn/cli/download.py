"""``fedrec download``: fetch a data set and check it, or list those that can be had."""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.cli.progress import command_progress
from fedrec_unlearn.cli.runs import print_path
from fedrec_unlearn.cli.tables import Table, print_table
from fedrec_unlearn.errors import ConfigError, DataError
from fedrec_unlearn.progress import Progress

if TYPE_CHECKING:
    from fedrec_unlearn.data.cards import Card


def configure(parser: CommandParser) -> None:
    """Add the verb's options."""
    parser.usage = f"{parser.prog} NAME [options]\n       {parser.prog} --list"
    parser.add_argument("name", nargs="?", metavar="NAME", help="data set, for example ml-1m")
    parser.add_argument("--list", action="store_true", help="list the data sets, and which are here already")
    parser.add_argument(
        "--output",
        "-o",
        metavar="FOLDER",
        help="folder to create. Default: the download cache, where runs look ($FEDREC_CACHE moves it).",
    )
    parser.add_argument(
        "--accept-unverified",
        action="store_true",
        help="take files whose checksum nobody has published; what arrives is recorded",
    )
    parser.epilog = "fedrec download ml-1m"


def run(args: argparse.Namespace) -> int:
    """Download and print where the files are."""
    from fedrec_unlearn.data.cards import card_names, read_card
    from fedrec_unlearn.data.download import download

    if args.list:
        print_table(_listing([read_card(name) for name in card_names()]))
        return 0
    if args.name is None:
        raise ConfigError(f"which data set? fedrec download NAME, with NAME one of {', '.join(card_names())}")
    card = read_card(args.name)
    if not args.quiet:
        for label, text in (("", card.title), ("Licence: ", card.licence), ("Cite: ", card.citation)):
            print(textwrap.fill(label + " ".join(text.split()), 110), file=sys.stderr)
    transfer = _Transfer(command_progress(args.quiet))
    folder = None if args.output is None else Path(args.output)
    try:
        place = download(args.name, folder, progress=transfer, accept_unverified=args.accept_unverified)
    finally:
        transfer.finish()
    hint = "" if folder is None else f"fedrec train --data {args.name} --data-dir {place}"
    print_path(args.quiet, card.title, place, hint)
    return 0


class _Transfer:
    """Shows the files of a download one after another, in kilobytes."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._file: str | None = None

    def __call__(self, file: str, done: int, total: int | None) -> None:
        if file != self._file:
            self.finish()
            self._file = file
            self._shown.start(file, (total or 0) // 1000, "kilobyte")
        self._shown.advance(done // 1000, {})

    def finish(self) -> None:
        if self._file is not None:
            self._shown.finish()


def _listing(cards: list[Card]) -> Table:
    return Table(
        "Data sets",
        ("name", "title", "users", "items", "interactions", "attributes", "here"),
        tuple(
            (
                card.name,
                card.title,
                f"{card.sizes.users:,}",
                f"{card.sizes.items:,}",
                f"{card.sizes.interactions:,}",
                ", ".join(card.attributes) or "none",
                "yes" if _is_here(card.name) else "no",
            )
            for card in cards
        ),
        figures=frozenset({2, 3, 4}),
    )


def _is_here(name: str) -> bool:
    from fedrec_unlearn.config import DataConfig
    from fedrec_unlearn.data.places import find_files

    try:
        find_files(DataConfig(name=name))
    except DataError:
        return False
    return True
