"""Data cards: what a public data set is, where it lies, how to tell that a download is the right one.

A card is a YAML file `datasets/<name>.yaml`. It names sources and licence and ships no data (the synthetic set
excepted). Cards are parsed strictly: an unknown key, a missing key or a value of the wrong kind is an error that
names the file and the key.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast, get_args

import yaml

from fedrec_unlearn.errors import DataError

Format = Literal["atomic", "movielens", "adjacency", "csv"]
"""Layout of a data set's files, the values of `data.format` without auto."""


@dataclass(frozen=True)
class RemoteFile:
    """One published file of a data set."""

    name: str
    """Name under which it is stored."""
    urls: tuple[str, ...]
    """Where it can be fetched, tried in this order."""
    bytes: int | None
    """Exact size, or None where it is not known."""
    md5: str | None
    sha256: str | None
    """Checksums, lower-case hexadecimal; both None where none is known: the download must be accepted unverified."""
    checksum_source: str
    """Where size and checksums are from."""
    archive_root: str | None
    """zip archives: the folder inside that holds the members; None for a file that is used as it comes."""
    members: tuple[str, ...]
    """zip archives: the files to take out, relative to `archive_root`."""

    @property
    def verifiable(self) -> bool:
        """Whether a checksum is known."""
        return self.md5 is not None or self.sha256 is not None


@dataclass(frozen=True)
class Sizes:
    """What a reader must find in the files, all parts together."""

    users: int
    items: int
    interactions: int


@dataclass(frozen=True)
class Card:
    """Everything known of a data set before it is there."""

    name: str
    title: str
    home: str
    """Page of the publisher."""
    licence: str
    """What the publisher allows, in our words, and where that was read."""
    redistributable: bool
    """Whether copies may be passed on; False also where nobody said so."""
    citation: str
    format: Format
    files: tuple[RemoteFile, ...]
    """Empty for the set that comes with the package."""
    schema: dict[str, str]
    """File name to a description of its columns."""
    attributes: dict[str, str]
    """Attribute of users to a description of its values."""
    item_features: dict[str, str]
    """Feature of items to a description of its values."""
    sizes: Sizes
    notes: str


def datasets_folder() -> Path:
    """Folder with the cards and the synthetic set: inside an installed package, beside it in a checkout.

    Raises:
        DataError: neither place has it.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "datasets", package.parent / "datasets"):
        if (folder / "synthetic.yaml").is_file():
            return folder
    raise DataError(
        f"the data cards are missing: neither {package / 'datasets'} nor {package.parent / 'datasets'} holds them; "
        "install the package again"
    )


def card_names(folder: Path | None = None) -> tuple[str, ...]:
    """Names of all data sets with a card, sorted.

    Args:
        folder: where to look, `datasets_folder()` if not given.
    """
    return tuple(sorted(path.stem for path in (folder or datasets_folder()).glob("*.yaml")))


def read_card(name: str, folder: Path | None = None) -> Card:
    """Read and check the card of a data set.

    Args:
        name: the data set, for example ml-100k.
        folder: where the cards lie, `datasets_folder()` if not given.

    Raises:
        DataError: there is no such card (the nearest name is suggested), or it is malformed (file and key are named).
    """
    folder = folder or datasets_folder()
    names = card_names(folder)
    if name not in names:
        raise DataError(
            f"there is no data card named {name!r}{_did_you_mean(name, names)} (cards: {', '.join(names)}). "
            "For files of your own set data.dir and data.format"
        )
    path = folder / f"{name}.yaml"
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except yaml.YAMLError as error:
        raise DataError(f"{path}: not readable as YAML: {error}") from error
    card = _card(_Section(path, "", raw))
    if card.name != name:
        raise DataError(f"{path}: name is {card.name!r}, but the file is called {path.name}; make the two agree")
    return card


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice (YAML's own rule, which PyYAML does not enforce)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"key {twice[0]} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


class _Section:
    """A mapping of a card that must be read completely: what is not asked for by `get` is an unknown key."""

    def __init__(self, path: Path, where: str, raw: object) -> None:
        self.path, self.where = path, where
        if not isinstance(raw, Mapping):
            raise self.wrong("", "a mapping of keys to values", raw)
        self.raw: dict[str, Any] = {str(key): value for key, value in raw.items()}
        self.asked: list[str] = []

    def wrong(self, key: str, expected: str, found: object) -> DataError:
        place = ".".join(part for part in (self.where, key) if part) or "the file"
        return DataError(f"{self.path}: {place} must be {expected}, not {found!r}")

    def get(self, key: str, expected: str, valid: Callable[[Any], bool]) -> Any:
        self.asked.append(key)
        if key not in self.raw:
            place = ".".join(part for part in (self.where, key) if part)
            raise DataError(f"{self.path}: key {place} is missing; it must be {expected}")
        if not valid(self.raw[key]):
            raise self.wrong(key, expected, self.raw[key])
        return self.raw[key]

    def text(self, key: str) -> str:
        return cast(str, self.get(key, "a non-empty text", lambda v: isinstance(v, str) and bool(v.strip()))).strip()

    def count(self, key: str) -> int:
        return cast(int, self.get(key, "a positive whole number", _is_count))

    def descriptions(self, key: str) -> dict[str, str]:
        found = self.get(key, "a mapping of names to texts ({} for none)", _is_descriptions)
        return {str(name): str(text) for name, text in found.items()}

    def done(self) -> None:
        for key in self.raw:
            if key not in self.asked:
                place = f"{self.where}.{key}" if self.where else key
                raise DataError(
                    f"{self.path}: unknown key {place!r}{_did_you_mean(key, self.asked)} "
                    f"(known: {', '.join(self.asked)})"
                )


def _card(section: _Section) -> Card:
    formats = get_args(Format)
    card = Card(
        name=section.text("name"),
        title=section.text("title"),
        home=section.text("home"),
        licence=section.text("licence"),
        redistributable=section.get("redistributable", "true or false", lambda v: isinstance(v, bool)),
        citation=section.text("citation"),
        format=section.get("format", f"one of {', '.join(formats)}", lambda v: v in formats),
        files=tuple(
            _remote_file(_Section(section.path, f"files[{k}]", raw))
            for k, raw in enumerate(section.get("files", "a list ([] for none)", lambda v: isinstance(v, list)))
        ),
        schema=section.descriptions("schema"),
        attributes=section.descriptions("attributes"),
        item_features=section.descriptions("item_features"),
        sizes=_sizes(_Section(section.path, "sizes", section.get("sizes", "a mapping", _is_mapping))),
        notes=section.text("notes"),
    )
    section.done()
    return card


def _remote_file(section: _Section) -> RemoteFile:
    file = RemoteFile(
        name=section.get("name", "a plain file name", lambda v: isinstance(v, str) and _is_inside(v) and "/" not in v),
        urls=tuple(section.get("urls", "a list of addresses (https://...)", _is_urls)),
        bytes=section.get(
            "bytes", "a positive whole number, or null where unknown", lambda v: v is None or _is_count(v)
        ),
        md5=section.get("md5", "32 hexadecimal digits in quotes, or null", lambda v: v is None or _is_hex(v, 32)),
        sha256=section.get("sha256", "64 hexadecimal digits in quotes, or null", lambda v: v is None or _is_hex(v, 64)),
        checksum_source=section.text("checksum_source"),
        archive_root=section.get(
            "archive_root", "a folder inside the archive, or null", lambda v: v is None or _is_inside(v)
        ),
        members=tuple(section.get("members", "a list of file names ([] if it is no archive)", _is_members)),
    )
    section.done()
    if (file.archive_root is None) != (not file.members):
        raise DataError(f"{section.path}: {section.where}: archive_root and members go together; give both or neither")
    return file


def _sizes(section: _Section) -> Sizes:
    sizes = Sizes(section.count("users"), section.count("items"), section.count("interactions"))
    section.done()
    return sizes


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_hex(value: object, digits: int) -> bool:
    return isinstance(value, str) and len(value) == digits and set(value) <= set("0123456789abcdef")


def _is_descriptions(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())


def _is_urls(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) and "://" in v for v in value)


def _is_members(value: object) -> bool:
    return isinstance(value, list) and all(_is_inside(v) for v in value)


def _is_inside(value: object) -> bool:
    """Whether this is a relative path that stays below the folder it is joined to, on every system."""
    if not isinstance(value, str) or not value or "\\" in value or ":" in value or "\0" in value:
        return False
    path = PurePosixPath(value)
    return not path.is_absolute() and ".." not in path.parts and path.parts != ()
