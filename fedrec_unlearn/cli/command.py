"""From arguments to exit status: finds the verb, runs it, and turns what went wrong into words."""

from __future__ import annotations

import difflib
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import TextIO

from fedrec_unlearn import __version__
from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.config_options import did_you_mean
from fedrec_unlearn.errors import ConfigError, FedRecError
from fedrec_unlearn.progress import Interrupted

VERBS = {
    "run": "train, attack and report in one go",
    "train": "train a recommender over rounds of clients, or resume a run",
    "unlearn": "remove user attributes from a trained run, or train without them",
    "sweep": "try strengths of unlearning, judge each by fresh attackers, choose one",
    "attack": "infer user attributes from what a trained run shows",
    "report": "write one page, JSON and CSV on one or several runs",
    "recbole": "train a RecBole model with every user as a client, unlearn and attack",
    "bench": "regenerate the tables of a paper",
    "export": "write the trained embeddings to a file for other programs",
    "certs": "make certificates and keys for a trial of two servers",
    "serve": "be one of the two servers of secure embedding aggregation",
    "download": "fetch a data set and check it",
    "doctor": "explain this installation: versions, extras, device, data",
}
"""What each verb does; `fedrec_unlearn.cli.<verb>` carries it out."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, by the shells' convention."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: arguments after the program's name; None takes those of the process.

    Returns:
        0; `FedRecError.exit_code` of the error that ended it (2 for a mistake in the arguments or the
        configuration); 130 after Ctrl-C; 1 for anything unexpected.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # a terminal that lacks a character should show a question mark, not end the run
            stream.reconfigure(errors="replace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return _dispatch(words)
    except SystemExit as stop:  # argparse ends --help this way
        return stop.code if isinstance(stop.code, int) else 0
    except KeyboardInterrupt as stop:
        _tell(_interruption(stop))
        return INTERRUPTED
    except BrokenPipeError:
        # the reader (head, a pager) has gone; keep the interpreter from complaining when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except FedRecError as error:
        if debug:
            traceback.print_exc()
        _tell(f"error: {error}")
        return error.exit_code
    except Exception as error:
        if debug:
            traceback.print_exc()
        _tell(_unexpected(error, debug))
        return 1


def _dispatch(words: list[str]) -> int:
    leading = [word for word in words if word in ("--debug", "--quiet", "-q")]
    rest = [word for word in words if word not in leading]
    if not rest or rest[0] in ("-h", "--help", "help"):
        if len(rest) > 1 and rest[1] in VERBS:
            return _dispatch([rest[1], "--help"])
        print(_overview())
        return 0
    if rest[0] in ("--version", "-V", "version"):
        print(f"fedrec {__version__}")
        return 0
    verb = rest[0]
    if verb not in VERBS:
        raise ConfigError(_unknown_verb(verb))
    module = import_module(f"fedrec_unlearn.cli.{verb}")
    parser = CommandParser(verb, VERBS[verb])
    module.configure(parser)
    status: int = module.run(parser.parse_words([*leading, *rest[1:]]))
    return status


def _overview() -> str:
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {summary}" for verb, summary in VERBS.items()]
    return "\n".join(
        [
            "usage: fedrec VERB [options]",
            "",
            "User-level federated recommendation with attribute-inference audits.",
            "",
            *lines,
            "",
            "fedrec VERB --help lists a verb's options; fedrec --version tells the version.",
            "A first run: fedrec run demo",
        ]
    )


def _unknown_verb(word: str) -> str:
    if word.startswith("-"):
        return f"the verb comes first: fedrec VERB {word} ...; verbs are {', '.join(VERBS)}"
    if word.endswith((".yaml", ".yml")):
        return f"no verb before the configuration; write fedrec run {shlex.quote(word)}"
    near = did_you_mean(difflib.get_close_matches(word, VERBS, n=2))
    return f"unknown verb {word!r}{near or '; verbs are ' + ', '.join(VERBS)}"


def _interruption(stop: KeyboardInterrupt) -> str:
    if not isinstance(stop, Interrupted):
        return "interrupted"
    run = shlex.quote(str(stop.run))
    how = stop.how or f"fedrec train --resume {run}"
    return f"interrupted; {run} holds the run up to its last checkpoint. Go on with:\n  {how}"


def _unexpected(error: Exception, debug: bool) -> str:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "error: out of memory; a smaller --federation.block-mib or --evaluation.chunk-size needs less"
    if isinstance(error, OSError) and error.strerror:
        return f"error: {error.strerror}{f': {error.filename}' if error.filename else ''}"
    described = " ".join(str(error).split())
    hint = "" if debug else "\n  This is a defect of fedrec; run it again with --debug for the traceback to report."
    return f"error: unexpected {type(error).__name__}: {described}{hint}"


def _tell(text: str) -> None:
    print(f"fedrec: {text}", file=sys.stderr)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning as one line for a reader who did not write the code it points at."""
    _tell(f"warning: {message}")
