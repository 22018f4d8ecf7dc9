"""Interactions as RecBole's atomic files, read from the originals of MovieLens or given as arrays.

An atomic file is tab-separated text whose header names each column and its type (``user_id:token``). This module
reads the originals by itself rather than through `fedrec_unlearn.data`, so that a baseline does not inherit a mistake
of the reader it is compared with.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.errors import DataError, DependencyError

PARTS = ("train", "valid", "test")
"""Names of the parts of a split, in the order RecBole's `benchmark_filename` wants them."""

Pairs = tuple[NDArray[Any], NDArray[Any]]
"""Users and items of interactions: two arrays of shape (n,), integers or text."""


def write_atomic(folder: Path, name: str, pairs: Pairs) -> Path:
    """Write ``folder/name/name.inter``, rows in the given order, and return `folder` (RecBole's `data_path`).

    Raises:
        DataError: users and items differ in length, or there are none.
    """
    _write_inter(folder / name / f"{name}.inter", pairs)
    return folder


def write_atomic_split(folder: Path, name: str, split_parts: Mapping[str, Pairs]) -> Path:
    """Write a split as ``folder/name/name.{train,valid,test}.inter``, for RecBole's option `benchmark_filename`.

    RecBole numbers users and items in the order in which they appear in train, then valid, then test; the tokens in
    the files are the ids given here.

    Args:
        folder: RecBole's `data_path`; made if missing.
        name: the data set's name for RecBole.
        split_parts: users and items of "train", "valid" and "test"; each part holds at least one interaction.

    Returns:
        `folder`.

    Raises:
        DataError: a part is missing, unknown, empty or malformed, or two parts share a pair.
    """
    if set(split_parts) != set(PARTS):
        raise DataError(
            f"split_parts: needs exactly {', '.join(PARTS)}; has {', '.join(sorted(split_parts)) or 'none'}"
        )
    pairs = {part: set(zip(*map(np.ndarray.tolist, split_parts[part]), strict=False)) for part in PARTS}
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        shared = pairs[one] & pairs[other]
        if shared:
            user, item = next(iter(shared))
            raise DataError(
                f"split_parts: {one} and {other} share {len(shared)} pairs, for example user {user} and item {item}; "
                "RecBole would rank what it was trained on"
            )
    for part in PARTS:
        _write_inter(folder / name / f"{name}.{part}.inter", split_parts[part])
    return folder


def _write_inter(path: Path, pairs: Pairs) -> None:
    users, items = pairs
    if len(users) != len(items):
        raise DataError(f"{path.name}: {len(users)} users but {len(items)} items; give one of each per interaction")
    if len(users) == 0:
        raise DataError(f"{path.name}: no interactions; RecBole cannot load an empty file")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = io.StringIO()
    lines.write("user_id:token\titem_id:token\n")
    for user, item in zip(users.tolist(), items.tolist(), strict=True):
        lines.write(f"{user}\t{item}\n")
    beside = path.with_name(path.name + ".part")
    with beside.open("w", encoding="utf-8") as handle:
        handle.write(lines.getvalue())
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(beside, path)


def movielens_pairs(dataset: str, data_dir: Path | None) -> Pairs:
    """Users and items of every rating of MovieLens, in the order of the original file, as text tokens.

    Args:
        dataset: ml-100k or ml-1m.
        data_dir: folder with ``ml-100k/u.data`` (or a zip with it), ``ml-100k-recbole/ml-100k.inter.gz``, or
            ``ml-1m/ratings.dat`` (or ``ratings_no_timestamp.dat.gz``). None: ml-100k of the installed recbole.

    Raises:
        DataError: no such file, or a line that is not a rating.
        DependencyError: `data_dir` is None and recbole is not installed.
    """
    lines, where, separator = _original_lines(dataset, data_dir)
    first = 1 if lines and ":token" in lines[0] else 0
    users, items = [], []
    for number, line in enumerate(lines[first:], start=first + 1):
        fields = line.split(separator)
        if len(fields) < 3:
            raise DataError(f"{where}, line {number}: expected user, item and rating, found {line[:60]!r}")
        users.append(fields[0])
        items.append(fields[1])
    return np.array(users), np.array(items)


def _original_lines(dataset: str, data_dir: Path | None) -> tuple[list[str], str, str]:
    tried: list[Path]
    if dataset == "ml-100k" and data_dir is None:
        found = importlib.util.find_spec("recbole")
        if found is None or not found.submodule_search_locations:
            raise DependencyError("ml-100k comes with recbole, which is not installed: install it or pass --data-dir")
        tried = [Path(found.submodule_search_locations[0]) / "dataset_example" / "ml-100k" / "ml-100k.inter"]
    elif data_dir is None:
        raise DataError(f"{dataset}: pass --data-dir, a folder with {dataset}/ as GroupLens ships it")
    elif dataset == "ml-100k":
        folder = data_dir / "ml-100k"
        tried = [folder / "u.data", *sorted(folder.glob("*.zip")), data_dir / "ml-100k-recbole" / "ml-100k.inter.gz"]
    elif dataset == "ml-1m":
        tried = [data_dir / "ml-1m" / "ratings.dat", data_dir / "ml-1m" / "ratings_no_timestamp.dat.gz"]
    else:
        raise DataError(f"dataset: ml-100k or ml-1m, not {dataset!r}; others go through write_atomic_split")
    for path in tried:
        if path.is_file():
            return _text(path).splitlines(), str(path), "::" if dataset == "ml-1m" else "\t"
    names = ", ".join(str(path) for path in tried) or str(data_dir)
    raise DataError(f"{dataset}: none of these files exists: {names}")


def _text(path: Path) -> str:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as handle:
            return handle.read()
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            inside = [name for name in archive.namelist() if name.rsplit("/", 1)[-1] == "u.data"]
            if not inside:
                raise DataError(f"{path}: holds no u.data; it is not MovieLens 100K as GroupLens ships it")
            return archive.read(inside[0]).decode("utf-8")
    return path.read_text(encoding="utf-8")
