"""RecBole atomic files: what is read of good ones, and what the errors of bad ones say."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from fedrec_unlearn.config import DataConfig
from fedrec_unlearn.data.atomic import read_atomic
from fedrec_unlearn.data.text import text_files
from fedrec_unlearn.data.types import MISSING, Dataset
from fedrec_unlearn.errors import DataError

INTER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\nb\ti1\t3\t20\na\ti2\t4.5\t10\nb\ti2\t1\t\n"
USER = "user_id:token\tage:token\tgender:token\theight:float\na\t17\tF\t1.7\nb\t\tM\t1.8\nz\t80\tM\t1.9\n"
ITEM = "item_id:token\tclass:token_seq\trelease_year:token\ni2\tComedy Drama\t1999\ni1\tDrama\t\n"


def write(folder: Path, **parts: str) -> Path:
    for part, text in parts.items():
        (folder / f"ml-100k.{part}").write_text(text, encoding="utf-8")
    return folder


def read(folder: Path, name: str = "ml-100k", asked_for: tuple[str, ...] = (), **options: object) -> Dataset:
    return read_atomic(text_files(folder, name), DataConfig(name=name, **options), asked_for)  # type: ignore[arg-type]


def test_users_and_items_are_numbered_by_first_appearance_and_keep_their_tokens(tmp_path: Path) -> None:
    data = read(write(tmp_path, inter=INTER))
    assert data.user_tokens.tolist() == ["b", "a"]
    assert data.item_tokens.tolist() == ["i1", "i2"]
    assert data.user.tolist() == [0, 1, 0]
    assert data.item.tolist() == [0, 1, 1]
    assert data.rating is not None
    assert data.rating.tolist() == [3.0, 4.5, 1.0]


def test_an_empty_timestamp_is_unknown(tmp_path: Path) -> None:
    data = read(write(tmp_path, inter=INTER))
    assert data.timestamp is not None
    np.testing.assert_array_equal(data.timestamp, [20, 10, np.nan])


def test_token_columns_become_attributes_age_is_grouped_and_floats_are_not_classes(tmp_path: Path) -> None:
    data = read(write(tmp_path, inter=INTER, user=USER), asked_for=("age",))
    assert set(data.attributes) == {"gender", "age"}
    assert data.attributes["gender"].classes == ("F", "M")
    assert data.attributes["gender"].labels.tolist() == [1, 0]
    assert data.attributes["age"].classes == ("<18",)
    assert data.attributes["age"].labels.tolist() == [MISSING, 0]


def test_a_user_without_a_row_has_no_known_attributes(tmp_path: Path) -> None:
    rows = "".join(f"u{k}\ti1\t1\t1\n" for k in range(4))
    users = "user_id:token\tgender:token\nu0\tF\nu1\tM\nu3\tF\n"
    data = read(write(tmp_path, inter=INTER.splitlines()[0] + "\n" + rows, user=users))
    assert data.attributes["gender"].labels.tolist() == [0, 1, MISSING, 0]


def test_token_sequences_of_items_are_split_and_class_is_also_called_genre(tmp_path: Path) -> None:
    data = read(write(tmp_path, inter=INTER, item=ITEM))
    genre = data.item_features["genre"]
    assert genre.values == data.item_features["class"].values == ("Comedy", "Drama")
    assert [genre.indices[a:b].tolist() for a, b in zip(genre.indptr, genre.indptr[1:], strict=False)] == [[1], [0, 1]]
    year = data.item_features["release_year"]
    assert year.values == ("1999",)
    assert np.diff(year.indptr).tolist() == [0, 1]


def test_class_is_not_taken_for_genre_in_other_data_sets(tmp_path: Path) -> None:
    for part, text in (("inter", INTER), ("item", ITEM)):
        (tmp_path / f"cars.{part}").write_text(text)
    assert "genre" not in read(tmp_path, name="cars").item_features


def test_gzipped_files_a_byte_order_mark_and_windows_line_ends_read_the_same(tmp_path: Path) -> None:
    (tmp_path / "ml-100k.inter.gz").write_bytes(
        gzip.compress(b"\xef\xbb\xbf" + INTER.replace("\n", "\r\n").encode() + b"\r\n")
    )
    data = read(tmp_path)
    assert data.user_tokens.tolist() == ["b", "a"]
    assert data.item_tokens.tolist() == ["i1", "i2"]


def test_tokens_stay_text_so_leading_zeros_tell_users_apart(tmp_path: Path) -> None:
    inter = INTER.splitlines()[0] + "\n007\t1\t1\t1\n7\t1\t1\t1\n"
    assert read(write(tmp_path, inter=inter)).user_tokens.tolist() == ["007", "7"]


def test_columns_of_any_name_can_serve(tmp_path: Path) -> None:
    inter = "who:token\tremark:token_seq\twhat:token\tstars:float\nb\tso so\ti1\t2\n"
    data = read(write(tmp_path, inter=inter), user_column="who", item_column="what", rating_column="stars")
    assert data.rating is not None
    assert data.rating.tolist() == [2.0]
    assert data.timestamp is None


@pytest.mark.parametrize(
    ("part", "text", "message"),
    [
        ("inter", INTER + "c\ti1\t2\n", r"ml-100k\.inter:5: 3 fields, expected 4 .*tabs.*complete or remove the line"),
        ("inter", INTER + "c\ti1\t2\t1\t9\n", r"ml-100k\.inter:5: 5 fields, expected 4"),
        ("inter", INTER + "c\n", r"ml-100k\.inter:5: 1 field, expected 4"),
        ("inter", INTER + "\n\n\ti1\t2\t3\n", r"ml-100k\.inter:7: user is empty; correct or remove the line"),
        ("inter", INTER + "c\t\t2\t3\n", r"ml-100k\.inter:5: item is empty"),
        ("inter", INTER + "c\ti1\tgood\t3\n", r"ml-100k\.inter:5: rating is 'good', not a finite number"),
        ("inter", INTER + "c\ti1\t\t3\n", r"ml-100k\.inter:5: rating is empty"),
        ("inter", INTER + "c\ti1\tnan\t3\n", r"ml-100k\.inter:5: rating is 'nan', not a finite number"),
        ("inter", INTER + "c\ti1\tinf\t3\n", r"ml-100k\.inter:5: rating is 'inf', not a finite number"),
        ("inter", INTER + "c\ti1\t1\tinf\n", r"ml-100k\.inter:5: timestamp is 'inf', not a finite number"),
        ("inter", INTER + "c\ti1\t1\tmonday\n", r"ml-100k\.inter:5: timestamp is 'monday', not a finite number"),
        ("inter", INTER + "a\ti2\t2\t3\n", r"ml-100k\.inter:5: user a and item i2 .* on line 3; keep one line"),
        ("inter", INTER.splitlines()[0], r"ml-100k\.inter: holds no rows; expected lines of 4 fields"),
        ("inter", "", r"ml-100k\.inter: the file is empty; its first line must name the columns"),
        ("inter", INTER.replace("user_id", "uid"), r"ml-100k\.inter:1: no column 'user_id'.*set data\.user_column"),
        ("inter", INTER.replace("rating:float", "rating:token"), r"inter:1: column 'rating' has the type token"),
        ("inter", INTER.replace("rating:float", "rating"), r"inter:1: header field 'rating' is not name:type"),
        (
            "inter",
            INTER.replace("rating:float", "rating:text"),
            r"inter:1: header field 'rating:text' is not name:type",
        ),
        ("inter", INTER.replace("rating:float", "item_id:float"), r"inter:1: column 'item_id' occurs twice"),
        ("inter", INTER.replace("rating:float", ""), r"inter:1: a column of the header has no name"),
        ("user", USER + "a\t20\tM\t1\n", r"ml-100k\.user:5: user_id a already has a row, line 2; remove one"),
        ("user", USER + "c\t20\n", r"ml-100k\.user:5: 2 fields, expected 4"),
        ("user", USER + "\t20\tM\t1\n", r"ml-100k\.user:5: user_id is empty"),
        ("user", USER.replace("b\t\t", "b\told\t"), r"ml-100k\.user:3: age is 'old', not an age in years"),
        ("user", USER.replace("b\t\t", "b\t-1\t"), r"ml-100k\.user:3: age is '-1', not an age in years; leave unknown"),
        ("item", ITEM.replace("item_id", "id"), r"ml-100k\.item:1: no column 'item_id'.*set data\.item_column"),
    ],
)
def test_a_bad_file_is_told_with_line_and_remedy(tmp_path: Path, part: str, text: str, message: str) -> None:
    parts = {"inter": INTER, "user": USER, "item": ITEM, part: text}
    with pytest.raises(DataError, match=message):
        read(write(tmp_path, **parts))


@pytest.mark.parametrize("part", ["inter", "user", "item"])
def test_bytes_of_another_encoding_are_told_with_line_and_remedy(tmp_path: Path, part: str) -> None:
    write(tmp_path, inter=INTER, user=USER, item=ITEM)
    file = tmp_path / f"ml-100k.{part}"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + lines[1].replace(b"\t", b"\xe9\t", 1) + b"".join(lines[2:]))
    with pytest.raises(DataError, match=rf"ml-100k\.{part}:2: byte 0xe9 at position \d .* not UTF-8.*iconv"):
        read(tmp_path)


def test_user_and_item_cannot_be_one_column(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.user_column and data\.item_column are both 'user_id'"):
        read(write(tmp_path, inter=INTER), item_column="user_id")


def test_files_of_another_name_are_pointed_out(tmp_path: Path) -> None:
    write(tmp_path, inter=INTER)
    with pytest.raises(DataError, match=r"no mine\.inter, but ml-100k\.inter; set data\.name to 'ml-100k'"):
        read(tmp_path, name="mine")


@pytest.mark.parametrize("cut", [10, 40])
def test_a_cut_off_gzip_file_is_told_as_such(tmp_path: Path, cut: int) -> None:
    (tmp_path / "ml-100k.inter.gz").write_bytes(gzip.compress(INTER.encode())[:cut])
    with pytest.raises(DataError, match=r"ml-100k\.inter\.gz: the archive is damaged or cut off .*get the file again"):
        read(tmp_path)


@pytest.mark.skipif("FEDREC_DATA" not in os.environ, reason="FEDREC_DATA is not set")
def test_ml_100k_of_recbole_equals_the_original_files() -> None:
    from fedrec_unlearn.data.movielens import read_movielens

    root = Path(os.environ["FEDREC_DATA"])
    if not (root / "ml-100k-recbole").is_dir() or not (root / "ml-100k").is_dir():
        pytest.skip("FEDREC_DATA does not hold ml-100k and ml-100k-recbole")
    atomic = read(root / "ml-100k-recbole")
    original = read_movielens(text_files(root / "ml-100k", "ml-100k"), DataConfig())
    assert (atomic.n_users, atomic.n_items, atomic.n_interactions) == (943, 1682, 100_000)
    for field in ("user", "item", "rating", "timestamp", "user_tokens", "item_tokens"):
        np.testing.assert_array_equal(getattr(atomic, field), getattr(original, field))
    assert set(atomic.attributes) == set(original.attributes) == {"age", "gender", "occupation"}
    for name, attribute in atomic.attributes.items():
        assert attribute.classes == original.attributes[name].classes
        np.testing.assert_array_equal(attribute.labels, original.attributes[name].labels)
    for field in ("values", "indptr", "indices"):
        np.testing.assert_array_equal(
            getattr(atomic.item_features["genre"], field), getattr(original.item_features["genre"], field)
        )
