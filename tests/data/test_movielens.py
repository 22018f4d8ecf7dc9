"""MovieLens in the layouts of its editions."""

import gzip
import os
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedrec_unlearn.config import DataConfig
from fedrec_unlearn.data import columns
from fedrec_unlearn.data.movielens import GENRES_100K, edition, read_movielens
from fedrec_unlearn.data.text import DataWarning, text_files
from fedrec_unlearn.data.types import Attribute, Dataset, ItemFeature
from fedrec_unlearn.errors import DataError


def flags(*genres: str) -> str:
    return "|".join("1" if genre in genres else "0" for genre in GENRES_100K)


ML_100K = {
    "u.data": "9\t30\t3\t881250949\n2\t10\t5\t881250950\n9\t10\t1\t881250951\n4\t10\t1\t881250951\n5\t10\t1\t8\n",
    "u.user": "2|17|F|artist|85711\n9|56|M|none|94043\n4|20|M|none|E2A4H\n5|20|M|none|94043\n8|20|F|none|1\n",
    "u.item": f"10|L\xe9on (1994)|01-Jan-1994||http://x|{flags('Crime', 'Action')}\n"
    f"30|unknown||||{flags('unknown')}\n99|Heat (1995)|01-Jan-1995||http://x|{flags('Crime')}\n",
}
ML_1M = {
    "ratings.dat": "1::1193::5::978300760\n2::661::3::978302109\n1::661::3::978301968\n3::661::4::1\n4::661::4::1\n",
    "users.dat": "1::F::1::10::48067\n2::M::56::16::70072\n3::M::25::16::55117\n4::M::25::7::02460\n",
    "movies.dat": "661::Mis\xe9rables, Les: Part (1995)::Drama|Musical\n1193::A::B (1975)::Drama\n7::C (1999)::War\n",
}
ML_10M = {
    "ratings.dat": "1::122::5::838985046\n1::185::4.5::838983525\n2::122::0.5::1\n",
    "movies.dat": "122::Am\xe9lie (2001)::Comedy|Romance\n185::Net, The (1995)::(no genres listed)\n",
}
ML_CSV = {
    "ratings.csv": "userId,movieId,rating,timestamp\n1,31,2.5,1260759144\n7,31,3.0,1260759179\n7,9,3.0,1260759179\n",
    "movies.csv": 'movieId,title,genres\n31,"Net, The (1995)",Comedy|Romance\n9,Nowhere,(no genres listed)\n',
}


def write(folder: Path, files: dict[str, str], encoding: str = "iso-8859-1") -> Path:
    for name, text in files.items():
        (folder / name).write_bytes(text.encode(encoding))
    return folder


def read(folder: Path, name: str, asked_for: tuple[str, ...] = (), **options: object) -> Dataset:
    return read_movielens(text_files(folder, name), DataConfig(name=name, **options), asked_for)  # type: ignore[arg-type]


def values_of(feature: ItemFeature) -> list[list[str]]:
    return [
        [feature.values[k] for k in feature.indices[a:b]]
        for a, b in zip(feature.indptr, feature.indptr[1:], strict=False)
    ]


def by_class(attribute: Attribute) -> dict[str, int]:
    return dict(zip(attribute.classes, np.bincount(attribute.labels).tolist(), strict=True))


def test_100k_has_ratings_attributes_genres_and_years(tmp_path: Path) -> None:
    data = read(write(tmp_path, ML_100K), "ml-100k")
    assert data.user_tokens.tolist() == ["9", "2", "4", "5"]
    assert data.item_tokens.tolist() == ["30", "10"]
    assert data.rating is not None
    assert data.rating.tolist() == [3, 5, 1, 1, 1]
    assert data.timestamp is not None
    assert data.timestamp[0] == 881250949
    assert {name: a.labels.tolist() for name, a in data.attributes.items()} == {
        "gender": [1, 0, 1, 1],
        "occupation": [1, 0, 1, 1],
    }
    assert data.attributes["occupation"].classes == ("artist", "none")
    assert values_of(data.item_features["genre"]) == [["unknown"], ["Action", "Crime"]]
    assert values_of(data.item_features["release_year"]) == [[], ["1994"]]


def test_100k_in_a_zip_with_a_subfolder_equals_the_plain_files(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    plain.mkdir()
    packed.mkdir()
    write(plain, ML_100K)
    with zipfile.ZipFile(packed / "whatever.zip", "w") as archive:
        for name, text in ML_100K.items():
            archive.writestr(f"ml-100k/{name}", text.encode("iso-8859-1"))
        archive.writestr("ml-100k/old/u.data", b"broken")
        archive.writestr("__MACOSX/u.data", b"broken")
    one, other = read(plain, "ml-100k"), read(packed, "ml-100k")
    np.testing.assert_array_equal(one.user, other.user)
    np.testing.assert_array_equal(one.user_tokens, other.user_tokens)
    assert values_of(one.item_features["genre"]) == values_of(other.item_features["genre"])


def test_an_error_in_a_zip_names_the_member_and_line(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "ml-100k.zip", "w") as archive:
        archive.writestr("ml-100k/u.data", "1\t2\t3\t4\n1\t3\tgood\t4\n")
    with pytest.raises(DataError, match=r"ml-100k\.zip/ml-100k/u\.data:2: rating is 'good'"):
        read(tmp_path, "ml-100k")


def test_a_file_that_is_no_zip_archive_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "ml-100k.zip").write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match=r"ml-100k\.zip: not a readable zip archive .*get the file again"):
        read(tmp_path, "ml-100k")


def test_1m_age_codes_fall_into_their_own_groups(tmp_path: Path) -> None:
    data = read(write(tmp_path, ML_1M), "ml-1m", asked_for=("age", "occupation", "zip_code"))
    assert data.attributes["age"].classes == ("<18", "25-34", "56+")
    assert data.attributes["age"].labels.tolist() == [0, 2, 1, 1]
    assert data.attributes["occupation"].classes == ("7", "10", "16")
    assert data.attributes["zip_code"].classes[0] == "02460"
    assert data.attributes["gender"].labels.tolist() == [0, 1, 1, 1]


def test_1m_titles_may_hold_colons_and_latin_letters(tmp_path: Path) -> None:
    data = read(write(tmp_path, ML_1M), "ml-1m")
    assert data.item_tokens.tolist() == ["1193", "661"]
    assert values_of(data.item_features["genre"]) == [["Drama"], ["Drama", "Musical"]]
    assert values_of(data.item_features["release_year"]) == [["1975"], ["1995"]]


def test_1m_ages_cannot_be_cut_between_its_groups(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.age_bounds: .*begin at 18, 25, .* not 30"):
        read(write(tmp_path, ML_1M), "ml-1m", age_bounds=(30,))


def test_ratings_without_timestamps_take_those_known_by_line(tmp_path: Path) -> None:
    rows = [line.rsplit("::", 1) for line in ML_1M["ratings.dat"].splitlines()]
    files = {name: text for name, text in ML_1M.items() if name != "ratings.dat"}
    write(tmp_path, files)
    (tmp_path / "ratings_no_timestamp.dat.gz").write_bytes(gzip.compress("\n".join(row for row, _ in rows).encode()))
    (tmp_path / "timestamps_partial.csv.gz").write_bytes(gzip.compress(b"line,timestamp\n3,978301968\n1,978300760\n"))
    with pytest.warns(DataWarning, match=r"timestamps_partial\.csv\.gz: 3 of 5 interactions have no timestamp"):
        data = read(tmp_path, "ml-1m")
    assert data.timestamp is not None
    np.testing.assert_array_equal(data.timestamp, [978300760, np.nan, 978301968, np.nan, np.nan])


def test_ratings_without_any_timestamps_have_none(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"ratings_no_timestamp.dat": "1::2::3\n", "users.dat": ML_1M["users.dat"], "movies.dat": ML_1M["movies.dat"]},
    )
    assert read(tmp_path, "ml-1m").timestamp is None


@pytest.mark.parametrize(
    ("partial", "message"),
    [
        ("line,timestamp\n1,5\n9,5\n", r"timestamps_partial\.csv:3: 9 is no line of the ratings, which are 1 to 2"),
        ("line,timestamp\n0,5\n", r"timestamps_partial\.csv:2: 0 is no line"),
        ("line,timestamp\n1.5,5\n", r"timestamps_partial\.csv:2: 1\.5 is no line"),
        ("line,timestamp\n2,5\n1,5\n2,6\n", r"csv:4: the ratings' line 2 already has a timestamp on line 2"),
        ("line,timestamp\n2,\n", r"csv:2: timestamp is empty"),
    ],
)
def test_bad_partial_timestamps_are_told_with_their_line(tmp_path: Path, partial: str, message: str) -> None:
    write(tmp_path, {"ratings_no_timestamp.dat": "1::2::3\n1::3::3\n", "timestamps_partial.csv": partial})
    with pytest.raises(DataError, match=message):
        read(tmp_path, "ml-1m")


def test_10m_has_half_stars_utf8_titles_and_no_users(tmp_path: Path) -> None:
    data = read(write(tmp_path, ML_10M, "utf-8"), "ml-10m")
    assert data.rating is not None
    assert data.rating.tolist() == [5, 4.5, 0.5]
    assert data.attributes == {}
    assert values_of(data.item_features["genre"]) == [["Comedy", "Romance"], []]


@pytest.mark.parametrize("name", ["ml-20m", "ml-25m", "ml-latest-small", "ml-latest-small-2016", "mine"])
def test_csv_editions_quote_titles_and_split_genres(tmp_path: Path, name: str) -> None:
    data = read(write(tmp_path, ML_CSV), name)
    assert data.user_tokens.tolist() == ["1", "7"]
    assert values_of(data.item_features["genre"]) == [["Comedy", "Romance"], []]
    assert values_of(data.item_features["release_year"]) == [["1995"], []]


def test_csv_edition_with_a_year_column_uses_it(tmp_path: Path) -> None:
    write(tmp_path, ML_CSV | {"movies.csv": "movieId,title,year,genres\n31,Heat (1995),1996,War\n"})
    assert values_of(read(tmp_path, "ml-latest-small").item_features["release_year"]) == [["1996"], []]


def test_editions_are_told_apart_by_their_files(tmp_path: Path) -> None:
    for k, (files, expected) in enumerate(
        [(ML_100K, "100k"), (ML_1M, "1m"), (ML_10M, "10m"), (ML_CSV, "csv"), ({}, None)]
    ):
        folder = tmp_path / str(k)
        folder.mkdir()
        assert edition(text_files(write(folder, files), "x")) == expected


@pytest.mark.parametrize(
    ("files", "name", "holds"),
    [(ML_1M, "ml-100k", "MovieLens 1M"), (ML_100K, "ml-1m", "100K"), (ML_1M, "ml-10m", "1M"), (ML_CSV, "ml-1m", "CSV")],
)
def test_an_edition_under_anothers_name_is_refused(
    tmp_path: Path, files: dict[str, str], name: str, holds: str
) -> None:
    with pytest.raises(DataError, match=rf"the files of .*{holds}.*data\.name is '{name}'; set data\.name"):
        read(write(tmp_path, files), name)


@pytest.mark.parametrize(
    ("files", "name", "missing"),
    [
        (ML_100K, "ml-100k", "u.user"),
        (ML_100K, "ml-100k", "u.item"),
        (ML_1M, "ml-1m", "users.dat"),
        (ML_CSV, "ml-25m", "movies.csv"),
    ],
)
def test_a_missing_side_file_is_warned_of(tmp_path: Path, files: dict[str, str], name: str, missing: str) -> None:
    write(tmp_path, {file: text for file, text in files.items() if file != missing})
    with pytest.warns(DataWarning, match=f"no {missing}, so the data set has no "):
        data = read(tmp_path, name)
    assert not (data.item_features if missing in ("u.item", "movies.csv") else data.attributes)


@pytest.mark.parametrize(
    ("files", "name", "file", "text", "message"),
    [
        (ML_100K, "ml-100k", "u.data", "1\t2\t3\n", r"u\.data:1: 3 fields, expected 4 fields separated by tabs"),
        (ML_100K, "ml-100k", "u.data", "1\t2\t3\t4\n1\t2a\t3\t4\n", r"u\.data:2: item is '2a', not a whole number"),
        (ML_100K, "ml-100k", "u.data", "1\t2\t3\t4\n1\t\t3\t4\n", r"u\.data:2: item is empty"),
        (ML_100K, "ml-100k", "u.data", "1\t2\t3\t4\n\n1\t2\t5\t4\n", r"u\.data:3: user 1 and item 2 .* on line 1"),
        (ML_100K, "ml-100k", "u.user", "2|17|F|artist\n", r"u\.user:1: 4 fields, expected 5 \(user_id, age, gender"),
        (ML_100K, "ml-100k", "u.user", "2|x|F|a|1\n9|4|F|a|1\n", r"u\.user:1: age is 'x', not an age in years"),
        (
            ML_100K,
            "ml-100k",
            "u.item",
            ML_100K["u.item"].replace("|0|1|", "|0|2|", 1),
            r"u\.item:1: genre flag Action is '2'",
        ),
        (ML_1M, "ml-1m", "ratings.dat", "1::2::3::4\n1::3::4\n", r"ratings\.dat:2: 3 fields, expected 4 .*'::'"),
        (ML_1M, "ml-1m", "ratings.dat", "1::2::3::4\n1::3::4::5::6\n", r"ratings\.dat:2: 5 fields, expected 4"),
        (ML_1M, "ml-1m", "ratings.dat", "1::2::3::4\n1:3::4::5\n", r"ratings\.dat:2: 3 fields, expected 4"),
        (ML_1M, "ml-1m", "ratings.dat", "1::2::3::4\n1::3\t::4::5\n", r"ratings\.dat:2: item is '3\\t', not a whole"),
        (
            ML_1M,
            "ml-1m",
            "ratings.dat",
            "1::2::3::4\n-1::2::3::4\n",
            r"ratings\.dat:2: user is '-1', not a whole number",
        ),
        (
            ML_1M,
            "ml-1m",
            "users.dat",
            "1::F::1::10::48067\n1::F::1::10::48067\n",
            r"users\.dat:2: .* already has a row, line 1",
        ),
        (ML_1M, "ml-1m", "movies.dat", "661::Heat (1995)\n", r"movies\.dat:1: 2 fields, expected 3"),
        (ML_10M, "ml-10m", "movies.dat", "122::Am\xe9lie (2001)::Comedy\n", r"movies\.dat:1: byte 0xe9 .* not UTF-8"),
        (ML_CSV, "ml-25m", "ratings.csv", "userId,movieId,stars\n1,2,3\n", r"ratings\.csv:1: no column 'rating'"),
        (
            ML_CSV,
            "ml-25m",
            "ratings.csv",
            "userId,movieId,rating\n1,2,3\n1,3\n",
            r"ratings\.csv:3: 2 fields, expected 3",
        ),
        (
            ML_CSV,
            "ml-25m",
            "ratings.csv",
            'userId,movieId,rating\n1,2,3\n1,"3,3\n1,4,4\n',
            r"ratings\.csv:3: the row cannot",
        ),
        (ML_CSV, "ml-25m", "movies.csv", "movieId,title\n1,x\n", r"movies\.csv:1: no column 'genres'"),
    ],
)
def test_a_bad_file_is_told_with_line(
    tmp_path: Path, files: dict[str, str], name: str, file: str, text: str, message: str
) -> None:
    write(tmp_path, files | {file: text})
    with pytest.raises(DataError, match=message):
        read(tmp_path, name)


def test_pieces_of_any_size_give_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    pairs = rng.permutation(60 * 40)[:700]
    text = "".join(f"{p // 40}::{p % 40 + 100}::{p % 5 + 1}::{p}\n" for p in pairs)
    write(tmp_path, ML_1M | {"ratings.dat": text})
    whole = read(tmp_path, "ml-1m")
    monkeypatch.setattr(columns, "CHUNK_ROWS", 37)
    monkeypatch.setattr(columns, "_BLOCK", 7)
    pieces = read(tmp_path, "ml-1m")
    for field in ("user", "item", "rating", "timestamp", "user_tokens", "item_tokens"):
        np.testing.assert_array_equal(getattr(whole, field), getattr(pieces, field))
    assert whole.user_tokens[whole.user].tolist() == [str(p // 40) for p in pairs]
    assert whole.item_tokens[whole.item].tolist() == [str(p % 40 + 100) for p in pairs]


def staged(name: str) -> Path:
    folder = Path(os.environ.get("FEDREC_DATA", "/nowhere"), name)
    if not folder.is_dir():
        pytest.skip(f"needs FEDREC_DATA with {name}")
    return folder


def test_real_ml_100k_has_the_published_counts() -> None:
    data = read(staged("ml-100k"), "ml-100k")
    assert (data.n_users, data.n_items, data.n_interactions) == (943, 1682, 100_000)
    assert data.rating is not None
    assert np.bincount(data.rating.astype(int))[1:].tolist() == [6_110, 11_370, 27_145, 34_174, 21_201]
    assert by_class(data.attributes["gender"]) == {"F": 273, "M": 670}
    assert len(data.attributes["occupation"].classes) == 21
    assert "zip_code" not in data.attributes
    assert len(data.item_features["genre"].values) == 19


def test_real_ml_1m_has_the_published_counts() -> None:
    folder = staged("ml-1m")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        data = read(folder, "ml-1m")
    assert (data.n_users, data.n_items, data.n_interactions) == (6_040, 3_706, 1_000_209)
    assert data.rating is not None
    assert np.bincount(data.rating.astype(int))[1:].tolist() == [56_174, 107_557, 261_197, 348_971, 226_310]
    assert data.user_tokens[:8].tolist() == [str(k) for k in range(1, 9)]
    assert np.bincount(data.user)[:8].tolist() == [53, 129, 51, 21, 198, 71, 31, 139]
    assert by_class(data.attributes["gender"]) == {"F": 1_709, "M": 4_331}
    assert list(by_class(data.attributes["age"]).values()) == [222, 1_103, 2_096, 1_193, 550, 496, 380]
    assert len(data.attributes["occupation"].classes) == 21
    assert len(data.item_features["genre"].values) == 18
    if (folder / "timestamps_partial.csv.gz").exists() and not (folder / "ratings.dat").exists():
        assert data.timestamp is not None
        assert int(np.isnan(data.timestamp).sum()) == 430_910


def test_real_ml_latest_small_has_the_published_counts() -> None:
    data = read(staged("ml-latest-small-2016"), "ml-latest-small-2016")
    assert (data.n_users, data.n_items, data.n_interactions) == (671, 9_066, 100_004)
    assert data.rating is not None
    assert (data.rating.min(), data.rating.max()) == (0.5, 5.0)
    assert "(no genres listed)" not in data.item_features["genre"].values
