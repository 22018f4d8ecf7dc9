"""From interactions to train, validation and test items of each user.

`ratio` and `leave_one_out` follow RecBole 1.2.1 (its ``RS`` and ``LS`` strategies grouped by user), down to the
permutation drawn for a seed, so that numbers can be set beside numbers measured with RecBole. Two deliberate
differences: timestamps are compared as they are (RecBole first rounds them to float32, for ml-100k after scaling
them to [0, 1], and what falls together by that keeps file order there), and `leave_one_out` leaves users with
fewer than three interactions entirely in train (RecBole takes a test item from users with two).

A user without a single train item stays in the user numbering, but takes no part: nothing can be learnt about
such a user, so the validation and test items are left out as well. This happens under `global_time` (users who
arrive after the first cut) and with files that come already split.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.config import SplitConfig
from fedrec_unlearn.data.types import Dataset, FloatArray, IntArray, Split, UserItems
from fedrec_unlearn.errors import DataError
from fedrec_unlearn.seeds import Purpose, generator

Parts = NDArray[np.int8]
"""Shape (n,): part of each interaction, one of `TRAIN`, `VALID`, `TEST`, `LEFT_OUT`."""

TRAIN, VALID, TEST, LEFT_OUT = 0, 1, 2, 3

_NO_ORDER = (
    "use split.method ratio or leave_one_out with split.order random, or files with a timestamp for every interaction"
)


def make_split(dataset: Dataset, config: SplitConfig) -> Split:
    """Divide the interactions of a data set as `config` asks.

    Args:
        dataset: interactions; pairs of user and item distinct.
        config: method, ratios, order and seed.

    Returns:
        Train, validation and test items per user, disjoint, with the ratings where the data set has them.
        Together they hold every interaction of every user who has a train item.

    Raises:
        DataError: no interactions; the method needs timestamps or a split of the files that are not there; the
            train or test part, or a validation part that was asked for, would be empty.
    """
    part = assign_parts(dataset, config)
    return Split(*(_user_items(dataset, part == which) for which in (TRAIN, VALID, TEST)))


def assign_parts(dataset: Dataset, config: SplitConfig) -> Parts:
    """The part each interaction falls into, in file order; `make_split` without the grouping by user.

    Args:
        dataset: interactions.
        config: method, ratios, order and seed.

    Returns:
        int8 array of shape (n,) with values 0 (train), 1 (validation), 2 (test) and 3 (left out, because the
        user has no train item).

    Raises:
        DataError: see `make_split`.
    """
    if dataset.n_interactions == 0:
        raise DataError(f"{dataset.name}: there are no interactions to split")
    methods: dict[str, Callable[[Dataset, SplitConfig], Parts]] = {
        "ratio": _ratio,
        "leave_one_out": _leave_one_out,
        "global_time": _global_time,
        "given": _given,
    }
    part = methods[config.method](dataset, config)
    trained = np.zeros(dataset.n_users, dtype=bool)
    trained[dataset.user[part == TRAIN]] = True
    part[~trained[dataset.user]] = LEFT_OUT
    _refuse_empty_parts(dataset, config, part)
    return part


def random_order(n: int, seed: int) -> IntArray:
    """The permutation RecBole shuffles n interactions with when its ``seed`` is this one.

    RecBole seeds torch's global generator and its first draw from it is this permutation; the same numbers come
    from a generator of our own, and the global one is left alone.

    Args:
        n: number of interactions.
        seed: any integer torch accepts as a seed.

    Returns:
        Shape (n,): entry k is the row that comes k-th after shuffling.
    """
    import torch

    own = torch.Generator().manual_seed(seed)
    permutation: IntArray = torch.randperm(n, generator=own).numpy()
    return permutation


def part_sizes(counts: IntArray, ratios: tuple[float, ...]) -> IntArray:
    """How many interactions of a user go into each part, by RecBole's rule.

    Every part but the first is rounded down and the first takes the rest; then, from the last part backwards, a
    part whose share is below one interaction gets one if the first part still has two.

    Args:
        counts: shape (n_users,), interactions of each user.
        ratios: share of each part, the first one that of train.

    Returns:
        Shape (n_users, len(ratios)); rows add up to `counts`; the first column is at least 1 where `counts` is.

    Source: RecBole 1.2.1, `recbole.data.dataset.Dataset._calcu_split_ids`.
    """
    total = sum(ratios)
    shares = np.array([ratio / total for ratio in ratios])
    # truncation of a float64 product, as RecBole's int(ratio * total): 0.1 * 30 must not be rounded differently
    wanted = shares[None, :] * counts[:, None]
    sizes = wanted.astype(np.int64)
    sizes[:, 0] = counts - sizes[:, 1:].sum(axis=1)
    for column in range(len(ratios) - 1, 0, -1):
        lift = (sizes[:, 0] > 1) & (wanted[:, column] > 0) & (wanted[:, column] < 1)
        sizes[lift, column] += 1
        sizes[lift, 0] -= 1
    return sizes


def _grouped(dataset: Dataset, order: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Rows sorted by user, within a user as in `order`; their position within the user; the users' counts."""
    rows = order[np.argsort(dataset.user[order], kind="stable")]
    counts = np.bincount(dataset.user, minlength=dataset.n_users).astype(np.int64)
    starts = np.cumsum(counts) - counts
    position = np.arange(len(rows), dtype=np.int64) - starts[dataset.user[rows]]
    return rows, position, counts


def _ratio(dataset: Dataset, config: SplitConfig) -> Parts:
    if config.order == "time":
        order = np.argsort(_known_times(dataset, "split.order time"), kind="stable").astype(np.int64)
    else:
        order = random_order(dataset.n_interactions, config.seed)
    rows, position, counts = _grouped(dataset, order)
    return _cut(dataset, rows, position, part_sizes(counts, config.ratios))


def _cut(dataset: Dataset, rows: IntArray, position: IntArray, sizes: IntArray) -> Parts:
    """The first sizes[u, 0] rows of user u into part 0, the next sizes[u, 1] into part 1, and so on."""
    ends = np.cumsum(sizes, axis=1)[dataset.user[rows]]
    part = np.empty(len(rows), dtype=np.int8)
    part[rows] = (position[:, None] >= ends[:, :-1]).sum(axis=1)
    return part


def _leave_one_out(dataset: Dataset, config: SplitConfig) -> Parts:
    if config.order == "random":
        order = random_order(dataset.n_interactions, config.seed)
    else:
        if dataset.timestamp is None:
            raise DataError(f"{dataset.name}: split.order time needs timestamps, the files have none; {_NO_ORDER}")
        # NaN goes to the front, so that a user's last row is the latest of the known ones
        order = np.argsort(np.nan_to_num(dataset.timestamp, nan=-np.inf), kind="stable").astype(np.int64)
    rows, position, counts = _grouped(dataset, order)
    from_end = counts[dataset.user[rows]] - position
    large = counts[dataset.user[rows]] >= 3
    part = np.zeros(len(rows), dtype=np.int8)
    part[rows[large & (from_end == 1)]] = TEST
    part[rows[large & (from_end == 2)]] = VALID
    if config.order == "time":
        _draw_validation_where_times_are_missing(dataset, config.seed, part)
    return part


def _draw_validation_where_times_are_missing(dataset: Dataset, seed: int, part: Parts) -> None:
    """Replace the validation item of users with some unknown times by a random one, in place.

    The latest of the known times still decides the test item (as in the leave-one-out files of He et al. 2017);
    which item came before it cannot be told, so it is drawn from `generator(seed, Purpose.SPLIT, user)` among
    the user's other rows in file order.
    """
    assert dataset.timestamp is not None
    unknown = np.isnan(dataset.timestamp)
    if not unknown.any():
        return
    held_out = part == TEST
    dark = np.unique(dataset.user[held_out & unknown])
    if len(dark):
        raise DataError(
            f"{dataset.name}: split.order time, but {len(dark)} users have no interaction with a known timestamp "
            f"(the first is {dataset.user_tokens[dark[0]]}); {_NO_ORDER}"
        )
    affected = np.intersect1d(dataset.user[unknown], dataset.user[held_out])
    rows, _, counts = _grouped(dataset, np.arange(dataset.n_interactions, dtype=np.int64))
    starts = np.cumsum(counts) - counts
    for user in affected.tolist():
        own = rows[starts[user] : starts[user] + counts[user]]
        rest = own[part[own] != TEST]
        part[rest] = TRAIN
        part[rest[generator(seed, Purpose.SPLIT, user).integers(len(rest))]] = VALID


def _global_time(dataset: Dataset, config: SplitConfig) -> Parts:
    times = _known_times(dataset, "split.method global_time")
    ascending = np.sort(times)
    n = len(times)
    part = np.zeros(n, dtype=np.int8)
    # A cut is a point in time: interactions of the same second never fall on both sides of it.
    for which, share in ((VALID, config.ratios[0]), (TEST, config.ratios[0] + config.ratios[1])):
        first = round(share * n)
        if first < n:
            part[times >= ascending[first]] = which
    return part


def _given(dataset: Dataset, config: SplitConfig) -> Parts:
    if dataset.given_part is None:
        raise DataError(
            f"{dataset.name}: split.method given, but the files do not come already split; "
            "use split.method ratio, leave_one_out or global_time"
        )
    part: Parts = dataset.given_part.astype(np.int8)
    if part.min() < TRAIN or part.max() > TEST:
        raise DataError(f"{dataset.name}: given_part must hold 0 (train), 1 (validation) or 2 (test)")
    if np.any(part == VALID) or config.ratios[1] == 0:
        return part
    train = np.flatnonzero(part == TRAIN)
    order = random_order(dataset.n_interactions, config.seed)
    order = order[part[order] == TRAIN]
    rows = order[np.argsort(dataset.user[order], kind="stable")]
    counts = np.bincount(dataset.user[train], minlength=dataset.n_users).astype(np.int64)
    position = np.arange(len(rows), dtype=np.int64) - (np.cumsum(counts) - counts)[dataset.user[rows]]
    kept = part_sizes(counts, config.ratios[:2])[:, 0]
    part[rows[position >= kept[dataset.user[rows]]]] = VALID
    return part


def _known_times(dataset: Dataset, option: str) -> FloatArray:
    if dataset.timestamp is None:
        raise DataError(f"{dataset.name}: {option} needs timestamps, the files have none; {_NO_ORDER}")
    missing = int(np.isnan(dataset.timestamp).sum())
    if missing:
        raise DataError(
            f"{dataset.name}: {option} needs every timestamp, {missing} of {dataset.n_interactions} are unknown; "
            f"{_NO_ORDER}, or split.method leave_one_out, which needs only each user's latest one"
        )
    return dataset.timestamp


def _refuse_empty_parts(dataset: Dataset, config: SplitConfig, part: Parts) -> None:
    sizes = np.bincount(part, minlength=4)
    wanted = [(TRAIN, "train"), (TEST, "test")]
    if config.method == "leave_one_out" or config.ratios[1] > 0:
        wanted.append((VALID, "validation"))
    for which, name in wanted:
        if sizes[which] == 0:
            raise DataError(
                f"{dataset.name}: the {name} part of the split is empty ({dataset.n_interactions} interactions of "
                f"{dataset.n_users} users: {sizes[TRAIN]} train, {sizes[VALID]} validation, {sizes[TEST]} test, "
                f"{sizes[LEFT_OUT]} left out for want of train items); {_remedy(config)}"
            )


def _remedy(config: SplitConfig) -> str:
    if config.method == "leave_one_out":
        return "leave_one_out needs users with at least 3 interactions: use split.method ratio or more data"
    if config.method == "given":
        return "give a file for this part, or use split.method ratio to divide all interactions anew"
    if config.method == "global_time":
        return "choose other split.ratios, or split.method ratio, which gives every user a share of each part"
    return "raise this part's share in split.ratios, or take users with more interactions"


def _user_items(dataset: Dataset, chosen: NDArray[np.bool_]) -> UserItems:
    rating = None if dataset.rating is None else dataset.rating[chosen]
    return UserItems.from_pairs(dataset.user[chosen], dataset.item[chosen], dataset.n_users, dataset.n_items, rating)
