import importlib.util
import os
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedrec_unlearn.config import SplitConfig
from fedrec_unlearn.data.splits import assign_parts, make_split, part_sizes, random_order
from fedrec_unlearn.data.types import Dataset
from fedrec_unlearn.errors import DataError
from fedrec_unlearn.seeds import Purpose, generator

torch.set_num_threads(1)


def dataset_of(user, item=None, timestamp=None, given_part=None, rating=None) -> Dataset:
    user = np.asarray(user, dtype=np.int64)
    item = np.arange(len(user), dtype=np.int64) if item is None else np.asarray(item, dtype=np.int64)
    n_users = int(user.max()) + 1 if len(user) else 0
    n_items = int(item.max()) + 1 if len(item) else 0
    return Dataset(
        name="made-up",
        user_tokens=np.array([f"u{k}" for k in range(n_users)]),
        item_tokens=np.array([f"i{k}" for k in range(n_items)]),
        user=user,
        item=item,
        rating=None if rating is None else np.asarray(rating, dtype=np.float64),
        timestamp=None if timestamp is None else np.asarray(timestamp, dtype=np.float64),
        given_part=None if given_part is None else np.asarray(given_part, dtype=np.int8),
    )


def parts_of(data: Dataset, **options) -> list[int]:
    return assign_parts(data, SplitConfig(**options)).tolist()


# ---------------------------------------------------------------- RecBole itself


def read_atomic_interactions(path: Path) -> Dataset:
    """An independent few-line reader: the tests of splits must not lean on the package's readers."""
    rows = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    user = [users.setdefault(row[0], len(users)) for row in rows]
    item = [items.setdefault(row[1], len(items)) for row in rows]
    return Dataset(
        "ml-100k",
        np.array(list(users)),
        np.array(list(items)),
        np.array(user, dtype=np.int64),
        np.array(item, dtype=np.int64),
        timestamp=np.array([float(row[3]) for row in rows]),
    )


def recbole_parts(monkeypatch, tmp_path, order: str, split: dict, seed: int) -> list[set[tuple[str, str]]]:
    """(user, item) tokens of the parts RecBole makes of its ml-100k, with the cures its 1.2.1 needs today."""
    monkeypatch.setattr(np, "float", np.float64, raising=False)
    monkeypatch.setattr(np, "int", np.int64, raising=False)
    try:
        from recbole.config import Config
        from recbole.data.dataset import Dataset as RecBoleDataset
        from recbole.utils import init_seed
    except Exception as error:  # whatever breaks its import is the reason to skip
        pytest.skip(f"recbole cannot be imported here: {error!r}")
    monkeypatch.setattr(Config, "compatibility_settings", lambda self: None)
    monkeypatch.setattr(Config, "_load_cmd_line", lambda self: {})
    monkeypatch.chdir(tmp_path)
    options = {
        "eval_args": {"order": order, "split": split, "group_by": "user", "mode": "full"},
        "load_col": {"inter": ["user_id", "item_id", "rating", "timestamp"]},
    }
    state = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = Config(model="BPR", dataset="ml-100k", config_dict=options)
        init_seed(seed, True)
        loaded = RecBoleDataset(config)
        built = loaded.build()
    torch.set_rng_state(state)
    return [
        set(
            zip(
                loaded.id2token("user_id", part.inter_feat["user_id"].numpy()).tolist(),
                loaded.id2token("item_id", part.inter_feat["item_id"].numpy()).tolist(),
                strict=True,
            )
        )
        for part in built
    ]


@pytest.fixture(scope="module")
def ml_100k() -> Dataset:
    spec = importlib.util.find_spec("recbole")
    if spec is None or spec.origin is None:
        pytest.skip("recbole, whose wheel carries ml-100k, is not installed")
    return read_atomic_interactions(Path(spec.origin).parent / "dataset_example" / "ml-100k" / "ml-100k.inter")


def tokens_by_part(data: Dataset, part: np.ndarray) -> list[set[tuple[str, str]]]:
    return [
        set(zip(data.user_tokens[data.user[part == p]], data.item_tokens[data.item[part == p]], strict=True))
        for p in range(3)
    ]


@pytest.mark.parametrize(
    ("order", "recbole_order", "method", "recbole_split", "seed"),
    [
        ("random", "RO", "ratio", {"RS": [0.8, 0.1, 0.1]}, 2020),
        ("random", "RO", "ratio", {"RS": [0.7, 0.1, 0.2]}, 7),
        ("random", "RO", "leave_one_out", {"LS": "valid_and_test"}, 2020),
        ("time", "TO", "ratio", {"RS": [0.8, 0.1, 0.1]}, 2020),
        ("time", "TO", "leave_one_out", {"LS": "valid_and_test"}, 2020),
    ],
)
def test_equals_the_split_recbole_makes_of_ml_100k(
    monkeypatch, tmp_path, ml_100k, order, recbole_order, method, recbole_split, seed
):
    theirs = recbole_parts(monkeypatch, tmp_path, recbole_order, recbole_split, seed)
    data = ml_100k
    if order == "time":
        exact = data.timestamp
        # RecBole scales ml-100k's timestamps to [0, 1] and holds them as float32, which makes ties of some neighbouring
        # seconds; with the same rounding the two must agree to the last interaction
        scaled = (exact - exact.min()) / (exact.max() - exact.min())
        data = replace(data, timestamp=scaled.astype(np.float32).astype(np.float64))
    ratios = tuple(recbole_split.get("RS", (0.8, 0.1, 0.1)))
    part = assign_parts(data, SplitConfig(method=method, order=order, ratios=ratios, seed=seed))
    assert tokens_by_part(data, part) == theirs
    unrounded = assign_parts(ml_100k, SplitConfig(method=method, order=order, ratios=ratios, seed=seed))
    assert np.sum(unrounded != part) <= (0 if order == "random" else 20)


def test_order_time_compares_timestamps_to_the_second():
    # 881250949 and 881250951 are one number in float32
    data = dataset_of([0] * 3, timestamp=[881250951.0, 881250949.0, 881250000.0])
    assert np.float32(881250951) == np.float32(881250949)
    assert parts_of(data, method="leave_one_out", order="time") == [2, 1, 0]


# ---------------------------------------------------------------- laws


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4000), st.integers(0, 2**40))
def test_random_order_equals_torchs_global_permutation_and_leaves_it_alone(n, seed):
    state = torch.get_rng_state()
    ours = random_order(n, seed)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(seed)
    assert torch.randperm(n).tolist() == ours.tolist()
    torch.set_rng_state(state)


def recbole_sizes(total: int, ratios: list[float]) -> list[int]:
    """RecBole's rule for one user, in its loop form."""
    ratios = [ratio / sum(ratios) for ratio in ratios]
    count = [int(ratio * total) for ratio in ratios]
    count[0] = total - sum(count[1:])
    for back in range(1, len(ratios)):
        if count[0] <= 1:
            break
        if 0 < ratios[-back] * total < 1:
            count[-back] += 1
            count[0] -= 1
    return count


RATIOS = st.sampled_from([(0.8, 0.1, 0.1), (0.7, 0.1, 0.2), (0.5, 0.25, 0.25), (0.9, 0.0, 0.1), (0.34, 0.33, 0.33)])


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=20), RATIOS)
def test_part_sizes_follow_recboles_loop(counts, ratios):
    sizes = part_sizes(np.array(counts), ratios)
    assert sizes.tolist() == [recbole_sizes(count, list(ratios)) for count in counts]


@st.composite
def datasets(draw):
    counts = draw(st.lists(st.integers(1, 25), min_size=2, max_size=12))
    user = np.repeat(np.arange(len(counts)), counts)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rng.shuffle(user)
    order = np.argsort(user, kind="stable")
    item = np.empty(len(user), dtype=np.int64)
    for k in range(len(counts)):
        own = order[user[order] == k]
        item[own] = rng.choice(30, size=len(own), replace=False)
    return dataset_of(user, item, timestamp=rng.integers(0, 20, len(user)), rating=rng.integers(1, 6, len(user)))


@settings(max_examples=80, deadline=None)
@given(
    datasets(),
    st.sampled_from(["ratio", "leave_one_out", "global_time"]),
    st.sampled_from(["random", "time"]),
    st.integers(0, 99),
)
def test_parts_are_disjoint_and_hold_everything_of_users_with_a_train_item(data, method, order, seed):
    config = SplitConfig(method=method, order=order, seed=seed, ratios=(0.6, 0.2, 0.2))
    try:
        split = make_split(data, config)
    except DataError as error:
        assert "is empty" in str(error)  # noqa: PT017
        return
    rating = {(u, i): r for u, i, r in zip(data.user, data.item, data.rating, strict=True)}
    for user in range(data.n_users):
        own = [set(part.of(user).tolist()) for part in (split.train, split.valid, split.test)]
        everything = set(data.item[data.user == user].tolist())
        assert sum(map(len, own)) == len(own[0] | own[1] | own[2])
        assert own[0] | own[1] | own[2] == (everything if own[0] else set())
        if method == "ratio":
            assert [len(items) for items in own] == recbole_sizes(len(everything), [0.6, 0.2, 0.2])
        if method == "leave_one_out":
            held = 1 if len(everything) >= 3 else 0
            assert [len(own[1]), len(own[2])] == [held, held]
        for part in (split.train, split.valid, split.test):
            low, high = part.indptr[user], part.indptr[user + 1]
            expected = [rating[user, i] for i in part.of(user).tolist()]
            assert part.ratings[low:high].tolist() == expected


@settings(max_examples=40, deadline=None)
@given(datasets(), st.integers(0, 99))
def test_ratio_by_time_puts_no_user_s_test_item_before_a_train_item(data, seed):
    try:
        part = assign_parts(data, SplitConfig(order="time", seed=seed, ratios=(0.5, 0.25, 0.25)))
    except DataError:
        assume(False)
    for user in range(data.n_users):
        own = data.user == user
        for earlier, later in ((0, 1), (0, 2), (1, 2)):
            before, after = data.timestamp[own & (part == earlier)], data.timestamp[own & (part == later)]
            assert not len(before) or not len(after) or before.max() <= after.min()


# ---------------------------------------------------------------- hand-worked cases


def test_leave_one_out_takes_the_latest_and_prefers_the_later_line_on_ties():
    data = dataset_of([0, 0, 0, 0, 1, 1, 2], timestamp=[5, 9, 9, 1, 3, 4, 8])
    assert parts_of(data, method="leave_one_out", order="time") == [0, 1, 2, 0, 0, 0, 0]


def test_leave_one_out_draws_validation_from_its_own_stream_where_times_are_missing():
    nan = float("nan")
    data = dataset_of([0] * 6 + [1] * 3, timestamp=[nan, 4, nan, 9, nan, 2, 1, 2, 3])
    seen = set()
    for seed in range(40):
        part = parts_of(data, method="leave_one_out", order="time", seed=seed)
        assert part[3] == 2
        assert part[6:] == [0, 1, 2]
        expected = [0, 1, 2, 4, 5][generator(seed, Purpose.SPLIT, 0).integers(5)]
        assert [k for k in range(6) if part[k] == 1] == [expected]
        seen.add(expected)
    assert seen == {0, 1, 2, 4, 5}


def test_global_time_cuts_between_two_seconds():
    data = dataset_of([0, 1] * 5, timestamp=[0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    assert parts_of(data, method="global_time", ratios=(0.6, 0.2, 0.2)) == [0] * 6 + [1] * 2 + [2] * 2
    # a cut that falls into a second takes the whole second along
    assert parts_of(data, method="global_time", ratios=(0.5, 0.2, 0.3)) == [0] * 4 + [1] * 2 + [2] * 4


def test_users_who_arrive_after_the_first_cut_take_no_part():
    data = dataset_of([0, 0, 0, 0, 0, 0, 1, 1, 0, 0], timestamp=range(10))
    part = parts_of(data, method="global_time", ratios=(0.5, 0.1, 0.4))
    assert part == [0, 0, 0, 0, 0, 1, 3, 3, 2, 2]
    made = make_split(data, SplitConfig(method="global_time", ratios=(0.5, 0.1, 0.4)))
    assert made.train.n_users == 2
    assert [made.train.counts[1], made.valid.counts[1], made.test.counts[1]] == [0, 0, 0]


def test_given_split_is_kept_as_it_is():
    given_part = [0, 0, 1, 2, 0, 2]
    assert parts_of(dataset_of([0, 0, 0, 0, 1, 1], given_part=given_part), method="given") == given_part


def test_given_split_without_validation_holds_out_a_share_of_train():
    counts = np.array([1, 2, 8, 80])
    user = np.concatenate([np.repeat(np.arange(4), counts), np.arange(4)])
    given_part = np.concatenate([np.zeros(counts.sum(), dtype=int), np.full(4, 2)])
    data = dataset_of(user, given_part=given_part)
    part = np.array(parts_of(data, method="given", ratios=(0.7, 0.1, 0.2)))
    assert np.array_equal(part == 2, given_part == 2)
    # 1/8 of the train part: none of one, one of two (below one, lifted), one of eight, ten of eighty
    assert np.bincount(user[part == 1], minlength=4).tolist() == [0, 1, 1, 10]
    other = np.array(parts_of(data, method="given", ratios=(0.7, 0.1, 0.2), seed=1))
    assert np.any(other != part)
    without = parts_of(data, method="given", ratios=(0.8, 0.0, 0.2))
    assert without == given_part.tolist()


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (dataset_of([]), {}, "no interactions"),
        (dataset_of([0] * 5), {"order": "time"}, "timestamps"),
        (dataset_of([0] * 5), {"method": "leave_one_out", "order": "time"}, "timestamps"),
        (dataset_of([0] * 5), {"method": "global_time"}, "timestamps"),
        (dataset_of([0] * 3, timestamp=[1, 2, np.nan]), {"method": "global_time"}, "1 of 3 are unknown"),
        (dataset_of([0] * 3, timestamp=[1, 2, np.nan]), {"order": "time"}, "leave_one_out"),
        (dataset_of([0] * 3, timestamp=[np.nan] * 3), {"method": "leave_one_out", "order": "time"}, "is u0"),
        (dataset_of([0] * 5), {"method": "given"}, "already split"),
        (dataset_of([0] * 3, given_part=[0, 0, 5]), {"method": "given"}, "given_part"),
        (dataset_of([0] * 3, given_part=[0, 0, 1]), {"method": "given"}, "test part of the split is empty"),
        (dataset_of([0, 1, 2]), {}, "test part of the split is empty"),
        (dataset_of([0, 0, 1, 1]), {"method": "leave_one_out"}, "at least 3 interactions"),
        (dataset_of([0] * 4, timestamp=[7] * 4), {"method": "global_time"}, "train part of the split is empty"),
        (dataset_of([0] * 9), {"ratios": (0.9, 0.1, 0.0)}, "split.ratios"),
    ],
)
def test_what_cannot_be_split_is_refused_with_a_remedy(data, options, words):
    with pytest.raises(DataError, match=words):
        make_split(data, SplitConfig(**options))


def test_leave_one_out_of_ml_1m_takes_the_test_items_published_with_ncf():
    folder = Path(os.environ.get("FEDREC_DATA", "/nonexistent")) / "ml-1m"
    if not (folder / "timestamps_partial.csv.gz").exists():
        pytest.skip("FEDREC_DATA holds no ml-1m/timestamps_partial.csv.gz")
    triples = np.loadtxt(folder / "ratings_no_timestamp.dat.gz", delimiter=":", usecols=(0, 2), dtype=np.int64)
    known = np.loadtxt(folder / "timestamps_partial.csv.gz", delimiter=",", skiprows=1, dtype=np.int64)
    timestamp = np.full(len(triples), np.nan)
    timestamp[known[:, 0] - 1] = known[:, 1]
    items = {movie: number for number, movie in enumerate(dict.fromkeys(triples[:, 1].tolist()))}
    item = np.array([items[movie] for movie in triples[:, 1].tolist()])
    data = dataset_of(triples[:, 0] - 1, item, timestamp)
    split = make_split(data, SplitConfig(method="leave_one_out", order="time"))
    published = np.loadtxt(folder / "ncf.ml-1m.test.rating", dtype=np.int64)
    assert split.test.counts.tolist() == [1] * 6040
    agree = split.test.items[published[:, 0]] == published[:, 1]
    stamp = {(u, i): t for u, i, t in zip(data.user, data.item, timestamp, strict=True)}
    for user, theirs, ours in zip(published[:, 0], published[:, 1], split.test.items, strict=True):
        assert stamp[user, theirs] == stamp[user, ours]
    assert agree.mean() > 0.5
