"""Attributes are read beside RecBole, matched to its users, and never become inputs unnoticed."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedrec_unlearn.config_unlearn import UnlearnWarning
from fedrec_unlearn.data.types import MISSING
from fedrec_unlearn.errors import DataError
from fedrec_unlearn.recbole.attributes import read_attributes, warn_if_input
from tests.recbole.conftest import FEATURES, N_USERS, Opened

OpenModel = Callable[..., Opened]


def test_labels_are_those_of_recboles_users(open_model: OpenModel, atomic_folder: Path) -> None:
    opened = open_model("BPR")
    data = opened.train.dataset
    gender, age = read_attributes(opened.config, data, ["gender", "age"])
    rows = [line.split("\t") for line in (atomic_folder / "tiny" / "tiny.user").read_text().splitlines()[1:]]
    told = {user: sex for user, _, sex, _ in rows}
    tokens = data.field2id_token["user_id"]
    assert len(gender.labels) == N_USERS
    for number in range(N_USERS):
        expected = told[tokens[number + 1]]
        got = gender.labels[number]
        assert got == MISSING if expected == "" else gender.classes[got] == expected
    assert int((gender.labels == MISSING).sum()) == 3
    assert set(age.classes) <= {"<18", "18-24", "25-34", "35-44", "45-49", "50-55", "56+"}
    assert np.all(age.labels != MISSING)


def test_users_that_are_not_in_the_file_are_missing(open_model: OpenModel, atomic_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(atomic_folder, tmp_path / "data")
    file = tmp_path / "data" / "tiny" / "tiny.user"
    file.write_text("\n".join(file.read_text().splitlines()[:-10]) + "\n")
    opened = open_model("BPR", data_path=str(tmp_path / "data"))
    (gender,) = read_attributes(opened.config, opened.train.dataset, ["gender"])
    assert int((gender.labels == MISSING).sum()) == 13


def test_what_is_not_there_is_told(open_model: OpenModel, atomic_folder: Path, tmp_path: Path) -> None:
    opened = open_model("BPR")
    with pytest.raises(DataError, match=r"tiny\.user has no column 'sex'; its columns are age, gender, occupation"):
        read_attributes(opened.config, opened.train.dataset, ["sex"])
    shutil.copytree(atomic_folder, tmp_path / "data")
    file = tmp_path / "data" / "tiny" / "tiny.user"
    file.write_text(file.read_text().replace("\tM\t", "\tF\t"))
    opened.config["data_path"] = str(tmp_path / "data" / "tiny")
    with pytest.raises(DataError, match=r"gender .*: all users are 'F'; there is nothing to infer"):
        read_attributes(opened.config, opened.train.dataset, ["gender"])
    file.unlink()
    with pytest.raises(DataError, match=r"there is no tiny\.user in .*user_id:token"):
        read_attributes(opened.config, opened.train.dataset, ["gender"])


def test_an_attribute_that_is_also_an_input_is_warned_of_loudly(open_model: OpenModel) -> None:
    opened = open_model("FM", **FEATURES)
    with pytest.warns(UnlearnWarning, match=r"age: LOADED AS A MODEL INPUT.*Leave age out of load_col\.user"):
        assert warn_if_input(opened.model, ["age", "gender"]) == ["age"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_if_input(opened.model, ["gender"]) == []
        assert warn_if_input(open_model("BPR").model, ["age"]) == []
