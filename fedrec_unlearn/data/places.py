"""Where the files of a data set lie: the folder given, $FEDREC_DATA, an installed package, the download cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fedrec_unlearn.config import DataConfig
from fedrec_unlearn.data import adjacency, atomic, movielens, table
from fedrec_unlearn.data.cards import card_names
from fedrec_unlearn.data.download import cache_folder
from fedrec_unlearn.data.synthetic import packaged_files
from fedrec_unlearn.data.text import TextFile, text_files
from fedrec_unlearn.errors import DataError

ENVIRONMENT = "FEDREC_DATA"
"""Environment variable with the folder to look in when the configuration names none."""

_LAYOUTS = """\
  atomic      NAME.inter, NAME.user, NAME.item (RecBole)
  movielens   u.data | ratings.dat | ratings.csv with userId and movieId, and what GroupLens packs with them
  adjacency   train.txt, test.txt, valid.txt: lines `user item item ...`
  csv         NAME.csv with a header, NAME.users.csv
each also as .gz or in one .zip"""


@dataclass(frozen=True)
class FoundFiles:
    """The files of a data set."""

    place: Path
    files: dict[str, TextFile]
    layout: str
    """atomic, movielens, adjacency or csv."""


def detect_layout(files: dict[str, TextFile], name: str) -> str | None:
    """Layout of the files by their names, None for none of ours.

    Raises:
        DataError: a file that must be looked into cannot be read.
    """
    if atomic.is_atomic(files):
        return "atomic"
    if movielens.edition(files) is not None:
        return "movielens"
    if adjacency.is_adjacency(files):
        return "adjacency"
    return "csv" if table.interactions_file(files, name) is not None else None


def find_files(config: DataConfig) -> FoundFiles:
    """Find the files of a data set.

    ``config.dir`` is the data set's folder or one that holds a folder of the data set's name; the same goes for
    $FEDREC_DATA where no folder is configured, except that it is the data set's own folder only if it is called so
    or has a file called so. Then come the files shipped in packages (ml-100k in recbole, the synthetic set here),
    and the download cache.

    Args:
        config: name, folder and layout.

    Raises:
        DataError: nothing was found, naming all places and how to get the data; or a folder of that name holds
            no known layout, or the folder is another data set's.
    """
    tried: list[str] = []
    for place, tells in _places(config, tried):
        if not place.exists():
            tried.append(f"{place} ({tells}): does not exist")
            continue
        files = text_files(place, config.name)
        layout = detect_layout(files, config.name)
        if files and config.format != "auto":
            layout = config.format
        if layout is None:
            tried.append(f"{place} ({tells}): {_contents(place, config.name)}")
            continue
        _refuse_other(place, config)
        return FoundFiles(place, files, layout)
    raise DataError(_not_found(config, tried))


def _places(config: DataConfig, tried: list[str]) -> Iterator[tuple[Path, str]]:
    name = config.name
    if config.dir is not None:
        base = Path(config.dir).expanduser()
        if not base.exists():
            raise DataError(f"data.dir: {base} does not exist; give the folder with the files of {name}")
        if base.is_file() and base.suffix != ".zip":
            raise DataError(f"data.dir: {base} is a file; give the folder it lies in")
        yield from ((place, "in data.dir") for place in _inside(base, name) if place.exists())
        yield base, "data.dir"
        return
    if environment := os.environ.get(ENVIRONMENT):
        base = Path(environment).expanduser()
        inside = [place for place in _inside(base, name) if place.exists()]
        yield from ((place, f"in ${ENVIRONMENT}") for place in inside)
        if _is_called(base, name):
            yield base, f"${ENVIRONMENT}"
        elif not inside:
            tried.append(f"{base} (${ENVIRONMENT}): {'no folder ' + name if base.exists() else 'does not exist'}")
    else:
        tried.append(f"${ENVIRONMENT}: not set")
    if name == "ml-100k":
        # find_spec finds a top-level package without importing it, and recbole takes seconds to import
        spec = find_spec("recbole")
        if spec is not None and spec.submodule_search_locations:
            yield Path(spec.submodule_search_locations[0], "dataset_example", name), "installed recbole package"
        else:
            tried.append("the files of the recbole package: not installed")
    if name == "synthetic":
        yield packaged_files(), "comes with this package"
    yield cache_folder(name), "download cache"


def _contents(place: Path, name: str) -> str:
    """What a place holds that is not the data set, for messages."""
    shown = sorted(text_files(place, name))
    if place.is_dir():
        shown += sorted(f"{path.name}/" for path in place.iterdir() if path.is_dir())
    if not shown:
        return "is empty"
    return (
        f"no files of a known layout and no folder {name}, only " + ", ".join(shown[:12]) + ", ..." * (len(shown) > 12)
    )


def _inside(base: Path, name: str) -> tuple[Path, ...]:
    return base / name, base / f"{name}.zip", base / f"{name}-recbole"


def _is_called(base: Path, name: str) -> bool:
    if base.name.removesuffix("-recbole") == name:
        return True
    return any((base / f"{name}{ending}").exists() for ending in (".inter", ".inter.gz", ".csv", ".csv.gz"))


def _refuse_other(place: Path, config: DataConfig) -> None:
    called = place.name.removesuffix(".zip").removesuffix("-recbole")
    known = card_names()
    if called != config.name and called in known and config.name in known:
        raise DataError(
            f"{place}: this is the folder of {called}, but data.name is {config.name!r}; "
            f"set data.name to {called}, or give the folder of {config.name}"
        )


def _not_found(config: DataConfig, tried: list[str]) -> str:
    name = config.name
    ways = []
    if name == "ml-100k":
        ways.append("pip install --no-deps recbole==1.2.1    (the package carries the files)")
    if name in card_names():
        ways.append(f"fedrec download {name}")
    ways.append(f"--data-dir FOLDER    (FOLDER holds the files, or a folder {name} with them)")
    return "\n".join(
        [
            f"data set {name!r} was not found. Looked at:",
            *(f"  {line}" for line in tried),
            "To get it, one of:",
            *(f"  {way}" for way in ways),
            "Layouts that are read:",
            _LAYOUTS.replace("NAME", name),
        ]
    )
