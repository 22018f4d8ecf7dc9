"""CSV files of your own."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrec_unlearn.config import DataConfig
from fedrec_unlearn.data.table import read_table
from fedrec_unlearn.data.text import text_files
from fedrec_unlearn.data.types import MISSING, Dataset
from fedrec_unlearn.errors import DataError

SHOP = 'when,item_id,user_id,stars\n10,"tea, green",ann,4\n,cup,bob,2.5\n30,cup,ann,1\n'
USERS = "user_id,gender,age,mail\nbob,m,61,b@x\nann,f,?,a@x\ncat,f,9,c@x\n"
ITEMS = 'item_id,kind\n"tea, green",drink|food\ncup,\n'


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / (name.replace("_", ".") + ".csv")).write_text(text, encoding="utf-8")
    return folder


def read(folder: Path, asked_for: tuple[str, ...] = (), **options: object) -> Dataset:
    return read_table(text_files(folder, "shop"), DataConfig(name="shop", **options), asked_for)  # type: ignore[arg-type]


def test_quoted_fields_and_named_columns_are_read(tmp_path: Path) -> None:
    data = read(write(tmp_path, shop=SHOP), rating_column="stars", timestamp_column="when")
    assert data.user_tokens.tolist() == ["ann", "bob"]
    assert data.item_tokens.tolist() == ["tea, green", "cup"]
    assert data.rating is not None
    assert data.rating.tolist() == [4, 2.5, 1]
    assert data.timestamp is not None
    np.testing.assert_array_equal(data.timestamp, [10, np.nan, 30])


def test_columns_that_are_not_named_are_not_read(tmp_path: Path) -> None:
    data = read(write(tmp_path, shop=SHOP))
    assert data.rating is None
    assert data.timestamp is None


@pytest.mark.parametrize("name", ["users", "shop_users"])
def test_attributes_lie_beside_and_unknown_values_are_missing(tmp_path: Path, name: str) -> None:
    data = read(write(tmp_path, shop=SHOP, **{name: USERS}), asked_for=("age", "mail"))
    assert data.attributes["gender"].classes == ("f", "m")
    assert data.attributes["gender"].labels.tolist() == [0, 1]
    assert data.attributes["age"].classes == ("56+",)
    assert data.attributes["age"].labels.tolist() == [MISSING, 0]
    assert data.attributes["mail"].classes == ("a@x", "b@x")


def test_item_features_lie_beside_and_bars_separate_values(tmp_path: Path) -> None:
    data = read(write(tmp_path, shop=SHOP, items=ITEMS))
    kind = data.item_features["kind"]
    assert (kind.values, kind.indptr.tolist(), kind.indices.tolist()) == (("drink", "food"), [0, 2, 2], [0, 1])


def test_another_separator_blanks_after_it_and_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_bytes("\ufeffuser_id; item_id\r\nann; tea\r\nbob; cup\r\n".encode())
    data = read(tmp_path, separator=";")
    assert data.item_tokens.tolist() == ["tea", "cup"]


def test_tsv_files_are_separated_by_tabs_without_saying_so(tmp_path: Path) -> None:
    (tmp_path / "shop.tsv").write_text("user_id\titem_id\nann\ttea\n")
    (tmp_path / "users.tsv").write_text("user_id\tgender\nann\tf\n")
    assert read(tmp_path, asked_for=("gender",)).attributes["gender"].classes == ("f",)


def test_a_sole_csv_file_of_any_name_holds_the_interactions(tmp_path: Path) -> None:
    data = read(write(tmp_path, log=SHOP, log_users=USERS))
    assert data.n_interactions == 3
    assert "gender" in data.attributes


def test_files_in_a_zip_are_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "shop.zip", "w") as archive:
        archive.writestr("shop.csv", SHOP)
        archive.writestr("users.csv", USERS)
    assert "gender" in read(tmp_path).attributes


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"shop": SHOP + "5,cup\n"}, {}, r"shop\.csv:5: 2 fields, expected 4 .* commas \(when, item, user, stars"),
        ({"shop": SHOP + "5,a,b,c,d\n"}, {}, r"shop\.csv:5: 5 fields, expected 4"),
        ({"shop": SHOP + "5,cup,,3\n"}, {}, r"shop\.csv:5: user is empty; correct or remove the line"),
        ({"shop": SHOP + "5,,bob,3\n"}, {}, r"shop\.csv:5: item is empty"),
        (
            {"shop": SHOP + "5,mug,bob,*\n"},
            {"rating_column": "stars"},
            r"shop\.csv:5: rating is '\*', not a finite number",
        ),
        ({"shop": SHOP + "noon,mug,bob,3\n"}, {"timestamp_column": "when"}, r"shop\.csv:5: timestamp is 'noon'"),
        (
            {"shop": SHOP + "\n5,cup,bob,3\n"},
            {},
            r"shop\.csv:6: user bob and item cup already occur together on line 3",
        ),
        ({"shop": SHOP + '5,"cup,bob,3\n6,mug,ann,2\n'}, {}, r"shop\.csv:5: the row cannot be split.*quote"),
        ({"shop": SHOP + '5,"m\nug",bob,3\n6,pot,,1\n'}, {}, r"shop\.csv:7: user is empty"),
        (
            {"shop": SHOP},
            {"user_column": "who"},
            r"shop\.csv:1: no column 'who', only when, item_id.*set data\.user_column",
        ),
        ({"shop": SHOP}, {"rating_column": "x"}, r"shop\.csv:1: no column 'x'.*set data\.rating_column"),
        ({"shop": SHOP}, {"separator": ";"}, r"shop\.csv:1: no column 'user_id'.*check data\.separator"),
        ({"shop": SHOP}, {"rating_column": "user_id"}, r"data\.rating_column: column 'user_id' already serves as user"),
        ({"shop": SHOP.replace("when", "stars")}, {}, r"shop\.csv:1: column 'stars' occurs twice"),
        (
            {"shop": "user_id,item_id\n"},
            {},
            r"shop\.csv: holds no rows; expected lines of 2 fields separated by commas",
        ),
        ({"shop": ""}, {}, r"shop\.csv: the file is empty"),
        ({"shop": SHOP, "users": "id,gender\nann,f\n"}, {}, r"users\.csv:1: no column 'user_id', only id, gender"),
        ({"shop": SHOP, "users": USERS + "ann,f,3,x\n"}, {}, r"users\.csv:5: user_id ann already has a row, line 3"),
        ({"shop": SHOP, "users": USERS + ",f,3,x\n"}, {}, r"users\.csv:5: user_id is empty"),
        (
            {"a": SHOP, "b": SHOP},
            {},
            r"no shop\.csv, and not exactly one other .*a\.csv, b\.csv.*name the file shop\.csv",
        ),
    ],
)
def test_a_bad_file_is_told_with_line_and_remedy(
    tmp_path: Path, files: dict[str, str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(write(tmp_path, **files), **options)


def test_bytes_of_another_encoding_are_told_with_line_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_bytes(b"user_id,item_id\nann,tea\nbob,caf\xe9\n")
    with pytest.raises(
        DataError, match=r"shop\.csv:3: byte 0xe9 at position 8 of the line is not UTF-8 text; save .*iconv"
    ):
        read(tmp_path)


def test_a_separator_within_quotes_does_not_count_as_one(tmp_path: Path) -> None:
    data = read(write(tmp_path, shop='user_id,item_id,note\nann,"a,b","x,y"\nbob,"a,b",\n'))
    assert data.item_tokens.tolist() == ["a,b"]
    with pytest.raises(DataError, match=r"shop\.csv:3: 2 fields, expected 3"):
        read(write(tmp_path, shop='user_id,item_id,note\nann,"a,b","x,y"\nbob,"a,b"\n'))
