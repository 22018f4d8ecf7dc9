"""Attributes of users: what an attacker may want to infer, as class labels with unknown values masked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from fedrec_unlearn.config import AGE_BOUNDS
from fedrec_unlearn.data.side_table import SideTable
from fedrec_unlearn.data.types import MISSING, Attribute
from fedrec_unlearn.errors import DataError


def natural_order(names: set[str]) -> list[str]:
    """Class names in a reader's order: whole numbers by value, anything else as text."""
    if all(name.isascii() and name.isdigit() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def categorical(name: str, texts: Sequence[str]) -> Attribute:
    """An attribute whose classes are the texts that occur, sorted.

    Args:
        name: of the attribute.
        texts: one for each user; empty where not known.
    """
    classes = natural_order({text for text in texts if text})
    label = {text: k for k, text in enumerate(classes)} | {"": MISSING}
    return Attribute(name, tuple(classes), np.array([label[text] for text in texts], dtype=np.int64))


def age_group_names(bounds: Sequence[int]) -> tuple[str, ...]:
    """Names such as ``<18``, ``18-24``, ``56+``; a group of one year is its number.

    Args:
        bounds: lower bounds of the groups after the first, ascending, at least one.
    """
    between = (str(low) if low + 1 == high else f"{low}-{high - 1}" for low, high in pairwise(bounds))
    return (f"<{bounds[0]}", *between, f"{bounds[-1]}+")


def age_groups(name: str, texts: Sequence[str], bounds: Sequence[int], where: Callable[[int], str]) -> Attribute:
    """Ages in years as groups; MovieLens 1M's codes are lower bounds of its groups and fit as they are.

    A column that holds no number at all (``young``, ``18-24``) is taken to be grouped already; names of the groups
    asked for keep their order.

    Args:
        name: of the attribute.
        texts: one age for each user; empty where not known.
        bounds: lower bounds of the groups after the first, ascending.
        where: location of a user's row, for messages.

    Returns:
        The groups that occur, youngest first.

    Raises:
        DataError: an age is negative, or is no number although others are.
    """
    names = age_group_names(bounds)
    if set(texts) <= {"", *names}:
        label = {text: k for k, text in enumerate(names)} | {"": MISSING}
        return present_classes(Attribute(name, names, np.array([label[text] for text in texts], dtype=np.int64)))
    ages = np.array([_years(text) for text in texts], dtype=np.float64)
    known = np.array([text != "" for text in texts], dtype=np.bool_)
    if not np.isfinite(ages).any():
        return categorical(name, texts)
    for user in np.flatnonzero(known & ~(ages >= 0)).tolist():
        raise DataError(f"{where(user)}: {name} is {texts[user]!r}, not an age in years; leave unknown ages empty")
    labels = np.where(known, np.searchsorted(np.asarray(bounds), ages, side="right"), MISSING).astype(np.int64)
    return present_classes(Attribute(name, names, labels))


def check_movielens_1m_bounds(bounds: Sequence[int]) -> None:
    """Raise `DataError` for age groups that MovieLens 1M's own groups do not tell apart."""
    if not set(bounds) <= set(AGE_BOUNDS):
        raise DataError(
            f"data.age_bounds: MovieLens 1M tells ages as groups only, which begin at "
            f"{', '.join(map(str, AGE_BOUNDS))}; choose among these, not {', '.join(map(str, bounds))}"
        )


def _years(text: str) -> float:
    try:
        years = float(text)
    except ValueError:
        return math.nan
    return years if math.isfinite(years) else math.nan


def present_classes(attribute: Attribute) -> Attribute:
    """The attribute without the classes that no user has, the others in their order."""
    present = np.unique(attribute.labels[attribute.labels != MISSING])
    relabel = np.full(len(attribute.classes) + 1, MISSING, dtype=np.int64)  # its last entry serves MISSING = -1
    relabel[present] = np.arange(len(present))
    return Attribute(attribute.name, tuple(attribute.classes[k] for k in present), relabel[attribute.labels])


def is_worth_inferring(attribute: Attribute) -> bool:
    """Whether an attribute has two classes or more, and they are groups of users rather than names of single ones.

    With more than two classes, more classes than half the users whose value is known are taken for identifiers
    (e-mail, zip code).
    """
    known = int(np.count_nonzero(attribute.labels != MISSING))
    return len(attribute.classes) == 2 or 2 < len(attribute.classes) <= known / 2


def user_attributes(
    table: SideTable, age_bounds: Sequence[int], asked_for: Sequence[str] = (), age_column: str = "age"
) -> dict[str, Attribute]:
    """The categorical attributes a user table holds.

    Args:
        table: text columns aligned with the users.
        age_bounds: lower bounds of the age groups after the first.
        asked_for: columns to keep even if they look like identifiers or are the same for all users.
        age_column: the column with ages in years.

    Raises:
        DataError: an age is not a number of years; names file and line.
    """
    found = {}
    for name, texts in table.columns.items():
        is_age = name == age_column
        attribute = age_groups(name, texts, age_bounds, table.at) if is_age else categorical(name, texts)
        if is_worth_inferring(attribute) or (name in asked_for and attribute.classes):
            found[name] = attribute
    return found
