import gzip
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from fedrec_unlearn.attacks import (
    decoded_support,
    decoding,
    infer_attribute,
    surfaces,
    update_support,
    update_values,
)
from fedrec_unlearn.config import DataConfig, SplitConfig
from fedrec_unlearn.data import load_dataset, make_split
from fedrec_unlearn.data.types import UserItems
from fedrec_unlearn.errors import AttackError
from fedrec_unlearn.federation.local_data import ClientData

WIDTH = 6


def uploads(n_users=30, n_items=50, seed=0, noise=0.0):
    """Rows as one BPR step sends them: popular positives, evenly drawn negatives, multiples of the user's row."""
    draws = np.random.default_rng(seed)
    users = draws.normal(size=(n_users, WIDTH))
    popularity = 1.0 / (1.0 + np.arange(n_items))
    indptr, ids, rows = [0], [], []
    for user in range(n_users):
        size = int(draws.integers(4, 10))
        positives = draws.choice(n_items, size, replace=False, p=popularity / popularity.sum())
        negatives = draws.choice(np.setdiff1d(np.arange(n_items), positives), size, replace=False)
        strengths = draws.uniform(0.1, 0.9, size)
        # a negative takes away exactly what its positive was given: the sum of a user's rows is zero
        coefficients = np.concatenate([strengths, -strengths])
        ids.append(np.concatenate([positives, negatives]))
        rows.append(np.outer(coefficients, users[user]) / size + noise * draws.normal(size=(2 * size, WIDTH)))
        indptr.append(indptr[-1] + 2 * size)
    return users, np.array(indptr), np.concatenate(ids), np.concatenate(rows)


def test_support_holds_a_one_for_each_uploaded_row():
    _, indptr, ids, rows = uploads()
    support = update_support(indptr, ids, 50)
    expected = np.zeros((30, 50))
    for user in range(30):
        expected[user, ids[indptr[user] : indptr[user + 1]]] = 1.0
    assert support.shape == (30, 50)
    assert np.array_equal(support.toarray(), expected)
    assert np.array_equal(update_support(indptr, ids, 50, rows).toarray(), expected)


def test_rows_of_zeros_are_no_support_under_the_plain_transport():
    indptr, ids = [0, 3, 3, 6], [0, 1, 2, 0, 1, 2]
    rows = np.array([[1.0, 0], [0, 0], [0, -1], [0, 0], [0, 0], [2, 2]])
    assert update_support(indptr, ids, 3, rows).toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 1]]
    assert update_support(indptr, ids, 3).toarray().tolist() == [[1, 1, 1], [0, 0, 0], [1, 1, 1]]


def test_values_of_a_bpr_step_give_away_the_private_row_with_its_sign():
    users, indptr, ids, rows = uploads(n_users=200)
    for user in range(200):
        np.testing.assert_allclose(rows[indptr[user] : indptr[user + 1]].sum(axis=0), 0, atol=1e-12)
    direction = update_values(indptr, ids, rows)[:, :WIDTH]
    cosine = np.einsum("ud,ud->u", direction, users) / np.linalg.norm(users, axis=1)
    np.testing.assert_allclose(np.abs(cosine), 1.0, atol=1e-9)
    assert np.mean(cosine > 0) > 0.95


def test_values_agree_with_a_singular_value_decomposition_per_user():
    _, indptr, ids, rows = uploads(noise=0.05)
    features = update_values(indptr, ids, rows)
    assert features.shape == (30, WIDTH + surfaces.UPDATE_STATISTICS)
    for user in range(30):
        mine = rows[indptr[user] : indptr[user + 1]]
        _, strength, axes = np.linalg.svd(mine, full_matrices=False)
        norms = np.linalg.norm(mine, axis=1)
        rms = np.sqrt(np.mean(norms**2))
        direction, statistics = features[user, :WIDTH], features[user, WIDTH:]
        assert abs(direction @ axes[0]) == pytest.approx(1.0)
        coefficients = mine @ direction
        expected = [
            np.log1p(len(mine)),
            np.log(rms),
            strength[0] ** 2 / np.sum(strength**2),
            norms.mean() / rms,
            norms.max() / rms,
            coefficients.mean() / np.sqrt(np.mean(coefficients**2)),
        ]
        np.testing.assert_allclose(statistics, expected, atol=1e-8)


def test_values_do_not_depend_on_chunks_or_on_the_order_of_rows(monkeypatch):
    _, indptr, ids, rows = uploads(noise=0.05)
    whole = update_values(indptr, ids, rows)
    monkeypatch.setattr(surfaces, "CHUNK_NUMBERS", 1)
    np.testing.assert_allclose(update_values(indptr, ids, rows), whole, rtol=1e-9, atol=1e-12)
    flip = np.concatenate([np.arange(a, b)[::-1] for a, b in pairwise(indptr)])
    np.testing.assert_allclose(update_values(indptr, ids[flip], rows[flip]), whole, rtol=1e-9, atol=1e-9)


def test_where_popularity_says_nothing_the_largest_component_is_positive():
    rows = np.array([[1.0, -3.0], [2.0, -6.0], [-1.0, 3.0], [-4.0, 12.0]])
    direction = update_values([0, 4], [3, 1, 0, 2], rows)[0, :2]
    np.testing.assert_allclose(direction, np.array([-1.0, 3.0]) / np.sqrt(10))


def test_a_user_who_uploads_nothing_or_zeros_has_zeros():
    rows = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 2.0]])
    features = update_values([0, 0, 2, 3], [0, 1, 1], rows)
    assert features[0].tolist() == [0.0] * 8
    np.testing.assert_allclose(features[1], [0, 0, np.log1p(2), 0, 0, 0, 0, 0], atol=1e-9)
    np.testing.assert_allclose(features[2, 2:], [np.log1p(1), np.log(5) / 2, 1, 1, 1, 1], atol=1e-8)


def test_no_uploads_at_all_give_no_users():
    assert update_values([0], [], np.zeros((0, 4))).shape == (0, 10)
    assert update_support([0], [], 7).shape == (0, 7)


def test_arrays_that_do_not_fit_are_refused():
    rows = np.ones((3, 2))
    with pytest.raises(AttackError, match="indptr must rise"):
        update_support([0, 2], [0, 1, 2], 5)
    with pytest.raises(AttackError, match="indptr must rise"):
        update_values([0, 3, 2, 3], [0, 1, 2], rows)
    with pytest.raises(AttackError, match="item id 2 is out of range; the table has 2 items"):
        update_support([0, 3], [0, 1, 2], 2)
    with pytest.raises(AttackError, match="item id -1 is negative"):
        update_support([0, 3], [0, 1, -1], 5)
    with pytest.raises(AttackError, match=r"values must have shape \(3, width\)"):
        update_values([0, 3], [0, 1, 2], rows[:2])
    rows[2, 1] = np.nan
    with pytest.raises(AttackError, match="user 1 uploads a NaN or infinite value for item 9"):
        update_values([0, 2, 3], [0, 1, 9], rows)


def test_the_items_of_movielens_tell_gender():
    folder = Path(os.environ.get("FEDREC_DATA", "")) / "ml-100k-recbole"
    if not os.environ.get("FEDREC_DATA") or not folder.is_dir():
        pytest.skip("FEDREC_DATA names no folder with ml-100k-recbole")
    with gzip.open(folder / "ml-100k.inter.gz", "rt") as lines:
        user, item = np.array([line.split("\t")[:2] for line in lines][1:], dtype=np.int64).T - 1
    with gzip.open(folder / "ml-100k.user.gz", "rt") as lines:
        gender = {int(line.split("\t")[0]) - 1: line.split("\t")[2] for line in list(lines)[1:]}
    labels = np.array([("F", "M").index(gender[u]) for u in range(943)])
    order = np.argsort(user, kind="stable")
    support = update_support(np.concatenate([[0], np.cumsum(np.bincount(user))]), item[order], 1682)
    options = {"attribute": "gender", "classes": ("F", "M"), "attackers": ("logistic",), "seeds": (0,)}
    [found] = infer_attribute(support, labels, surface="update_support", **options)
    [control] = infer_attribute(support, labels, surface="update_support", control_shuffled=True, **options)
    assert found.counts == (273, 670)
    assert 0.65 < found.balanced_accuracy.mean < 0.78
    assert control.distance_from_chance < 0.06


def drawn_uploads(items_of, n_items, num_negatives=1, seed=0):
    """Ids that clients upload in a round, in the federation's own way of drawing negatives, and their own items."""
    user = np.repeat(np.arange(len(items_of)), [len(items) for items in items_of])
    train = UserItems.from_pairs(user, np.concatenate(items_of), len(items_of), n_items)
    local = ClientData(train, torch.device("cpu")).local(torch.arange(len(items_of)), seed, 3, num_negatives)
    ids = [
        np.concatenate([train.of(u), local.neg_items[local.neg_ptr[u] : local.neg_ptr[u + 1]].numpy()])
        for u in range(len(items_of))
    ]
    shuffle = np.random.default_rng(seed)
    ids = [shuffle.permutation(mine) for mine in ids]
    own = sparse.csr_matrix((np.ones(len(train.items)), train.items, train.indptr), shape=(len(items_of), n_items))
    return np.concatenate([[0], np.cumsum([len(mine) for mine in ids])]), np.concatenate(ids), own


def popular_items(n_users=120, n_items=400, seed=0):
    draws = np.random.default_rng(seed)
    popularity = 1.0 / (1.0 + draws.permutation(n_items)) ** 0.7
    sizes = draws.integers(3, 60, n_users)
    return [draws.choice(n_items, size, replace=False, p=popularity / popularity.sum()) for size in sizes]


def precision(decoded, own):
    return decoded.multiply(own).sum() / decoded.sum()


@pytest.mark.parametrize(("num_negatives", "least"), [(1, 0.93), (2, 0.83), (4, 0.6)])
def test_the_way_negatives_are_drawn_gives_a_users_own_items_away(num_negatives, least):
    indptr, ids, own = drawn_uploads(popular_items(), 400, num_negatives)
    decoded = decoded_support(indptr, ids, 400, num_negatives)
    assert np.array_equal(np.asarray(decoded.sum(axis=1)).ravel(), np.asarray(own.sum(axis=1)).ravel())
    assert set(decoded.data) == {1.0}
    assert precision(update_support(indptr, ids, 400), own) == pytest.approx(1 / (1 + num_negatives))
    assert precision(decoded, own) > least


def test_where_one_comb_fits_only_neighbours_of_a_negative_are_in_doubt():
    doubtful, certain = 0, 0
    for seed in range(20):
        items = np.random.default_rng(seed).choice(300, 12, replace=False)
        indptr, ids, own = drawn_uploads([items], 300, seed=seed)
        decoded, uploads, ranks = decoded_support(indptr, ids, 300), np.sort(ids), np.arange(12)
        held = np.bincount((uploads - np.arange(24)) % 276, minlength=276)
        comb = np.bincount(ranks * 288 // 12 - ranks, minlength=276)
        assert len({tuple(np.roll(comb, turn)) for turn in decoding._fitting_turns(comb, held)}) == 1
        wrong = set(decoded.nonzero()[1]) - set(own.nonzero()[1])
        for item in uploads:
            alone = not {(item + 1) % 300, (item - 1) % 300} & set(uploads)
            certain += alone
            doubtful += item in wrong
            assert not (alone and item in wrong)
    assert certain > 20 * 18
    assert doubtful < 20


def test_turns_that_fit_are_those_a_search_over_all_offsets_finds():
    draws = np.random.default_rng(3)
    for seed in range(30):
        n_items = int(draws.integers(6, 40))
        size = int(draws.integers(1, n_items // 2))
        items = np.sort(draws.choice(n_items, size, replace=False))
        _, ids, _ = drawn_uploads([items], n_items, seed=seed)
        uploads = np.sort(ids)
        silent, unseen = n_items - len(uploads), n_items - size
        if silent < 1:
            continue
        held = np.bincount((uploads - np.arange(len(uploads))) % silent, minlength=silent)
        found = set()
        for start in range(unseen):
            ranks = np.sort((np.arange(size) * unseen // size + start) % unseen)
            comb = np.bincount((ranks - np.arange(size)) % silent, minlength=silent)
            if np.all(comb <= held):
                found.add(tuple(comb))
        ranks = np.arange(size)
        comb = np.bincount(ranks * unseen // size - ranks, minlength=silent)
        turns = decoding._fitting_turns(comb, held)
        assert {tuple(np.roll(comb, turn)) for turn in turns} == found
        assert len(found) >= 1


def test_decoding_does_not_depend_on_the_order_of_uploads():
    indptr, ids, _ = drawn_uploads(popular_items(40), 400)
    flip = np.concatenate([np.arange(a, b)[::-1] for a, b in pairwise(indptr)])
    assert np.array_equal(
        decoded_support(indptr, ids, 400).toarray(), decoded_support(indptr, ids[flip], 400).toarray()
    )


def test_negatives_drawn_independently_leave_popularity_to_decide():
    items, draws = popular_items(), np.random.default_rng(5)
    ids = [
        np.concatenate([mine, draws.choice(np.setdiff1d(np.arange(400), mine), len(mine), replace=False)])
        for mine in items
    ]
    indptr = np.concatenate([[0], np.cumsum([len(mine) for mine in ids])])
    own = update_support(np.concatenate([[0], np.cumsum([len(mine) for mine in items])]), np.concatenate(items), 400)
    assert 0.55 < precision(decoded_support(indptr, np.concatenate(ids), 400), own) < 0.85


def test_without_negatives_every_upload_is_an_own_item():
    indptr, ids, _ = drawn_uploads(popular_items(10), 400, num_negatives=0)
    assert np.array_equal(decoded_support(indptr, ids, 400, 0).toarray(), update_support(indptr, ids, 400).toarray())


def test_edges_of_decoding():
    assert decoded_support([0], [], 7).shape == (0, 7)
    assert decoded_support([0, 0, 2], [4, 1], 7).sum() == 1
    # everything is uploaded: nothing tells, but half is still named
    assert decoded_support([0, 4], [0, 1, 2, 3], 4).sum() == 2
    with pytest.raises(AttackError, match="num_negatives is -1"):
        decoded_support([0, 1], [0], 7, -1)
    with pytest.raises(AttackError, match="item id 9 is out of range"):
        decoded_support([0, 1], [9], 7)


def test_own_items_of_movielens_are_decoded_and_tell_gender_better_than_all_uploads(fedrec_data):
    dataset = load_dataset(DataConfig(name="ml-100k", dir=str(fedrec_data)), ("gender",))
    train = make_split(dataset, SplitConfig()).train
    indptr, ids, own = drawn_uploads([train.of(u) for u in range(train.n_users)], train.n_items)
    decoded, everything = decoded_support(indptr, ids, train.n_items), update_support(indptr, ids, train.n_items)
    assert precision(everything, own) == pytest.approx(0.5)
    assert 0.93 < precision(decoded, own) < 0.97
    options = {"attribute": "gender", "classes": ("F", "M"), "attackers": ("logistic",), "seeds": (0,)}
    labels = dataset.attributes["gender"].labels
    [from_decoded] = infer_attribute(decoded, labels, surface="decoded_support", **options)
    [from_all] = infer_attribute(everything, labels, surface="update_support", **options)
    assert from_decoded.balanced_accuracy.mean > from_all.balanced_accuracy.mean
