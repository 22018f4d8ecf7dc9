"""The argument parser of a verb: argparse, with spelling forgiven where it is unambiguous and explained where not."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from typing import NoReturn

from fedrec_unlearn.config_options import FALSE_WORDS, TRUE_WORDS, did_you_mean, suggestions
from fedrec_unlearn.errors import ConfigError


class CommandParser(argparse.ArgumentParser):
    """Parser of one verb; mistakes raise `ConfigError` instead of ending the process."""

    def __init__(self, verb: str, summary: str) -> None:
        """A parser with the options every verb has.

        Args:
            verb: for example ``train``.
            summary: what it does, in one line.
        """
        super().__init__(
            prog=f"fedrec {verb}",
            description=summary[0].upper() + summary[1:] + ".",
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.switches: set[str] = set()
        """Flags whose value may be left out, which then is true."""
        self.takes_any = False
        """Whether options it does not know are kept instead of refused, if they are written --name=value."""
        self.others: dict[str, str] = {}
        """Those that were kept: name without dashes, ``_`` between words, to value."""
        self.add_argument("--quiet", "-q", action="store_true", help="print nothing but the result's path")
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def parse_words(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse arguments.

        Raises:
            ConfigError: an unknown option, with the nearest known ones, or a misplaced word.
        """
        args, rest = self.parse_known_args(self._spelled(words))
        if rest:
            raise ConfigError(
                f"unexpected argument {rest[0]!r}; lists are written with commas (gender,age); see {self.prog} --help"
            )
        return args

    def error(self, message: str) -> NoReturn:
        """Called by argparse for a mistake it found."""
        raise ConfigError(f"{message}; see {self.prog} --help")

    def _spelled(self, words: Sequence[str]) -> list[str]:
        """The words with ``_`` in option names read as ``-`` and every switch given its value."""
        spelled: list[str] = []
        remaining = list(words)
        while remaining:
            word = remaining.pop(0)
            if word == "--":
                return [*spelled, word, *remaining]
            if not word.startswith("--"):
                spelled.append(word)
                continue
            name, equals, value = word.partition("=")
            flag = name.replace("_", "-")
            if flag not in self._option_string_actions and self.takes_any and equals:
                self.others[name.removeprefix("--").replace("-", "_")] = value
                continue
            if flag not in self._option_string_actions:
                raise ConfigError(f"unknown option {name}{self._near(flag)}")
            if flag in self.switches and not equals:
                follows = remaining and remaining[0].lower() in TRUE_WORDS | FALSE_WORDS
                equals, value = "=", remaining.pop(0) if follows else "true"
            spelled.append(f"{flag}{equals}{value}")
        return spelled

    def _near(self, flag: str) -> str:
        known = [name for name in self._option_string_actions if name.startswith("--")]
        near = difflib.get_close_matches(flag, known, n=2, cutoff=0.75)
        dotted = ("--" + name.replace("_", "-") for name in suggestions(flag.removeprefix("--")))
        near += [name for name in dotted if name in known]
        return did_you_mean(list(dict.fromkeys(near))[:3]) or f"; see {self.prog} --help"
