"""Configuration files: strict YAML to `Config` and back.

Every option of a file must exist, once, and have a value of its type; a mistake is told with file, line and the
nearest known name before any work starts. Files hold sections of `fedrec_unlearn.config`::

    seed: 2020
    federation:
      rounds: 600

`fedrec_unlearn.config_options` lists the options and says how a value may be written.
"""

from __future__ import annotations

import dataclasses
import difflib
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from fedrec_unlearn.config import SECTIONS, Config
from fedrec_unlearn.config_options import (
    Option,
    convert,
    did_you_mean,
    option_docs,
    options,
    options_by_name,
    parse_text,
    suggestions,
)
from fedrec_unlearn.errors import ConfigError

__all__ = [
    "Option",
    "config_from_dict",
    "config_to_dict",
    "dump_config",
    "load_config",
    "option_docs",
    "options",
    "packaged_configs",
]

_SUFFIXES = (".yaml", ".yml")


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A value some source gives to a name that may or may not be an option."""

    name: str
    value: object
    where: str
    """``file:line: ``, or empty."""


def load_config(path: str | Path | None, overrides: Mapping[str, object] | Sequence[str] = ()) -> Config:
    """The configuration in a file, with overrides laid over it.

    Args:
        path: a YAML file, or the bare name of a configuration that comes with the package (``demo``).
            None: the defaults.
        overrides: a mapping of dotted names to values (``{"federation.rounds": 5}``, nested sections also
            serve), or texts as a command line gives them (``["federation.rounds=5"]``).

    Raises:
        ConfigError: no such file, not YAML, an unknown or repeated option, or a value that does not fit.
    """
    entries = [] if path is None else _read_file(_locate(path))
    replaced = list(_override_entries(overrides))
    names = {entry.name for entry in replaced}
    return _build([*(entry for entry in entries if entry.name not in names), *replaced])


def config_from_dict(values: Mapping[str, object]) -> Config:
    """The configuration in nested (or dotted) plain values; the inverse of `config_to_dict`.

    Raises:
        ConfigError: an unknown option or a value that does not fit.
    """
    return load_config(None, values)


def config_to_dict(config: Config) -> dict[str, Any]:
    """Nested dicts, lists, numbers and texts, ready for JSON or YAML."""
    return {name: _plain(value) for name, value in dataclasses.asdict(config).items()}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value


def dump_config(config: Config, comments: bool = False) -> str:
    """YAML text that `load_config` reads back to an equal configuration.

    Args:
        config: the configuration.
        comments: write each option's docstring above it.
    """
    values = config_to_dict(config)
    lines: list[str] = []
    section = ""
    for option in options():
        if option.section != section:
            section = option.section
            lines += ["", f"{section}:"]
        indent = "  " if section else ""
        value = values[section][option.name.rpartition(".")[2]] if section else values[option.name]
        if comments:
            lines += textwrap.wrap(option.doc, 110, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        lines.append(f"{indent}{option.name.rpartition('.')[2]}: {_written(value)}")
    return "\n".join(lines) + "\n"


def _written(value: object) -> str:
    entries = value if isinstance(value, list) else [value]
    # line breaks and control characters survive in double quotes only
    quoted = any(isinstance(entry, str) and not entry.isprintable() for entry in entries)
    style: dict[str, Any] = {"default_style": '"'} if quoted else {"allow_unicode": True}
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6, **style)
    # a lone scalar is followed by an end-of-document mark
    return text.rstrip().removesuffix("...").rstrip()


def packaged_configs() -> dict[str, Path]:
    """Configurations that come with the package, by bare name."""
    inside = Path(__file__).parent / "configs"
    # a source checkout keeps them beside the package; the wheel carries a copy inside it
    folder = inside if inside.is_dir() else Path(__file__).parent.parent / "configs"
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def _locate(path: str | Path) -> Path:
    file = Path(path).expanduser()
    if file.is_file():
        return file
    known = packaged_configs()
    if str(path) in known:
        return known[str(path)]
    if file.is_dir():
        inner = file / "config.yaml"
        hint = f"; the configuration of that run is {inner}" if inner.is_file() else ""
        raise ConfigError(f"{file} is a folder, not a configuration file{hint}")
    here = sorted(str(near) for near in file.parent.glob("*") if near.suffix in _SUFFIXES)
    near = difflib.get_close_matches(str(file), here, n=2) or [n for n in here if Path(n).stem == file.name]
    near += difflib.get_close_matches(file.stem, known, n=1)
    hint = did_you_mean(near) or f"; configurations that come with the package: {', '.join(known) or 'none'}"
    raise ConfigError(f"no configuration file {file}{hint}")


def _read_file(file: Path) -> list[_Entry]:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        return [] if root is None else list(_entries(loader, root, file))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else str(file)
        raise ConfigError(f"{place}: not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from None
    finally:
        loader.dispose()


def _entries(loader: yaml.SafeLoader, root: yaml.Node, file: Path, section: str = "") -> Iterable[_Entry]:
    where = f"{file}:{root.start_mark.line + 1}: "
    if not isinstance(root, yaml.MappingNode):
        what = f"section {section} must hold" if section else "a configuration is made of"
        raise ConfigError(f"{where}{what} lines 'option: value', not {_node_kind(root)}")
    for key, node in root.value:
        where = f"{file}:{key.start_mark.line + 1}: "
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{where}an option's name must be a word, not {_node_kind(key)}")
        name = f"{section}.{key.value}" if section else key.value
        empty = isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"
        if name not in SECTIONS:
            yield _Entry(name, loader.construct_object(node, deep=True), where)
        elif not empty:
            yield from _entries(loader, node, file, name)


def _node_kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.CollectionNode):
        return "a list" if isinstance(node, yaml.SequenceNode) else "a map"
    return repr(node.value)


def _override_entries(overrides: Mapping[str, object] | Sequence[str]) -> Iterable[_Entry]:
    if isinstance(overrides, Mapping):
        for name, value in overrides.items():
            if name not in SECTIONS:
                yield _Entry(name, value, "")
            elif isinstance(value, Mapping):
                yield from (_Entry(f"{name}.{inner}", v, "") for inner, v in value.items())
            elif value is not None:
                raise ConfigError(f"{name} is a section: give it a mapping of options, not {value!r}")
        return
    if isinstance(overrides, str):
        raise ConfigError(f"overrides must be a list of texts, not one text: [{overrides!r}]")
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"override {text!r} must be written name=value")
        name = name.strip()
        option = options_by_name().get(name)
        yield _Entry(name, value if option is None else parse_text(option, value), "")


def _build(entries: Iterable[_Entry]) -> Config:
    known = options_by_name()
    given: dict[str, _Entry] = {}
    sections: dict[str, dict[str, object]] = {"": {}, **{name: {} for name in SECTIONS}}
    for entry in entries:
        option = known.get(entry.name)
        if option is None:
            raise ConfigError(f"{entry.where}unknown option {entry.name}{did_you_mean(suggestions(entry.name))}")
        if entry.name in given:
            before = given[entry.name].where.rstrip(": ")
            raise ConfigError(f"{entry.where}{entry.name} is given twice{f', first at {before}' if before else ''}")
        given[entry.name] = entry
        try:
            sections[option.section][entry.name.rpartition(".")[2]] = convert(option, entry.value)
        except ConfigError as error:
            raise ConfigError(f"{entry.where}{error}") from None
    hints = get_type_hints(Config)
    try:
        return Config(**sections[""], **{name: hints[name](**sections[name]) for name in SECTIONS})  # type: ignore[arg-type]
    except ConfigError as error:
        named = given.get(str(error).partition(":")[0])
        raise ConfigError(f"{named.where if named else ''}{error}") from None
