"""A data set as RecBole's atomic files, and the place of the set that comes with the package."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedrec_unlearn.data.cards import datasets_folder
from fedrec_unlearn.data.types import MISSING, Dataset, FloatArray
from fedrec_unlearn.errors import DataError


def packaged_files() -> Path:
    """Folder with synthetic.inter, synthetic.user and synthetic.item.

    Raises:
        DataError: the package is incomplete.
    """
    folder = datasets_folder() / "synthetic"
    if not (folder / "synthetic.inter").is_file():
        raise DataError(
            f"{folder} lacks synthetic.inter; install the package again, or make the files with "
            f"python -m fedrec_unlearn.data.synthetic --out {folder}"
        )
    return folder


def write_atomic(dataset: Dataset, folder: Path) -> None:
    """Write ``<name>.inter``, ``<name>.user`` and ``<name>.item`` with tabs between the columns.

    The header gives a type to each column (token, float, token_seq), as RecBole wants it. Unknown classes and times
    are empty fields. Users and items are listed in the order of their numbers; the last two files are left out where
    there is nothing to say.

    Args:
        dataset: what to write; `name` becomes the files' name.
        folder: created if absent; files of the same name are replaced, each by one rename.

    Raises:
        DataError: a name holds a tab or a line break (or a feature value a space), the data set comes split (atomic
            files of one set hold no parts), or the folder cannot be written.
    """
    if dataset.given_part is not None:
        raise DataError(f"{dataset.name}: a data set that comes already split cannot be written as atomic files")
    users, items = dataset.user_tokens.tolist(), dataset.item_tokens.tolist()
    columns: dict[str, Sequence[str]] = {
        "user_id:token": [users[u] for u in dataset.user],
        "item_id:token": [items[i] for i in dataset.item],
    }
    if dataset.rating is not None:
        columns["rating:float"] = _numbers(dataset.rating)
    if dataset.timestamp is not None:
        columns["timestamp:float"] = _numbers(dataset.timestamp)
    tables = {"inter": columns}
    if dataset.attributes:
        tables["user"] = {"user_id:token": users} | {
            f"{name}:token": ["" if k == MISSING else a.classes[k] for k in a.labels]
            for name, a in dataset.attributes.items()
        }
    if dataset.item_features:
        tables["item"] = {"item_id:token": items} | {
            f"{name}:token_seq": [
                _joined(name, [f.values[k] for k in f.indices[f.indptr[i] : f.indptr[i + 1]]])
                for i in range(dataset.n_items)
            ]
            for name, f in dataset.item_features.items()
        }
    lines = {kind: _lines(f"{dataset.name}.{kind}", table) for kind, table in tables.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kind, text in lines.items():
            _replace(folder / f"{dataset.name}.{kind}", text)
    except OSError as error:
        raise DataError(f"cannot write to {error.filename or folder}: {error.strerror or error}") from error


def _numbers(values: FloatArray) -> list[str]:
    return [
        "" if value != value else str(int(value)) if value == int(value) else repr(value) for value in values.tolist()
    ]


def _joined(name: str, values: Iterable[str]) -> str:
    for value in values:
        if " " in value:
            raise DataError(f"item feature {name!r}: value {value!r} holds a space, which separates values in the file")
    return " ".join(values)


def _lines(file: str, table: dict[str, Sequence[str]]) -> str:
    rows = [tuple(table), *zip(*table.values(), strict=True)]
    for row in rows:
        for field in row:
            if "\t" in field or "\n" in field or "\r" in field:
                raise DataError(f"{file}: {field!r} holds a tab or a line break, which separate fields in the file")
    return "".join("\t".join(row) + "\n" for row in rows)


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    beside = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as sink:
            sink.write(text)
            sink.flush()
            os.fsync(sink.fileno())
        beside.chmod(0o644)
        beside.replace(path)
    except BaseException:
        beside.unlink()
        raise
