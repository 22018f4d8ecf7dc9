"""Full ranking: order of ties, masking, independence of chunks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrec_unlearn.errors import ConfigError, DataError, ModelError
from fedrec_unlearn.metrics import NO_ITEM, check_topk, rank_full, top_items

torch.set_num_threads(1)

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")),
]


def csr(lists):
    return np.cumsum([0, *map(len, lists)]), np.array([i for items in lists for i in items], dtype=np.int64)


def random_lists(rng, n_users, n_items, most):
    """Two disjoint random item lists of each user; some are empty."""
    first, second = [], []
    for _ in range(n_users):
        items = rng.permutation(n_items)
        a, b = rng.integers(0, most + 1, size=2)
        first.append(np.sort(items[:a]))
        second.append(np.sort(items[a : a + b]))
    return first, second


def by_sorting(scores, seen, k):
    """A user's list by a stable sort of all items, the plainest way to say what is meant."""
    order = [i for i in np.argsort(-scores, kind="stable") if i not in set(seen.tolist()) and scores[i] > -np.inf]
    return np.array((order + [NO_ITEM] * k)[:k])


def lookup(matrix):
    return lambda users: matrix[users]


@settings(deadline=None, max_examples=120)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(0, 4))
def test_equal_scores_are_listed_by_item_id(seed, k, levels):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels + 1, size=(5, 9)).astype(np.float64)
    scores[rng.random((5, 9)) < 0.1] = -np.inf
    scores[rng.random((5, 9)) < 0.1] = -0.0
    top = top_items(torch.from_numpy(scores), k).numpy()
    expected = np.array([by_sorting(row, np.array([]), k) for row in scores])
    np.testing.assert_array_equal(top, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ties_in_long_rows_are_resolved_at_the_cut_and_inside(device, dtype):
    rng = np.random.default_rng(1)
    scores = np.round(rng.normal(size=(40, 3000)), 1)
    top = top_items(torch.tensor(scores, dtype=dtype, device=device), 50).cpu().numpy()
    np.testing.assert_array_equal(top, np.argsort(-scores, axis=1, kind="stable")[:, :50])


@pytest.mark.parametrize("device", DEVICES)
def test_constant_scores_list_the_first_items(device):
    top = top_items(torch.zeros((3, 100), device=device), 7)
    assert top.tolist() == [list(range(7))] * 3


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 15), st.booleans())
def test_lists_and_hits_do_not_depend_on_the_chunk_size(seed, k, tied):
    rng = np.random.default_rng(seed)
    n_users, n_items = 13, 15
    scores = rng.integers(0, 3, (n_users, n_items)).astype(float) if tied else rng.normal(size=(n_users, n_items))
    seen, relevant = random_lists(rng, n_users, n_items, most=6)
    users = [u for u in range(n_users) if len(relevant[u])]
    expected = np.array([by_sorting(scores[u], seen[u], k) for u in users]).reshape(-1, k)
    hits = np.array([np.isin(row, relevant[u]) for u, row in zip(users, expected, strict=True)]).reshape(-1, k)
    for chunk_size in (1, 2, 5, 13, 100):
        ranked = rank_full(
            lookup(torch.from_numpy(scores)), *csr(seen), *csr(relevant), n_items=n_items, k=k, chunk_size=chunk_size
        )
        np.testing.assert_array_equal(ranked.users, users)
        np.testing.assert_array_equal(ranked.items, expected)
        np.testing.assert_array_equal(ranked.hits, hits)
        np.testing.assert_array_equal(ranked.n_relevant, [len(relevant[u]) for u in users])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_item_lists_may_be_numpy_or_torch_and_scores_live_on_the_device(device, dtype):
    rng = np.random.default_rng(5)
    matrix = torch.from_numpy(rng.permutation(30 * 50).reshape(30, 50)).to(device, dtype)
    seen, relevant = (csr(lists) for lists in random_lists(rng, 30, 50, most=10))
    asked = []

    def score(users):
        asked.append(users.device.type)
        return matrix[users]

    ours = rank_full(score, *seen, *relevant, n_items=50, k=5, chunk_size=7, device=device)
    theirs = rank_full(score, *map(torch.from_numpy, (*seen, *relevant)), n_items=50, k=5, chunk_size=7, device=device)
    np.testing.assert_array_equal(ours.items, theirs.items)
    np.testing.assert_array_equal(ours.hits, theirs.hits)
    assert set(asked) == {device}


def test_users_without_relevant_items_are_never_scored():
    asked = []

    def score(users):
        asked.extend(users.tolist())
        return torch.rand(len(users), 4)

    ranked = rank_full(score, *csr([[0], [], [1], []]), *csr([[], [2], [], [3]]), n_items=4, k=2, chunk_size=1)
    assert asked == [1, 3]
    assert ranked.users.tolist() == [1, 3]


def test_nothing_relevant_gives_an_empty_ranking_without_scoring():
    def score(users):
        raise AssertionError("scored")

    ranked = rank_full(score, *csr([[0], []]), *csr([[], []]), n_items=4, k=3)
    assert ranked.items.shape == ranked.hits.shape == (0, 3)
    assert ranked.n_relevant.shape == (0,)


def test_lists_end_early_where_a_user_has_seen_almost_everything():
    ranked = rank_full(lookup(torch.tensor([[5.0, 4, 3, 2, 1]])), *csr([[0, 2, 3]]), *csr([[4]]), n_items=5, k=4)
    assert ranked.items.tolist() == [[1, 4, NO_ITEM, NO_ITEM]]
    assert ranked.hits.tolist() == [[False, True, False, False]]


def test_an_empty_place_is_not_a_hit_on_the_last_item_of_the_user_before():
    # user * n_items + NO_ITEM is the key of that item
    ranked = rank_full(lookup(torch.ones(2, 3)), *csr([[], [0, 1]]), *csr([[2], [2]]), n_items=3, k=2)
    assert ranked.items.tolist() == [[0, 1], [2, NO_ITEM]]
    assert ranked.hits.tolist() == [[False, False], [True, False]]


def test_scores_of_the_caller_are_left_as_they_were():
    scores = torch.arange(12.0).reshape(3, 4)
    before = scores.clone()
    with torch.inference_mode():
        inference = before.clone()
    weight = before.clone().requires_grad_()
    for stored in (scores, inference, weight):
        rank_full(lambda users, stored=stored: stored[:], *csr([[3], [0], [1]]), *csr([[1], [1], [0]]), n_items=4, k=2)
        assert torch.equal(stored, before)
    shared = torch.tensor([3.0, 2.0, 1.0, 0.0])
    ranked = rank_full(
        lambda users: shared.expand(len(users), -1), *csr([[0], [1], [2]]), *csr([[1], [0], [0]]), n_items=4, k=2
    )
    assert ranked.items.tolist() == [[1, 2], [0, 2], [0, 1]]
    assert shared.tolist() == [3.0, 2.0, 1.0, 0.0]


def test_items_of_a_user_may_come_in_any_order():
    scores = torch.tensor([[1.0, 2, 3, 4, 5]])
    ranked = rank_full(lookup(scores), *csr([[4, 0]]), *csr([[3, 1]]), n_items=5, k=3)
    assert ranked.items.tolist() == [[3, 2, 1]]
    assert ranked.hits.tolist() == [[True, False, True]]


def test_a_list_longer_than_the_catalogue_is_refused_before_any_scoring():
    with pytest.raises(ConfigError, match=r"evaluation.topk: K=6 .* n_items=5; choose at most 5"):
        rank_full(lambda users: pytest.fail("scored"), *csr([[0]]), *csr([[1]]), n_items=5, k=6)
    with pytest.raises(ConfigError, match="K=0 must be at least 1"):
        check_topk((10, 0), 20)
    with pytest.raises(ConfigError, match="names no list length"):
        check_topk((), 20)
    check_topk((1, 20), 20)


@pytest.mark.parametrize("position", [0, 3])
def test_nan_scores_are_refused(position):
    scores = torch.zeros(2, 5)
    scores[1, position] = torch.nan
    with pytest.raises(ModelError, match="NaN for 1 of 2 users; training has diverged"):
        rank_full(lookup(scores), *csr([[], []]), *csr([[1], [1]]), n_items=5, k=2)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (torch.zeros(1, 4), r"returned shape \(1, 4\); \(users, n_items\) = \(1, 5\) is needed"),
        (torch.zeros(1, 5, dtype=torch.int64), "floating point scores are needed"),
        (torch.zeros(1, 5, device="meta"), "scores on meta, but the evaluation runs on cpu"),
    ],
)
def test_scores_of_the_wrong_kind_are_refused(scores, message):
    with pytest.raises(ModelError, match=message):
        rank_full(lambda users: scores, *csr([[0]]), *csr([[1]]), n_items=5, k=2)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ((np.array([0, 1]), np.array([5])), "relevant: item ids run from 5 to 5, outside 0..4"),
        ((np.array([0, 1]), np.array([-1])), "relevant: item ids run from -1 to -1"),
        ((np.array([0, 2]), np.array([3])), r"relevant: indptr must start at 0, never fall and end .* \(1\)"),
        ((np.array([0, 2]), np.array([3, 3])), "relevant: user 0 has item 3 twice"),
        ((np.array([0, 1, 1]), np.array([3])), "seen lists are of 1 users, relevant lists of 2"),
        ((np.array([0, 1]), np.array([3.0])), "relevant: indptr and items must be integers, not float64"),
        ((np.array([0, 1]), torch.tensor([3.0])), "relevant: indptr and items must be integers, not torch.float32"),
        ((np.array([[0, 1]]), np.array([3])), "relevant: indptr and items must be one-dimensional"),
    ],
)
def test_malformed_item_lists_are_refused(lists, message):
    with pytest.raises(DataError, match=message):
        rank_full(lambda users: pytest.fail("scored"), *csr([[0]]), *lists, n_items=5, k=2)


def test_a_chunk_size_below_one_is_refused():
    with pytest.raises(ConfigError, match=r"evaluation\.chunk_size: 0"):
        rank_full(lambda users: pytest.fail("scored"), *csr([[0]]), *csr([[1]]), n_items=5, k=2, chunk_size=0)


def test_read_only_arrays_are_taken_without_a_warning(recwarn):
    arrays = (*csr([[0]]), *csr([[1]]))
    for array in arrays:
        array.flags.writeable = False
    rank_full(lookup(torch.rand(1, 5)), *arrays, n_items=5, k=2)
    assert not recwarn.list
