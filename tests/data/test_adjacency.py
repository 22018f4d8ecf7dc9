"""Adjacency lists in parts, with the NFA data sets' tables of users and items."""

import gzip
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrec_unlearn.config import DataConfig
from fedrec_unlearn.data.adjacency import is_adjacency, parse_list, read_adjacency
from fedrec_unlearn.data.text import DataWarning, TextFile, text_files
from fedrec_unlearn.data.types import MISSING, Dataset
from fedrec_unlearn.errors import DataError

PARTS = {"train.txt": "5 7 2\n1 2\n", "valid.txt": "1 9\n5\n", "test.txt": "1 3\n5 1 9\n"}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        content = text.encode()
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder


def read(folder: Path, name: str = "mine", asked_for: tuple[str, ...] = ()) -> Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_adjacency(text_files(folder, name), DataConfig(name=name), asked_for)


def triples(data: Dataset) -> list[tuple[str, str, int]]:
    assert data.given_part is not None
    return [
        (str(data.user_tokens[u]), str(data.item_tokens[i]), int(p))
        for u, i, p in zip(data.user, data.item, data.given_part, strict=True)
    ]


def test_parts_are_kept_and_items_of_any_part_belong_to_the_set(tmp_path: Path) -> None:
    data = read(write(tmp_path, PARTS))
    assert triples(data) == [
        ("5", "7", 0), ("5", "2", 0), ("1", "2", 0), ("1", "9", 1), ("1", "3", 2), ("5", "1", 2), ("5", "9", 2)
    ]  # fmt: skip
    assert data.user_tokens.tolist() == ["5", "1"]
    assert data.item_tokens.tolist() == ["7", "2", "9", "3", "1"]
    assert data.given_part is not None
    assert data.given_part.dtype == np.int8
    assert data.rating is None
    assert data.timestamp is None


def test_validation_and_test_are_optional(tmp_path: Path) -> None:
    assert triples(read(write(tmp_path, {"train.txt": "0 1\n"}))) == [("0", "1", 0)]


def test_blank_lines_trailing_blanks_windows_ends_and_no_final_newline_do_not_matter(tmp_path: Path) -> None:
    data = read(write(tmp_path, {"train.txt": "5 7  2 \r\n\r\n1\t2"}))
    assert triples(data) == [("5", "7", 0), ("5", "2", 0), ("1", "2", 0)]


@pytest.mark.parametrize("name", ["train.txt.gz", "train_users0-13454.txt.gz", "train_part.txt"])
def test_the_train_file_may_be_gzipped_and_carry_more_in_its_name(tmp_path: Path, name: str) -> None:
    write(tmp_path, {name: PARTS["train.txt"]})
    assert is_adjacency(text_files(tmp_path, "mine"))
    assert read(tmp_path).n_interactions == 3


def test_users_without_training_items_are_left_out_and_counted(tmp_path: Path) -> None:
    write(tmp_path, PARTS | {"test.txt": "1 3\n8 1 2 4\n6 1\n7\n"})
    with pytest.warns(
        DataWarning, match=r"test\.txt: left out 2 users \(4 interactions\) that .*train\.txt does not have"
    ):
        data = read_adjacency(text_files(tmp_path, "mine"), DataConfig(name="mine"))
    assert triples(data)[-1] == ("1", "3", 2)
    assert "4" not in data.item_tokens


def test_repeated_items_of_a_line_are_left_out_and_counted(tmp_path: Path) -> None:
    write(tmp_path, {"train.txt": "0 4 4 1 4\n1 1 1\n"})
    with pytest.warns(DataWarning, match=r"train\.txt: left out 3 items that a line names more than once"):
        data = read_adjacency(text_files(tmp_path, "mine"), DataConfig(name="mine"))
    assert triples(data) == [("0", "4", 0), ("0", "1", 0), ("1", "1", 0)]


def test_an_item_in_two_parts_of_a_user_stays_in_the_earlier_one(tmp_path: Path) -> None:
    write(tmp_path, PARTS | {"test.txt": "1 9 3\n5 7 1\n"})
    with pytest.warns(DataWarning, match="left out 2 later interactions that an earlier part has too"):
        data = read_adjacency(text_files(tmp_path, "mine"), DataConfig(name="mine"))
    assert triples(data)[3:] == [("1", "9", 1), ("1", "3", 2), ("5", "1", 2)]


@pytest.mark.parametrize(
    ("part", "text", "message"),
    [
        ("train.txt", "5 7\n\n1\n", r"train\.txt:3: user 1 has no items; remove the line"),
        ("train.txt", "5 7\n1 x7\n", r"train\.txt:2: 'x7' is not a whole number; a line is a user and its items"),
        ("train.txt", "5 7\n1 -7\n", r"train\.txt:2: '-7' is not a whole number"),
        ("train.txt", "5 7\n1 7,8\n", r"train\.txt:2: '7,8' is not a whole number"),
        ("train.txt", "5 7\n1 1_0\n", r"train\.txt:2: '1_0' is not a whole number"),
        ("train.txt", "5 7\n1 \xe9\n", r"train\.txt:2: '\xe9' is not a whole number"),
        ("train.txt", "5 7\n1 99999999999999999999\n", r"train\.txt:2: 99999999999999999999 is too large"),
        ("train.txt", "5 7\n1 2\n5 8\n", r"train\.txt:3: user 5 already has line 1; put all items of a user on one"),
        ("train.txt", "\n", r"train\.txt: holds no user; expected lines `user item item \.\.\.`"),
        ("test.txt", "5 1\n5 2\n", r"test\.txt:2: user 5 already has line 1"),
        ("valid.txt", "5 1.5\n", r"valid\.txt:1: '1\.5' is not a whole number"),
    ],
)
def test_a_bad_line_is_told_with_its_number_and_a_remedy(tmp_path: Path, part: str, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(write(tmp_path, PARTS | {part: text}))


def test_a_missing_train_part_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no train\.txt.*name the train part train\.txt"):
        read(write(tmp_path, {"test.txt": "1 2\n"}))


def test_two_candidates_for_the_train_part_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"several files could be the train part.*name the train part train\.txt"):
        read(write(tmp_path, {"train_a.txt": "1 2\n", "train_b.txt": "1 2\n"}))


def test_taobao_columns_have_names_and_code_0_is_missing_where_it_stands_for_an_empty_cell(tmp_path: Path) -> None:
    users = "".join(f"{u} {u % 2} 3 {1 + u % 2} {u % 3} {u % 3} 3 0 {u % 4} \r\n" for u in range(12))
    write(tmp_path, {"train.txt": "".join(f"{u} 1\n" for u in range(12)), "u.user": users})
    data = read(tmp_path, "taobao-nfa")
    assert data.attributes["gender"].classes == ("F", "M")
    assert data.attributes["gender"].labels.tolist() == [1, 0] * 6
    assert data.attributes["age_level"].classes == ("0", "1", "2")
    assert data.attributes["pvalue_level"].classes == ("1", "2")
    assert data.attributes["pvalue_level"].labels.tolist() == [MISSING, 0, 1] * 4
    assert data.attributes["new_user_class_level"].labels.tolist() == [MISSING, 0, 1, 2] * 3
    assert "occupation" not in data.attributes
    assert "occupation" in read(tmp_path, "taobao-nfa", asked_for=("occupation",)).attributes


def test_tables_of_unknown_columns_get_numbered_names(tmp_path: Path) -> None:
    write(tmp_path, {"train.txt": "0 4\n1 5\n", "u.user": "1 0 7\n0 1 7\n", "u.item": "5 2\n4 3\n"})
    data = read(tmp_path)
    assert {name: a.labels.tolist() for name, a in data.attributes.items()} == {"attribute_1": [1, 0]}
    assert data.item_features["feature_1"].values == ("2", "3")
    assert data.item_features["feature_1"].indices.tolist() == [1, 0]


def test_a_table_row_of_another_length_is_told_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, {"train.txt": "0 4\n1 5\n", "u.user": "1 0 7\n0 1\n"})
    with pytest.raises(DataError, match=r"u\.user:2: 2 fields, expected 3"):
        read(tmp_path)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.integers(0, 10**12), st.sets(st.integers(0, 10**12), min_size=1, max_size=6), min_size=1))
def test_every_written_pair_is_read_back_in_order(
    tmp_path_factory: pytest.TempPathFactory, lists: dict[int, set[int]]
) -> None:
    folder = tmp_path_factory.mktemp("lists")
    write(folder, {"train.txt": "".join(f"{u} {' '.join(map(str, items))}\n" for u, items in lists.items())})
    assert triples(read(folder)) == [(str(u), str(i), 0) for u, items in lists.items() for i in items]


def test_parse_list_keeps_the_line_of_each_user(tmp_path: Path) -> None:
    write(tmp_path, {"test.txt": "\n3 1\n4\n2 1 5\n"})
    part = parse_list(TextFile(tmp_path / "test.txt"), may_be_empty=True)
    assert (part.users.tolist(), part.lines.tolist(), part.indptr.tolist()) == ([3, 2], [2, 4], [0, 1, 3])


@pytest.mark.parametrize(
    ("name", "users", "items", "parts"),
    [
        ("gowalla", 29_858, 40_981, [719_081, 91_047, 217_242]),
        ("yelp2018-partial", 13_455, 37_878, [616_320, 0, 160_501]),
        ("yelp-nfa", 33_078, 25_720, [524_071, 0, 129_983]),
        ("taobao-nfa", 33_932, 24_400, [227_108, 0, 54_723]),
    ],
)
def test_real_data_sets_have_the_counts_of_their_source(name: str, users: int, items: int, parts: list[int]) -> None:
    folder = Path(os.environ.get("FEDREC_DATA", "/nowhere"), name)
    if not folder.is_dir():
        pytest.skip(f"needs FEDREC_DATA with {name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if name == "yelp2018-partial" else "error")
        data = read_adjacency(text_files(folder, name), DataConfig(name=name))
    assert (data.n_users, data.n_items) == (users, items)
    assert data.given_part is not None
    assert np.bincount(data.given_part, minlength=3).tolist() == parts
    if name == "taobao-nfa":
        counts = {a: np.bincount(data.attributes[a].labels).tolist() for a in ("gender", "age_level")}
        assert counts == {"gender": [28_606, 5_326], "age_level": [9, 2_361, 7_598, 11_044, 7_522, 4_983, 415]}
    if name == "yelp-nfa":
        assert [len(a.classes) for a in data.attributes.values()] == [3, 19, 16, 9, 5]
        assert len(data.item_features) == 17
