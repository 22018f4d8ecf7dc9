"""``fedrec doctor``: explain this installation."""

from __future__ import annotations

import argparse

from fedrec_unlearn.cli.parser import CommandParser


def configure(parser: CommandParser) -> None:
    """Add the verb's options."""
    parser.usage = f"{parser.prog} [options]"
    parser.epilog = "Exit status 1 if something that is needed does not work; --quiet shows only what is not well."


def run(args: argparse.Namespace) -> int:
    """Print every finding, with a remedy where it is not well."""
    from rich.console import Console
    from rich.text import Text

    from fedrec_unlearn.cli.environment import Check, all_checks

    styles = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    console = Console(soft_wrap=True, highlight=False)
    seen: list[Check] = []
    for check in all_checks():
        seen.append(check)
        if args.quiet and check.status == "ok":
            continue
        console.print(Text(f"{check.status:<5}", styles[check.status]) + Text(f"{check.subject:<20} {check.detail}"))
        if check.remedy:
            console.print(Text(f"{'':<26}{check.remedy}", "dim"))
    failed = sum(check.status == "fail" for check in seen)
    warned = sum(check.status == "warn" for check in seen)
    if not args.quiet:
        console.print(
            f"\n{failed} of {len(seen)} checks failed: what is marked fail must be mended first."
            if failed
            else f"\nNothing that is needed is missing; {warned} optional."
            if warned
            else "\nAll is well."
        )
    return 1 if failed else 0
