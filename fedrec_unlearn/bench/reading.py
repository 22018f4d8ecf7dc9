"""Strict reading of nested YAML: every value knows its file, line and name, and says so when it does not fit.

`fedrec_unlearn.config_file` reads configurations, which have two levels and a fixed list of options. A study has lists
of maps beside configurations; this is the reader for those.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

from fedrec_unlearn.config import SECTIONS, Config
from fedrec_unlearn.config_file import config_from_dict
from fedrec_unlearn.config_options import did_you_mean
from fedrec_unlearn.errors import ConfigError

_NULL = "tag:yaml.org,2002:null"


@dataclass(frozen=True)
class Entry:
    """One value of a file."""

    file: Path
    name: str
    """Where it stands among the others: ``arms[2].epsilon``, empty for the whole file."""
    node: yaml.Node

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.node.start_mark.line + 1}"

    def fail(self, problem: str) -> NoReturn:
        """Raise `ConfigError` that says where and what."""
        raise ConfigError(f"{self.where}: {f'{self.name}: ' if self.name else ''}{problem}")

    @property
    def empty(self) -> bool:
        """Whether nothing is written after the colon, or null."""
        return isinstance(self.node, yaml.ScalarNode) and self.node.tag == _NULL

    def items(self) -> dict[str, Entry]:
        """Keys and values of a map, in order.

        Raises:
            ConfigError: not a map, a key that is not a word, or a key given twice.
        """
        if self.empty:
            return {}
        if not isinstance(self.node, yaml.MappingNode):
            self.fail(f"must hold lines 'key: value', not {_shown(self.node)}")
        found: dict[str, Entry] = {}
        for key, node in self.node.value:
            at = Entry(self.file, self.name, key)
            if not isinstance(key, yaml.ScalarNode):
                at.fail(f"a key must be a word, not {_shown(key)}")
            if key.value in found:
                at.fail(f"{key.value} is given twice, first in line {found[key.value].node.start_mark.line + 1}")
            found[key.value] = Entry(self.file, f"{self.name}.{key.value}" if self.name else key.value, node)
        return found

    def fields(self, known: Collection[str], required: Collection[str] = ()) -> dict[str, Entry]:
        """`items` of a map that may have no other keys than those known.

        Raises:
            ConfigError: an unknown key, with the nearest known ones, or one that is missing.
        """
        found = self.items()
        for key, entry in found.items():
            if key not in known:
                near = did_you_mean(difflib.get_close_matches(key, known, n=2))
                inside = f" in {self.name}" if self.name else ""
                raise ConfigError(f"{entry.where}: unknown key {key}{inside}{near or '; known: ' + ', '.join(known)}")
        for key in required:
            if key not in found or found[key].empty:
                self.fail(f"{key} is missing")
        return found

    def entries(self) -> list[Entry]:
        """Entries of a list.

        Raises:
            ConfigError: not a list.
        """
        if not isinstance(self.node, yaml.SequenceNode):
            self.fail(f"must be a list, not {_shown(self.node)}")
        return [Entry(self.file, f"{self.name}[{n}]", node) for n, node in enumerate(self.node.value, 1)]

    def value(self) -> Any:
        """The value as YAML means it.

        Raises:
            ConfigError: YAML gives it no meaning.
        """
        try:
            return SafeConstructor().construct_document(self.node)  # type: ignore[no-untyped-call, unused-ignore]
        except (ConstructorError, ValueError) as error:
            self.fail(f"not a plain value: {' '.join(str(error).split())}")

    def text(self) -> str:
        """A text.

        Raises:
            ConfigError: something else.
        """
        value = self.value()
        if not isinstance(value, str) or not value.strip():
            self.fail(f"must be a text, not {_shown(self.node)}")
        return value

    def integer(self, least: int | None = None) -> int:
        """A whole number.

        Raises:
            ConfigError: something else, or less than `least`.
        """
        value = self.value()
        if not isinstance(value, int) or isinstance(value, bool):
            self.fail(f"must be a whole number, not {_shown(self.node)}")
        if least is not None and value < least:
            self.fail(f"must be at least {least}, not {value}")
        return value

    def number(self) -> float:
        """A finite number; ``1e-3``, which YAML 1.1 reads as text, is one too.

        Raises:
            ConfigError: something else.
        """
        value = self.value()
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"must be a number, not {_shown(self.node)}")
        return number

    def texts(self) -> tuple[str, ...]:
        """A list of texts, none twice.

        Raises:
            ConfigError: something else.
        """
        found = tuple(entry.text() for entry in self.entries())
        if len(set(found)) < len(found):
            self.fail(f"names {next(t for t in found if found.count(t) > 1)} twice")
        return found

    def one_of(self, known: Collection[str]) -> str:
        """A text among those known.

        Raises:
            ConfigError: another text, with the nearest known one.
        """
        value = self.text()
        if value not in known:
            near = did_you_mean(difflib.get_close_matches(value, known, n=2))
            self.fail(f"unknown entry {value!r}{near or '; known: ' + ', '.join(known)}")
        return value


def read_seeds(entry: Entry) -> tuple[int, ...]:
    """Seeds of a study, at least one and none twice.

    Raises:
        ConfigError: something else.
    """
    seeds = tuple(seed.integer(least=0) for seed in entry.entries())
    if not seeds:
        entry.fail("needs at least one seed")
    if len(set(seeds)) < len(seeds):
        entry.fail("names a seed twice")
    return seeds


def read_yaml(file: Path) -> Entry:
    """The root of a file.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or is empty.
    """
    try:
        root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{file}:{mark.line + 1}" if mark else str(file)
        raise ConfigError(f"{place}: not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from None
    if root is None:
        raise ConfigError(f"{file}: the file is empty")
    return Entry(file, "", root)


@dataclass(frozen=True)
class Options:
    """Options of a configuration as a file gives them, by dotted name, each with the entry it came from."""

    entries: Mapping[str, Entry]

    @classmethod
    def of(cls, entry: Entry) -> Options:
        """Options of a map with sections (``federation: {rounds: 5}``), dotted names, or both.

        Raises:
            ConfigError: an option given twice.
        """
        found: dict[str, Entry] = {}
        for name, value in entry.items().items():
            inner = {f"{name}.{key}": v for key, v in value.items().items()} if name in SECTIONS else {name: value}
            for dotted, option in inner.items():
                if dotted in found:
                    option.fail(f"{dotted} is given twice, first at {found[dotted].where}")
                found[dotted] = option
        return cls(found)

    def over(self, below: Options) -> Options:
        """These options laid over others."""
        return Options({**below.entries, **self.entries})

    def config(self) -> Config:
        """The configuration; what is not given has its default.

        Raises:
            ConfigError: an unknown option or a value that does not fit, with file and line.
        """
        try:
            return config_from_dict({name: entry.value() for name, entry in self.entries.items()})
        except ConfigError as error:
            # a message of the configuration begins with the option, or says that it is unknown
            named = re.match(r"(?:unknown option )?([\w.]+)", str(error))
            entry = self.entries.get(named[1]) if named else None
            raise ConfigError(f"{entry.where}: {error}" if entry else str(error)) from None


def _shown(node: yaml.Node) -> str:
    if isinstance(node, yaml.CollectionNode):
        return "a list" if isinstance(node, yaml.SequenceNode) else "a map"
    return "nothing" if node.tag == _NULL else repr(node.value)
