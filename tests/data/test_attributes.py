"""From columns of text to classes of users, and the cases where a column is none."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrec_unlearn.config import AGE_BOUNDS
from fedrec_unlearn.data.attributes import (
    age_group_names,
    age_groups,
    categorical,
    check_movielens_1m_bounds,
    present_classes,
    user_attributes,
)
from fedrec_unlearn.data.item_features import item_feature, year_of_title
from fedrec_unlearn.data.side_table import SideTable, side_table
from fedrec_unlearn.data.text import TextFile
from fedrec_unlearn.data.types import MISSING, Attribute
from fedrec_unlearn.errors import DataError

FILE = TextFile(Path("people.csv"))


def table(**columns: list[str]) -> SideTable:
    length = len(next(iter(columns.values())))
    return SideTable(FILE, dict(columns), list(range(2, length + 2)))


def nowhere(user: int) -> str:
    return f"user {user}"


def test_classes_are_sorted_and_missing_values_are_no_class() -> None:
    attribute = categorical("gender", ["M", "", "F", "M"])
    assert attribute.classes == ("F", "M")
    assert attribute.labels.tolist() == [1, MISSING, 0, 1]
    assert attribute.labels.dtype == np.int64


def test_number_codes_are_sorted_by_value() -> None:
    assert categorical("level", ["10", "9", "1", "10"]).classes == ("1", "9", "10")


@given(st.lists(st.text(max_size=3), min_size=1))
def test_labels_name_the_texts_they_come_from(texts: list[str]) -> None:
    attribute = categorical("any", texts)
    assert [attribute.classes[k] if k != MISSING else "" for k in attribute.labels] == texts


@pytest.mark.parametrize(
    ("bounds", "names"),
    [
        (AGE_BOUNDS, ("<18", "18-24", "25-34", "35-44", "45-49", "50-55", "56+")),
        ((40,), ("<40", "40+")),
        ((18, 19, 30), ("<18", "18", "19-29", "30+")),
    ],
)
def test_age_groups_are_named_after_their_years(bounds: tuple[int, ...], names: tuple[str, ...]) -> None:
    assert age_group_names(bounds) == names


@given(st.lists(st.integers(0, 120), min_size=1))
def test_an_age_falls_into_the_group_whose_bounds_hold_it(ages: list[int]) -> None:
    attribute = age_groups("age", [str(age) for age in ages], AGE_BOUNDS, nowhere)
    edges = (0, *AGE_BOUNDS, 10_000)
    for age, label in zip(ages, attribute.labels, strict=True):
        (group,) = [g for g in range(len(edges) - 1) if edges[g] <= age < edges[g + 1]]
        assert attribute.classes[label] == age_group_names(AGE_BOUNDS)[group]
    assert len(attribute.classes) == len(set(attribute.labels.tolist()))


def test_the_age_codes_of_movielens_1m_are_the_groups() -> None:
    attribute = age_groups("age", ["1", "18", "25", "35", "45", "50", "56"], AGE_BOUNDS, nowhere)
    assert attribute.labels.tolist() == list(range(7))


def test_unknown_ages_are_missing_and_decimals_count() -> None:
    attribute = age_groups("age", ["", "17.9", "18.0"], AGE_BOUNDS, nowhere)
    assert attribute.labels.tolist() == [MISSING, 0, 1]


def test_ages_that_are_groups_already_stay_as_they_are() -> None:
    assert age_groups("age", ["young", "", "old"], AGE_BOUNDS, nowhere).classes == ("old", "young")


def test_names_of_the_groups_asked_for_keep_their_order() -> None:
    attribute = age_groups("age", ["56+", "<18", "", "18-24"], AGE_BOUNDS, nowhere)
    assert attribute.classes == ("<18", "18-24", "56+")
    assert attribute.labels.tolist() == [2, 0, MISSING, 1]


@pytest.mark.parametrize("bad", ["-3", "x", "inf", "nan years"])
def test_an_age_that_is_none_among_numbers_is_told_with_its_place(bad: str) -> None:
    with pytest.raises(
        DataError, match=rf"people\.csv:4: age is '{bad}', not an age in years; leave unknown ages empty"
    ):
        user_attributes(table(age=["20", "", bad]), AGE_BOUNDS)


def test_columns_that_name_single_users_are_left_out_unless_asked_for() -> None:
    people = table(zip_code=["1", "2", "3", "4", "4", ""], gender=["F", "M", "M", "F", "F", "F"])
    assert list(user_attributes(people, AGE_BOUNDS)) == ["gender"]
    assert list(user_attributes(people, AGE_BOUNDS, asked_for=("zip_code",))) == ["zip_code", "gender"]


def test_a_column_with_as_many_classes_as_half_the_users_is_kept() -> None:
    assert "job" in user_attributes(table(job=["a", "a", "b", "b", "c", "c"]), AGE_BOUNDS)


def test_two_classes_are_kept_even_for_two_users() -> None:
    assert "gender" in user_attributes(table(gender=["F", "M"]), AGE_BOUNDS)


def test_a_column_that_is_the_same_for_all_is_left_out_unless_asked_for() -> None:
    assert user_attributes(table(country=["x", "x", ""]), AGE_BOUNDS) == {}
    assert "country" in user_attributes(table(country=["x", "x", ""]), AGE_BOUNDS, asked_for=("country",))


def test_a_column_without_any_value_is_no_attribute_even_if_asked_for() -> None:
    assert user_attributes(table(country=["", ""]), AGE_BOUNDS, asked_for=("country",)) == {}


def test_classes_without_users_go_and_the_others_keep_their_order() -> None:
    attribute = present_classes(Attribute("job", ("a", "b", "c", "d"), np.array([3, MISSING, 1, 3])))
    assert attribute.classes == ("b", "d")
    assert attribute.labels.tolist() == [1, MISSING, 0, 1]


def test_movielens_1m_bounds_may_join_its_groups_but_not_cut_them() -> None:
    check_movielens_1m_bounds((25, 50))
    with pytest.raises(DataError, match=r"data\.age_bounds: .* choose among these, not 25, 40"):
        check_movielens_1m_bounds((25, 40))


@pytest.mark.parametrize("cell", ["", " ", "nan", "NaN", "None", "?"])
def test_cells_that_say_unknown_are_missing_but_the_word_none_is_a_class(cell: str) -> None:
    rows = [(2, ["a", cell]), (3, ["b", "none"])]
    known = side_table(FILE, rows, ("user", "job"), "user", np.array(["b", "a"]))
    assert known.columns["job"] == ["none", ""]
    assert known.lines == [3, 2]


def test_cells_that_say_unknown_can_be_chosen() -> None:
    known = side_table(FILE, [(1, ["a", "-"])], ("user", "job"), "user", np.array(["a"]), missing=frozenset({"-"}))
    assert known.columns["job"] == [""]


def test_item_values_are_sorted_without_repetitions() -> None:
    feature = item_feature("genre", [["b", "a", "b"], [], ["c", ""]])
    assert (feature.values, feature.indptr.tolist(), feature.indices.tolist()) == (
        ("a", "b", "c"),
        [0, 2, 2, 3],
        [0, 1, 2],
    )


@pytest.mark.parametrize(
    ("title", "year"), [("Heat (1995)", "1995"), ("2001 (1968) ", "1968"), ("1984", ""), ("(1999) x", "")]
)
def test_the_year_ends_a_title(title: str, year: str) -> None:
    assert year_of_title(title) == year
