"""GroupLens' MovieLens files: 100K, 1M, 10M, and the CSV editions (20M, 25M, 32M, latest, latest-small).

| edition | ratings | users: the fields | movies |
|---|---|---|---|
| 100K | `u.data`: user, item, rating, timestamp; tabs | `u.user`: id, age, gender, occupation, zip code | `u.item` |
| 1M | `ratings.dat`; separated by ``::`` | `users.dat`: id, gender, age, occupation, zip code | `movies.dat` |
| 10M | `ratings.dat` | none | `movies.dat` |
| later | `ratings.csv` | none | `movies.csv` |

Also read: `ratings_no_timestamp.dat` (``UserID::MovieID::Rating``), with `timestamps_partial.csv` (``line,timestamp``)
for the lines whose time is known. Source: the README files of the editions.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from fedrec_unlearn.config import DataConfig
from fedrec_unlearn.data.attributes import check_movielens_1m_bounds, user_attributes
from fedrec_unlearn.data.columns import Columns, Field, Layout, line_numbers, read_columns
from fedrec_unlearn.data.item_features import item_feature, year_of_title
from fedrec_unlearn.data.numbering import dataset_of_columns
from fedrec_unlearn.data.side_table import SideTable, side_table
from fedrec_unlearn.data.text import DataWarning, Row, TextFile, header, lines, rows
from fedrec_unlearn.data.types import Attribute, Dataset, FloatArray, ItemFeature
from fedrec_unlearn.errors import DataError

GENRES_100K = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip
"""The last 19 columns of `u.item`, in order."""

_EDITION_OF_NAME = {
    "ml-100k": "100k",
    "ml-1m": "1m",
    "ml-10m": "10m",
    "ml-20m": "csv",
    "ml-25m": "csv",
    "ml-32m": "csv",
}
_EDITION = {"100k": "MovieLens 100K", "1m": "MovieLens 1M", "10m": "MovieLens 10M", "csv": "a CSV edition of MovieLens"}
_USER = Field("user", "whole")
_ITEM = Field("item", "whole")
_RATING = Field("rating", "number")
_TIMESTAMP = Field("timestamp", "number")
_CSV_FIELDS = {"userId": _USER, "movieId": _ITEM, "rating": _RATING, "timestamp": _TIMESTAMP}
_DAT_NAMES = ("ratings.dat", "ratings_no_timestamp.dat")


def edition(files: Mapping[str, TextFile]) -> str | None:
    """Which edition a folder holds: 100k, 1m, 10m or csv; None for anything else.

    Raises:
        DataError: `ratings.csv` cannot be read.
    """
    if "u.data" in files:
        return "100k"
    if any(name in files for name in _DAT_NAMES):
        return "1m" if "users.dat" in files else "10m"
    if "ratings.csv" in files and {"userId", "movieId"} <= set(header(files["ratings.csv"], ",", quoted=True)[1]):
        return "csv"
    return None


def read_movielens(files: Mapping[str, TextFile], config: DataConfig, asked_for: Sequence[str] = ()) -> Dataset:
    """Read an edition of MovieLens; told apart by the files.

    Args:
        files: of the data set's folder, by base name (`text.text_files`).
        config: for the name and the age groups.
        asked_for: user attributes to keep in any case.

    Returns:
        Attributes age, gender and occupation (100K, 1M), item features genre and release_year.

    Raises:
        DataError: a file is missing or malformed, or holds another edition than the data set's name says.
    """
    found = edition(files)
    if found is None:
        raise DataError(
            f"no MovieLens ratings (u.data, ratings.dat or ratings.csv) among the files: {', '.join(sorted(files))}"
        )
    named = _EDITION_OF_NAME.get(config.name, "csv" if config.name.startswith("ml-latest") else found)
    # 1M without its users.dat looks like 10M
    if named != found and (named, found) != ("1m", "10m"):
        raise DataError(
            f"{next(iter(files.values())).path.parent}: these are the files of {_EDITION[found]}, but data.name is "
            f"{config.name!r}; set data.name, or give the folder of {config.name}"
        )
    if named == "100k":
        return _read_100k(files, config, asked_for)
    if named == "csv":
        return _read_csv(files, config.name)
    return _read_dat(files, config, named, asked_for)


def _read_100k(files: Mapping[str, TextFile], config: DataConfig, asked_for: Sequence[str]) -> Dataset:
    layout = Layout((_USER, _ITEM, _RATING, _TIMESTAMP), "\t")
    dataset = dataset_of_columns(config.name, files["u.data"], layout, read_columns(files["u.data"], layout))
    attributes: dict[str, Attribute] = {}
    if (users := _part(files, "u.user", "attributes")) is not None:
        fields = ("user_id", "age", "gender", "occupation", "zip_code")
        table = side_table(users, rows(users, "|", encoding="iso-8859-1"), fields, "user_id", dataset.user_tokens)
        attributes = user_attributes(table, config.age_bounds, asked_for)
    features: dict[str, ItemFeature] = {}
    if (items := _part(files, "u.item", "item features")) is not None:
        names = ("item_id", "title", "release_date", "video_release_date", "url", *GENRES_100K)
        table = side_table(items, rows(items, "|", encoding="iso-8859-1"), names, "item_id", dataset.item_tokens)
        years = [date[-4:] for date in table.columns["release_date"]]  # 01-Jan-1995
        features = {
            "genre": item_feature("genre", _genres_of_flags(table)),
            "release_year": item_feature("release_year", [(year,) for year in years]),
        }
    return replace(dataset, attributes=attributes, item_features=features)


def _genres_of_flags(table: SideTable) -> list[list[str]]:
    genres: list[list[str]] = [[] for _ in table.lines]
    for genre in GENRES_100K:
        for item, flag in enumerate(table.columns[genre]):
            if flag == "1":
                genres[item].append(genre)
            elif flag != "0" and table.lines[item]:
                raise DataError(f"{table.at(item)}: genre flag {genre} is {flag!r}; it must be 0 or 1")
    return genres


def _read_dat(files: Mapping[str, TextFile], config: DataConfig, named: str, asked_for: Sequence[str]) -> Dataset:
    name = next(name for name in _DAT_NAMES if name in files)
    file = files[name]
    layout = Layout((_USER, _ITEM, _RATING, _TIMESTAMP) if name == _DAT_NAMES[0] else (_USER, _ITEM, _RATING), "::")
    columns = read_columns(file, layout)
    if name != _DAT_NAMES[0] and (partial := files.get("timestamps_partial.csv")) is not None:
        columns = replace(columns, numbers=columns.numbers | {"timestamp": _partial_timestamps(partial, columns)})
    dataset = dataset_of_columns(config.name, file, layout, columns)
    attributes: dict[str, Attribute] = {}
    if named == "1m" and (users := _part(files, "users.dat", "attributes")) is not None:
        check_movielens_1m_bounds(config.age_bounds)
        columns_1m = ("user_id", "gender", "age", "occupation", "zip_code")
        table = side_table(users, rows(users, "::", encoding="iso-8859-1"), columns_1m, "user_id", dataset.user_tokens)
        attributes = user_attributes(table, config.age_bounds, asked_for)
    features: dict[str, ItemFeature] = {}
    if (movies := _part(files, "movies.dat", "item features")) is not None:
        encoding = "iso-8859-1" if named == "1m" else "utf-8"
        features = _movie_features(
            side_table(
                movies, _dat_movies(movies, encoding), ("item_id", "title", "genres"), "item_id", dataset.item_tokens
            )
        )
    return replace(dataset, attributes=attributes, item_features=features)


def _dat_movies(file: TextFile, encoding: str) -> Iterator[Row]:
    for line, text in lines(file, encoding):
        head, *rest = text.split("::", 1)
        # a title may hold a separator, genres cannot
        yield line, [head, *(rest[0].rsplit("::", 1) if rest else [])]


def _partial_timestamps(file: TextFile, columns: Columns) -> FloatArray:
    layout = Layout((Field("line", "number"), _TIMESTAMP), ",", has_header=True, quoted=True)
    known = read_columns(file, layout)
    meant = known.numbers["line"]
    wrong = np.flatnonzero((meant != np.floor(meant)) | (meant < 1) | (meant > columns.n_rows))
    if len(wrong):
        (line,) = line_numbers(file, layout, [int(wrong[0])])
        raise DataError(
            f"{file.at(line)}: {meant[wrong[0]]:g} is no line of the ratings, which are 1 to {columns.n_rows}; "
            "correct or remove the line"
        )
    positions = meant.astype(np.int64) - 1
    twice = np.flatnonzero(np.bincount(positions, minlength=1) > 1)
    if len(twice):
        first, second = line_numbers(file, layout, np.flatnonzero(positions == twice[0])[:2].tolist())
        raise DataError(
            f"{file.at(second)}: the ratings' line {twice[0] + 1} already has a timestamp on line {first}; remove one"
        )
    timestamps = np.full(columns.n_rows, np.nan)
    timestamps[positions] = known.numbers["timestamp"]
    missing = columns.n_rows - known.n_rows
    if missing:
        warnings.warn(
            f"{file}: {missing:,} of {columns.n_rows:,} interactions have no timestamp; "
            "a split by time is not exact where they matter",
            DataWarning,
            stacklevel=2,
        )
    return timestamps


def _read_csv(files: Mapping[str, TextFile], name: str) -> Dataset:
    file = files["ratings.csv"]
    line, names = header(file, ",", quoted=True)
    for needed in ("userId", "movieId", "rating"):
        if needed not in names:
            raise DataError(f"{file.at(line)}: no column {needed!r}, only {', '.join(names)}; use the original file")
    fields = tuple(_CSV_FIELDS.get(column, Field(column, "skip")) for column in names)
    layout = Layout(fields, ",", has_header=True, quoted=True)
    dataset = dataset_of_columns(name, file, layout, read_columns(file, layout))
    movies = _part(files, "movies.csv", "item features")
    if movies is None:
        return dataset
    line, names = header(movies, ",", quoted=True)
    for needed in ("movieId", "title", "genres"):
        if needed not in names:
            raise DataError(f"{movies.at(line)}: no column {needed!r}, only {', '.join(names)}; use the original file")
    table = side_table(movies, islice(rows(movies, ",", quoted=True), 1, None), names, "movieId", dataset.item_tokens)
    return replace(dataset, item_features=_movie_features(table))


def _movie_features(table: SideTable) -> dict[str, ItemFeature]:
    genres = [[] if text == "(no genres listed)" else text.split("|") for text in table.columns["genres"]]
    years = table.columns.get("year") or [year_of_title(title) for title in table.columns["title"]]
    return {
        "genre": item_feature("genre", genres),
        "release_year": item_feature("release_year", [(year,) for year in years]),
    }


def _part(files: Mapping[str, TextFile], name: str, holds: str) -> TextFile | None:
    if name not in files:
        folder = next(iter(files.values())).path.parent
        warnings.warn(f"{folder}: no {name}, so the data set has no {holds}", DataWarning, stacklevel=2)
    return files.get(name)
