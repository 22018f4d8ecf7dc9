"""Users, items and interactions drawn from latent vectors that depend on the users' attributes.

The model. A user has a latent vector of independent normal coordinates with unit variance. Classes move its mean:

* `gender` (F 30 %, M 70 %) along coordinate 0, the two means `gender_strength` apart;
* `age` (18-34, 35-54, 55+) along coordinate 1, neighbouring means `age_strength` apart;
* `noise` (a, b, half each) along nothing: any attack on it must end at chance.

Items have normal latent vectors, and popularities that follow a power law. A user draws items one after the other
without replacement, each with probability proportional to exp(affinity * <user, item> / sqrt(latent_dim)) times
its popularity (Plackett-Luce), so the order of the draws is also their order in time. Ratings rise with the same
inner product. Genres are directions in the items' latent space.

The best attacker. Whoever sees the true latent vector of a user can do no better than a threshold half way
between two means. With Phi the standard normal distribution function, the balanced accuracy is

* gender: Phi(gender_strength / 2), which is 0.933 at strength 3, 0.691 at 1 and 0.5, chance, at 0;
* age: (4 Phi(age_strength / 2) - 1) / 3, which is 0.911 at strength 3 and 1/3, chance, at 0;
* noise: 0.5.

An attacker who sees only interactions, or vectors trained on them, knows less and stays below these numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrec_unlearn.data.types import MISSING, Attribute, Dataset, FloatArray, IntArray, ItemFeature
from fedrec_unlearn.errors import DataError
from fedrec_unlearn.seeds import Purpose, normal, stream_key, uniform

CLASSES: dict[str, tuple[tuple[str, ...], tuple[float, ...]]] = {
    "age": (("18-34", "35-54", "55+"), (0.35, 0.4, 0.25)),
    "gender": (("F", "M"), (0.3, 0.7)),
    "noise": (("a", "b"), (0.5, 0.5)),
}
"""Attribute to its classes and their shares."""

GENRES = ("action", "comedy", "drama", "horror", "romance", "western")

_RATING_SHARES = (0.06, 0.11, 0.27, 0.34, 0.22)  # of 1 to 5, about those of MovieLens 100K
_FIRST_SECOND = 1_609_459_200  # 2021-01-01 00:00 UTC
_DAY = 86_400

# Counters of the streams under Purpose.SYNTHETIC
_USER, _ITEM, _CLASS, _MISSING, _ACTIVITY, _CHOICE, _RATING, _START, _GAP, _GENRE, _POPULARITY = range(11)


@dataclass(frozen=True)
class SyntheticConfig:
    """Size and make of a synthetic set; the defaults are those of the set that comes with the package."""

    users: int = 200
    """Number of users."""
    items: int = 150
    """Number of items; those nobody draws are not in the data set."""
    mean_interactions: float = 20.0
    """Mean number of interactions of a user, before rounding and the bounds of 5 and half of all items."""
    latent_dim: int = 8
    """Length of the latent vectors."""
    gender_strength: float = 3.0
    """Distance of the two genders' means, in standard deviations."""
    age_strength: float = 2.0
    """Distance of neighbouring age groups' means, in standard deviations."""
    affinity: float = 2.0
    """Weight of the inner product against popularity and chance when items are drawn."""
    popularity_exponent: float = 0.8
    """The k-th most popular item has a weight of k to the minus this (0: all alike)."""
    missing: float = 0.03
    """Share of users whose class is not known, for each attribute apart."""
    seed: int = 2020
    """Seed of everything."""

    def __post_init__(self) -> None:
        for option, good in (
            ("users must be at least 1", self.users >= 1),
            ("items must be at least 10", self.items >= 10),
            ("mean_interactions must be positive", self.mean_interactions > 0),
            ("latent_dim must be at least 2", self.latent_dim >= 2),
            ("gender_strength must be 0 or more", self.gender_strength >= 0),
            ("age_strength must be 0 or more", self.age_strength >= 0),
            ("affinity must be 0 or more", self.affinity >= 0),
            ("popularity_exponent must be 0 or more", self.popularity_exponent >= 0),
            ("missing must lie in [0, 1)", 0 <= self.missing < 1),
        ):
            if not good:
                raise DataError(f"synthetic data: {option}")


@dataclass(frozen=True)
class Planted:
    """The truth behind a synthetic set, in the order of user and item numbers before anything is drawn."""

    user_vectors: FloatArray
    """Shape (users, latent_dim)."""
    item_vectors: FloatArray
    """Shape (items, latent_dim)."""
    labels: dict[str, IntArray]
    """Attribute to the class of each user, shape (users,), none missing."""


def plant(config: SyntheticConfig) -> Planted:
    """Draw attributes and latent vectors; see the module's docstring for what an attacker can get out of them."""
    labels = {}
    for number, (name, (_, shares)) in enumerate(CLASSES.items()):
        draws = uniform(stream_key(config.seed, Purpose.SYNTHETIC, _CLASS, number), (config.users,))
        labels[name] = np.searchsorted(np.cumsum(shares)[:-1], draws, side="right").astype(np.int64)
    user_vectors = normal(stream_key(config.seed, Purpose.SYNTHETIC, _USER), (config.users, config.latent_dim))
    user_vectors[:, 0] += config.gender_strength * (labels["gender"] - 0.5)
    user_vectors[:, 1] += config.age_strength * (labels["age"] - 1.0)
    item_vectors = normal(stream_key(config.seed, Purpose.SYNTHETIC, _ITEM), (config.items, config.latent_dim))
    return Planted(user_vectors, item_vectors, labels)


def generate(config: SyntheticConfig | None = None) -> Dataset:
    """Make a synthetic data set.

    Args:
        config: size, strengths and seed; the defaults if not given.

    Returns:
        Interactions in the order of time with ratings 1 to 5 and timestamps in seconds, the attributes age, gender
        and noise, and the item feature genre (one or several an item). Tokens are the numbers of `plant`, from 1:
        user token "7" is row 6 of `Planted.user_vectors`.

    Raises:
        DataError: an option is out of range.
    """
    config = config or SyntheticConfig()
    truth = plant(config)
    user, item, affinity, timestamp = _interactions(config, truth)
    by_time = np.argsort(timestamp, kind="stable")
    user, item, affinity, timestamp = user[by_time], item[by_time], affinity[by_time], timestamp[by_time]
    users, items = _first_appearance(user), _first_appearance(item)
    return Dataset(
        name="synthetic",
        user_tokens=np.array([str(u + 1) for u in users]),
        item_tokens=np.array([str(i + 1) for i in items]),
        user=_positions(users, config.users)[user],
        item=_positions(items, config.items)[item],
        rating=_ratings(config, affinity),
        timestamp=timestamp.astype(np.float64),
        attributes=_attributes(config, truth, users),
        item_features={"genre": _genres(config, truth, items)},
    )


def _key(config: SyntheticConfig, *counters: int) -> int:
    return stream_key(config.seed, Purpose.SYNTHETIC, *counters)


def _interactions(config: SyntheticConfig, truth: Planted) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
    """User, item, affinity and second of each interaction, user after user."""
    rank = np.argsort(np.argsort(uniform(_key(config, _POPULARITY), (config.items,)))) + 1.0
    log_popularity = -config.popularity_exponent * np.log(rank)
    spread = normal(_key(config, _ACTIVITY), (config.users,))
    # log-normal with the mean asked for: a few users do much, most do little
    activity = np.rint(config.mean_interactions * np.exp(0.5 * spread - 0.125)).astype(np.int64)
    activity = np.clip(activity, 5, config.items // 2)
    start = uniform(_key(config, _START), (config.users,)) * 300 * _DAY
    chosen, affinities, seconds = [], [], []
    for user in range(config.users):
        affinity = truth.item_vectors @ truth.user_vectors[user] / np.sqrt(config.latent_dim)
        # the largest k of Gumbel-perturbed scores, in descending order, are k draws without replacement
        gumbel = -np.log(-np.log(uniform(_key(config, _CHOICE, user), (config.items,))))
        drawn = np.argsort(-(config.affinity * affinity + log_popularity + gumbel), kind="stable")[: activity[user]]
        gaps = -np.log(uniform(_key(config, _GAP, user), (len(drawn),))) * _DAY
        chosen.append(drawn)
        affinities.append(affinity[drawn])
        seconds.append(_FIRST_SECOND + start[user] + np.cumsum(gaps))
    return (
        np.repeat(np.arange(config.users), activity),
        np.concatenate(chosen),
        np.concatenate(affinities),
        np.concatenate(seconds).astype(np.int64),
    )


def _ratings(config: SyntheticConfig, affinity: FloatArray) -> FloatArray:
    """1 to 5 in fixed shares, by the rank of affinity and as much noise again."""
    noise = normal(_key(config, _RATING), (len(affinity),))
    liking = (affinity - affinity.mean()) / max(float(affinity.std()), 1e-12) + noise
    quantile = (np.argsort(np.argsort(liking, kind="stable")) + 0.5) / len(liking)
    return (1 + np.searchsorted(np.cumsum(_RATING_SHARES)[:-1], quantile)).astype(np.float64)


def _attributes(config: SyntheticConfig, truth: Planted, users: IntArray) -> dict[str, Attribute]:
    attributes = {}
    for number, (name, (classes, _)) in enumerate(CLASSES.items()):
        known = uniform(_key(config, _MISSING, number), (config.users,)) >= config.missing
        labels = np.where(known, truth.labels[name], MISSING)[users]
        attributes[name] = Attribute(name, classes, labels)
    return attributes


def _genres(config: SyntheticConfig, truth: Planted, items: IntArray) -> ItemFeature:
    directions = normal(_key(config, _GENRE), (config.latent_dim, len(GENRES)))
    closeness = truth.item_vectors[items] @ (directions / np.linalg.norm(directions, axis=0))
    # the nearest genre, and every other that is as clear as that of a typical item
    member = (closeness >= closeness.max(axis=1, keepdims=True)) | (closeness > 1.25)
    indptr = np.concatenate([[0], np.cumsum(member.sum(axis=1))]).astype(np.int64)
    return ItemFeature("genre", GENRES, indptr, np.nonzero(member)[1].astype(np.int64))


def _first_appearance(ids: IntArray) -> IntArray:
    """The distinct ids in the order in which they first occur."""
    old, first = np.unique(ids, return_index=True)
    return old[np.argsort(first)]


def _positions(ids: IntArray, size: int) -> IntArray:
    """For each id its place in `ids`; ids that are not there get -1."""
    positions = np.full(size, -1, dtype=np.int64)
    positions[ids] = np.arange(len(ids))
    return positions
