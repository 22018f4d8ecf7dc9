import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrec_unlearn.data.kcore import k_core
from fedrec_unlearn.data.types import MISSING, Attribute, Dataset, ItemFeature
from fedrec_unlearn.errors import DataError

GENRES = ("a", "b", "c")


def described(pairs: list[tuple[int, int]]) -> Dataset:
    """A data set in which everything that is carried along can be recomputed from the tokens."""
    users = list(dict.fromkeys(u for u, _ in pairs))
    items = list(dict.fromkeys(i for _, i in pairs))
    genres = [[g for g in range(3) if (i >> g) & 1] for i in items]
    return Dataset(
        name="made-up",
        user_tokens=np.array([str(u) for u in users]),
        item_tokens=np.array([str(i) for i in items]),
        user=np.array([users.index(u) for u, _ in pairs], dtype=np.int64),
        item=np.array([items.index(i) for _, i in pairs], dtype=np.int64),
        rating=np.array([float(u + i) for u, i in pairs]),
        timestamp=np.array([float(1000 * u + i) for u, i in pairs]),
        attributes={
            "parity": Attribute("parity", ("even", "odd"), np.array([MISSING if u % 5 == 0 else u % 2 for u in users]))
        },
        item_features={
            "genre": ItemFeature(
                "genre",
                GENRES,
                np.concatenate([[0], np.cumsum([len(g) for g in genres])]).astype(np.int64),
                np.array([g for own in genres for g in own], dtype=np.int64),
            )
        },
        given_part=np.array([(u + i) % 3 for u, i in pairs], dtype=np.int8),
    )


def pairs_of(data: Dataset) -> list[tuple[int, int]]:
    return [(int(data.user_tokens[u]), int(data.item_tokens[i])) for u, i in zip(data.user, data.item, strict=True)]


def peeled(pairs: list[tuple[int, int]], min_user: int, min_item: int) -> list[tuple[int, int]]:
    """The core by the textbook's way: remove one offending user or item at a time."""
    pairs = list(pairs)
    while True:
        users = [u for u, _ in pairs]
        items = [i for _, i in pairs]
        few = next((("u", u) for u in users if users.count(u) < min_user), None)
        few = few or next((("i", i) for i in items if items.count(i) < min_item), None)
        if few is None:
            return pairs
        pairs = [(u, i) for u, i in pairs if few not in (("u", u), ("i", i))]


PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 7)), min_size=1, max_size=60, unique=True)


@settings(max_examples=150, deadline=None)
@given(PAIRS, st.integers(0, 5), st.integers(0, 5))
def test_core_equals_peeling_one_by_one_and_carries_everything_along(pairs, min_user, min_item):
    expected = peeled(pairs, min_user, min_item)
    if not expected:
        with pytest.raises(DataError, match=r"lower data\.min_user_interactions"):
            k_core(described(pairs), min_user, min_item)
        return
    core = k_core(described(pairs), min_user, min_item)
    assert pairs_of(core) == expected
    fresh = described(expected)  # numbered by first appearance, with everything recomputed
    assert core.user_tokens.tolist() == fresh.user_tokens.tolist()
    assert core.item_tokens.tolist() == fresh.item_tokens.tolist()
    assert core.rating.tolist() == fresh.rating.tolist()
    assert core.timestamp.tolist() == fresh.timestamp.tolist()
    assert core.given_part.tolist() == fresh.given_part.tolist()
    assert core.attributes["parity"].labels.tolist() == fresh.attributes["parity"].labels.tolist()
    assert core.attributes["parity"].classes == ("even", "odd")
    genre, again = core.item_features["genre"], fresh.item_features["genre"]
    assert genre.values == GENRES
    assert genre.indptr.tolist() == again.indptr.tolist()
    assert genre.indices.tolist() == again.indices.tolist()


def test_one_pass_is_not_enough():
    # without item 9, user 2 falls below two; without user 2, item 8 does
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 8), (2, 9), (3, 8), (3, 0), (3, 1)]
    assert pairs_of(k_core(described(pairs), 2, 2)) == [(0, 0), (0, 1), (1, 0), (1, 1), (3, 0), (3, 1)]


def test_a_data_set_that_is_its_own_core_is_returned_as_it_is():
    data = described([(0, 0), (0, 1), (1, 0), (1, 1)])
    assert k_core(data, 2, 2) is data
    assert k_core(data, 0, 0) is data
