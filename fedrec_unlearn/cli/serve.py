"""``fedrec serve``: be one of the two SecEmb servers."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.errors import ConfigError


def configure(parser: CommandParser) -> None:
    """Add the verb's options."""
    parser.usage = f"{parser.prog} --party 0|1 --certs DIR --spool DIR [options]"
    parser.add_argument("--party", choices=("0", "1"), required=True, help="which of the two servers")
    parser.add_argument("--certs", metavar="DIR", required=True, help="folder of certificates, see fedrec certs")
    parser.add_argument("--spool", metavar="DIR", required=True, help="folder for what a restart must not lose")
    parser.add_argument("--host", default="127.0.0.1", help="name or address to listen on. Default: 127.0.0.1.")
    parser.add_argument("--port", metavar="N", default="0", help="port to listen on. Default: any free one.")
    parser.add_argument("--peer", metavar="URL", help="address of party 1, https://host:port; party 0 needs it")
    parser.epilog = (
        "Needs the extra: pip install 'fedrec-unlearn[serve]'. SIGTERM or Ctrl-C stops it, nothing is lost.\n\n"
        "fedrec serve --party 1 --port 8441 --certs certs --spool spool-1\n"
        "fedrec serve --party 0 --port 8440 --certs certs --spool spool-0 --peer https://localhost:8441"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; events go to standard error, one line each (--quiet: only what is not well)."""
    try:
        port = int(args.port)
    except ValueError:
        raise ConfigError(f"--port takes a number, not {args.port!r}; 0 is any free one") from None
    from fedrec_unlearn.serving.run import Settings, serve

    log = logging.getLogger("fedrec_unlearn.serving")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.WARNING if args.quiet else logging.INFO)
    settings = Settings(certs=Path(args.certs), spool=Path(args.spool), host=args.host, port=port, peer=args.peer)
    serve(int(args.party), settings, announce=lambda line: print(line, flush=True))
    return 0
