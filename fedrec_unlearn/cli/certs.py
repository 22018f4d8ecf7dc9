"""``fedrec certs``: certificates and keys for a trial of two servers."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.cli.runs import print_path
from fedrec_unlearn.errors import ConfigError


def configure(parser: CommandParser) -> None:
    """Add the verb's options."""
    parser.usage = f"{parser.prog} -o DIR [options]"
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="folder to make; must be new or empty")
    parser.add_argument(
        "--hosts",
        metavar="A,B",
        default="localhost,127.0.0.1",
        help="names and addresses the servers are reached by. Default: localhost,127.0.0.1.",
    )
    parser.add_argument("--days", metavar="N", default="30", help="life of the certificates. Default: 30.")
    parser.epilog = (
        "For trials: one authority, server-0, server-1, coordinator and client, each with a folder of its own.\n"
        "Everybody gets ca.pem and sealing-*.pub, and of the folders only its own.\n\n"
        "fedrec certs -o certs"
    )


def run(args: argparse.Namespace) -> int:
    """Make the set and print its folder."""
    try:
        days = int(args.days)
    except ValueError:
        raise ConfigError(f"--days takes a number of days, not {args.days!r}") from None
    hosts = [host.strip() for host in args.hosts.split(",") if host.strip()]
    from fedrec_unlearn.serving.certificates import make_certificates

    folder = make_certificates(Path(args.output), hosts, days)
    print_path(args.quiet, "Certificates", folder, f"fedrec serve --party 1 --certs {args.output} --spool spool-1")
    return 0
