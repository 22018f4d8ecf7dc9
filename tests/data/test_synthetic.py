import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from fedrec_unlearn.config import DataConfig
from fedrec_unlearn.data.load import load_dataset
from fedrec_unlearn.data.synthetic import SyntheticConfig, generate, packaged_files, plant, write_atomic
from fedrec_unlearn.data.types import MISSING, Attribute, Dataset, ItemFeature
from fedrec_unlearn.errors import DataError

PHI = NormalDist().cdf
FILES = ("synthetic.inter", "synthetic.user", "synthetic.item")


def recall_mean(predicted: np.ndarray, actual: np.ndarray) -> float:
    return float(np.mean([np.mean(predicted[actual == k] == k) for k in np.unique(actual)]))


def cross_validated(features: np.ndarray, labels: np.ndarray) -> float:
    """Balanced accuracy of a logistic attacker over 5 folds, mean of 3 assignments to folds."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    known = labels != MISSING
    x, y = features[known], labels[known]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    model = LogisticRegression(class_weight="balanced")
    folds = (StratifiedKFold(5, shuffle=True, random_state=seed) for seed in range(3))
    return float(np.mean([recall_mean(cross_val_predict(model, x, y, cv=fold), y) for fold in folds]))


# ---------------------------------------------------------------- what is planted


@pytest.mark.parametrize("strength", [0.0, 1.0, 3.0])
def test_the_best_attacker_of_the_true_vectors_reaches_what_is_promised(strength):
    truth = plant(SyntheticConfig(users=20_000, items=10, gender_strength=strength, age_strength=strength))
    half = strength / 2
    gender = (truth.user_vectors[:, 0] > 0).astype(int)
    age = np.digitize(truth.user_vectors[:, 1], [-half, half])
    if strength == 0:
        age = np.digitize(truth.user_vectors[:, 1], [-0.43, 0.43])
    # 20,000 users, of whom 5,000 to 6,000 in the smallest class: a standard error of at most 0.004
    assert recall_mean(gender, truth.labels["gender"]) == pytest.approx(PHI(half), abs=0.015)
    assert recall_mean(age, truth.labels["age"]) == pytest.approx((4 * PHI(half) - 1) / 3, abs=0.015)


def test_no_trained_attacker_beats_the_promise_and_a_good_one_comes_close():
    truth = plant(SyntheticConfig(users=6000, items=10))
    assert cross_validated(truth.user_vectors, truth.labels["gender"]) == pytest.approx(PHI(1.5), abs=0.015)
    assert cross_validated(truth.user_vectors, truth.labels["noise"]) == pytest.approx(0.5, abs=0.03)


def test_classes_have_their_shares_and_the_asked_for_part_is_missing():
    data = generate(SyntheticConfig(users=5000, items=40, mean_interactions=6, missing=0.1))
    for name, share in (("gender", 0.7), ("noise", 0.5)):
        labels = data.attributes[name].labels
        assert np.mean(labels == MISSING) == pytest.approx(0.1, abs=0.02)
        assert np.mean(labels[labels != MISSING] == 1) == pytest.approx(share, abs=0.03)


# ---------------------------------------------------------------- what is drawn


def test_interactions_look_like_those_of_a_recommender():
    config = SyntheticConfig(users=400, items=120, mean_interactions=20)
    data = generate(config)
    pairs = data.user * data.n_items + data.item
    assert len(np.unique(pairs)) == len(pairs)
    assert np.all(np.diff(data.timestamp) >= 0)
    assert data.user[np.sort(np.unique(data.user, return_index=True)[1])].tolist() == list(range(data.n_users))
    assert data.item[np.sort(np.unique(data.item, return_index=True)[1])].tolist() == list(range(data.n_items))
    activity = np.bincount(data.user)
    assert activity.min() >= 5
    assert activity.max() <= 60
    assert activity.mean() == pytest.approx(20, rel=0.1)
    popularity = np.sort(np.bincount(data.item))[::-1]
    assert popularity[:12].sum() > 0.2 * popularity.sum()  # a tenth of the items would have a tenth if all were alike
    shares = np.bincount(data.rating.astype(int), minlength=6)[1:] / len(pairs)
    assert shares == pytest.approx([0.06, 0.11, 0.27, 0.34, 0.22], abs=0.01)
    genres = np.diff(data.item_features["genre"].indptr)
    assert genres.min() == 1
    assert genres.max() > 1


def test_draws_follow_the_plackett_luce_probabilities():
    # with affinity 0 a user's first item is drawn in proportion to popularity k ** -1
    config = SyntheticConfig(users=4000, items=10, mean_interactions=5, affinity=0.0, popularity_exponent=1.0)
    data = generate(config)
    order = np.lexsort((data.timestamp, data.user))
    first = order[np.unique(data.user[order], return_index=True)[1]]
    counts = np.sort(np.bincount(data.item[first], minlength=10))[::-1]
    weights = 1 / np.arange(1, 11)
    assert counts / 4000 == pytest.approx(weights / weights.sum(), abs=0.03)


def test_ratings_rise_with_the_planted_affinity():
    config = SyntheticConfig()
    data, truth = generate(config), plant(config)
    user = data.user_tokens.astype(int)[data.user] - 1
    item = data.item_tokens.astype(int)[data.item] - 1
    affinity = np.sum(truth.user_vectors[user] * truth.item_vectors[item], axis=1)
    # liking = standardised affinity + noise of the same size: a correlation of 0.7 before it is cut into five
    assert 0.6 < np.corrcoef(affinity, data.rating)[0, 1] < 0.75
    known = data.attributes["gender"].labels != MISSING
    assert np.array_equal(
        data.attributes["gender"].labels[known], truth.labels["gender"][data.user_tokens.astype(int) - 1][known]
    )


def test_a_set_depends_on_its_seed_alone():
    state = np.random.get_state()[1].copy()
    one, again, other = (generate(SyntheticConfig(seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(one.item, again.item)
    assert np.array_equal(one.timestamp, again.timestamp)
    assert not np.array_equal(one.item[:1000], other.item[:1000])
    assert np.array_equal(np.random.get_state()[1], state)


# ---------------------------------------------------------------- the packaged set


def test_an_attacker_finds_gender_but_not_noise_in_the_packaged_set():
    data = load_dataset(DataConfig(name="synthetic", dir=str(packaged_files())))
    seen = np.zeros((data.n_users, data.n_items))
    seen[data.user, data.item] = 1.0
    left, values, _ = np.linalg.svd(seen - seen.mean(axis=0), full_matrices=False)
    features = left[:, :8] * values[:8]
    found = {name: cross_validated(features, a.labels) for name, a in data.attributes.items()}
    assert found["gender"] > 0.8
    assert found["age"] > 0.55
    assert 0.38 < found["noise"] < 0.62
    assert found["gender"] < PHI(1.5) + 0.03


def test_the_command_makes_the_packaged_files_bit_for_bit(tmp_path):
    command = [sys.executable, "-m", "fedrec_unlearn.data.synthetic", "--out", str(tmp_path / "new")]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    assert made.stderr == ""
    assert "4150 interactions of 200 users and 149 items" in made.stdout
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(FILES)
    for name in FILES:
        assert (tmp_path / "new" / name).read_bytes() == (packaged_files() / name).read_bytes()
    assert sum((packaged_files() / name).stat().st_size for name in FILES) < 150_000


def test_a_wrong_option_of_the_command_is_told_and_writes_nothing(tmp_path):
    command = [sys.executable, "-m", "fedrec_unlearn.data.synthetic", "--out", str(tmp_path / "new"), "--items", "3"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == DataError.exit_code
    assert made.stderr == "error: synthetic data: items must be at least 10\n"
    assert not (tmp_path / "new").exists()


# ---------------------------------------------------------------- files


def test_written_files_are_read_back_as_the_same_data_set(tmp_path):
    data = generate(SyntheticConfig(users=60, items=30, seed=5))
    write_atomic(data, tmp_path / "synthetic")
    back = load_dataset(DataConfig(name="synthetic", dir=str(tmp_path)))
    for field in ("user_tokens", "item_tokens", "user", "item", "rating", "timestamp"):
        assert np.array_equal(getattr(back, field), getattr(data, field))
    assert set(back.attributes) == set(data.attributes)
    for name, attribute in data.attributes.items():
        assert back.attributes[name].classes == attribute.classes
        assert np.array_equal(back.attributes[name].labels, attribute.labels)
    genre, again = data.item_features["genre"], back.item_features["genre"]
    assert again.values == genre.values
    assert np.array_equal(again.indptr, genre.indptr)
    assert np.array_equal(again.indices, genre.indices)


def tiny() -> Dataset:
    return Dataset(
        name="tiny",
        user_tokens=np.array(["x", "y"]),
        item_tokens=np.array(["p", "q"]),
        user=np.array([0, 1, 1]),
        item=np.array([0, 0, 1]),
    )


def test_only_what_is_known_is_written(tmp_path):
    write_atomic(tiny(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.inter"]
    assert (tmp_path / "tiny.inter").read_text() == "user_id:token\titem_id:token\nx\tp\ny\tp\ny\tq\n"


def test_numbers_keep_their_value_and_unknown_ones_are_empty(tmp_path):
    data = replace(tiny(), rating=np.array([3.0, 0.1, 4.5]), timestamp=np.array([1e9, np.nan, 1.25]))
    data = replace(data, attributes={"kind": Attribute("kind", ("a",), np.array([MISSING, 0]))})
    write_atomic(data, tmp_path)
    assert (tmp_path / "tiny.inter").read_text().splitlines()[1:] == [
        "x\tp\t3\t1000000000",
        "y\tp\t0.1\t",
        "y\tq\t4.5\t1.25",
    ]
    assert (tmp_path / "tiny.user").read_text() == "user_id:token\tkind:token\nx\t\ny\ta\n"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (replace(tiny(), user_tokens=np.array(["x\t", "y"])), r"'x\\t' holds a tab"),
        (replace(tiny(), item_tokens=np.array(["p", "q\n"])), r"'q\\n' holds a tab or a line break"),
        (
            replace(
                tiny(),
                item_features={"g": ItemFeature("g", ("sci fi",), np.array([0, 1, 1]), np.array([0]))},
            ),
            "'sci fi' holds a space",
        ),
        (replace(tiny(), given_part=np.zeros(3, dtype=np.int8)), "already split"),
    ],
)
def test_what_the_format_cannot_hold_is_refused_before_anything_is_written(tmp_path, data, words):
    with pytest.raises(DataError, match=words):
        write_atomic(data, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_write_that_breaks_off_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    write_atomic(tiny(), tmp_path)
    before = (tmp_path / "tiny.inter").read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DataError, match="No space left on device"):
        write_atomic(replace(tiny(), user_tokens=np.array(["other", "y"])), tmp_path)
    assert [path.name for path in Path(tmp_path).iterdir()] == ["tiny.inter"]
    assert (tmp_path / "tiny.inter").read_bytes() == before
