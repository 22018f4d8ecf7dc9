"""Atomic files hold what was given, and RecBole reads the same interactions from them."""

from __future__ import annotations

import gzip
import importlib.util
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks.atomic_files import PARTS, movielens_pairs, write_atomic, write_atomic_split
from fedrec_unlearn.errors import DataError

needs_recbole = pytest.mark.skipif(
    importlib.util.find_spec("recbole") is None or sys.version_info >= (3, 12),
    reason="recbole is not installed, or this Python is not 3.11",
)
SPLIT = {
    "train": (np.array([0, 0, 1, 2]), np.array([5, 6, 5, 7])),
    "valid": (np.array([0, 1]), np.array([7, 6])),
    "test": (np.array([1, 2]), np.array([8, 5])),
}


def test_interactions_keep_their_order(tmp_path: Path) -> None:
    write_atomic(tmp_path, "toy", (np.array(["b", "a"]), np.array(["2", "1"])))
    assert (tmp_path / "toy/toy.inter").read_text() == "user_id:token\titem_id:token\nb\t2\na\t1\n"
    assert [file.name for file in (tmp_path / "toy").iterdir()] == ["toy.inter"]


@needs_recbole
def test_recbole_reads_the_parts_of_a_given_split(tmp_path: Path) -> None:
    from benchmarks.recbole_baseline import open_run

    write_atomic_split(tmp_path, "toy", SPLIT)
    run = open_run("BPR", tmp_path, "toy", tmp_path / "saved", given_split=True)
    assert run.sizes() == {"n_users": 3, "n_items": 4, "n_train": 4, "n_valid": 2, "n_test": 2}
    for part in PARTS:
        data = getattr(run, part).dataset
        users = data.id2token("user_id", data.inter_feat["user_id"]).astype(int)
        items = data.id2token("item_id", data.inter_feat["item_id"]).astype(int)
        assert sorted(zip(users, items, strict=True)) == sorted(zip(*SPLIT[part], strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test": (np.array([0]), np.array([5]))}, "train and test share 1 pairs, for example user 0 and item 5"),
        ({"valid": (np.array([0]), np.array([7, 6]))}, "1 users but 2 items"),
        ({"valid": (np.array([], dtype=int), np.array([], dtype=int))}, r"toy\.valid\.inter: no interactions"),
        ({"extra": SPLIT["test"]}, "needs exactly train, valid, test"),
    ],
)
def test_a_split_recbole_would_misread_is_refused(
    tmp_path: Path, change: dict[str, tuple[np.ndarray, np.ndarray]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        write_atomic_split(tmp_path, "toy", {**SPLIT, **change})


def test_each_layout_of_movielens_gives_the_same_pairs(tmp_path: Path) -> None:
    lines = "196\t242\t3\t881250949\n186\t302\t3\t891717742\n"
    for name in ("plain", "zipped", "atomic"):
        (tmp_path / name / "ml-100k").mkdir(parents=True)
    (tmp_path / "plain/ml-100k/u.data").write_text(lines)
    with zipfile.ZipFile(tmp_path / "zipped/ml-100k/ml-100k.zip", "w") as archive:
        archive.writestr("ml-100k/u.data", lines)
    (tmp_path / "atomic/ml-100k-recbole").mkdir()
    with gzip.open(tmp_path / "atomic/ml-100k-recbole/ml-100k.inter.gz", "wt") as handle:
        handle.write("user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + lines)
    for name in ("plain", "zipped", "atomic"):
        users, items = movielens_pairs("ml-100k", tmp_path / name)
        assert (users.tolist(), items.tolist()) == (["196", "186"], ["242", "302"])


def test_a_malformed_line_and_a_missing_file_are_located(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none of these files exists: .*u\.data"):
        movielens_pairs("ml-100k", tmp_path)
    (tmp_path / "ml-1m").mkdir()
    (tmp_path / "ml-1m/ratings.dat").write_text("1::1193::5::978300760\n1,661,3\n")
    with pytest.raises(DataError, match=r"ratings\.dat, line 2: expected user, item and rating, found '1,661,3'"):
        movielens_pairs("ml-1m", tmp_path)


@needs_recbole
def test_the_original_ml_100k_equals_the_one_recbole_carries() -> None:
    folder = os.environ.get("FEDREC_DATA")
    if not folder or not (Path(folder) / "ml-100k").is_dir():
        pytest.skip("FEDREC_DATA is not set or has no ml-100k")
    for ours, theirs in zip(movielens_pairs("ml-100k", Path(folder)), movielens_pairs("ml-100k", None), strict=True):
        assert np.array_equal(ours, theirs)
