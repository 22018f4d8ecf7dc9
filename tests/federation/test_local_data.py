from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from fedrec_unlearn.data.types import UserItems
from fedrec_unlearn.errors import DataError
from fedrec_unlearn.federation.local_data import ClientData, LocalData, ragged_places

CPU = torch.device("cpu")


def users_with(sizes: list[int], n_items: int, seed: int = 5) -> UserItems:
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(len(sizes)), sizes)
    item = np.concatenate([rng.choice(n_items, size, replace=False) for size in sizes])
    return UserItems.from_pairs(user, item, len(sizes), n_items, rng.integers(1, 6, len(user)).astype(float))


def client_lists(local: LocalData) -> dict[int, tuple[list[int], list[int]]]:
    """User to its positives and its negatives, in order."""
    lists = {}
    for c, user in enumerate(local.users.tolist()):
        positives = local.pos_items[local.pos_ptr[c] : local.pos_ptr[c + 1]].tolist()
        negatives = local.neg_items[local.neg_ptr[c] : local.neg_ptr[c + 1]].tolist()
        lists[user] = positives, negatives
    return lists


SIZES = [3, 1, 20, 19, 7, 12, 10, 5]
N_ITEMS = 21


def data() -> ClientData:
    return ClientData(users_with(SIZES, N_ITEMS), CPU)


@pytest.mark.parametrize("num_negatives", [1, 3])
def test_a_client_trains_on_its_own_items_and_on_distinct_items_it_has_not_seen(num_negatives: int) -> None:
    train = users_with(SIZES, N_ITEMS)
    for round_number in range(20):
        local = ClientData(train, CPU).local(torch.arange(len(SIZES)), 1, round_number, num_negatives)
        for user, (positives, negatives) in client_lists(local).items():
            own = set(train.of(user).tolist())
            assert positives == sorted(own)
            assert len(negatives) == len(set(negatives)) == min(num_negatives * len(own), N_ITEMS - len(own))
            assert not own & set(negatives)
            assert set(negatives) <= set(range(N_ITEMS))


def test_a_client_with_few_unseen_items_takes_all_of_them() -> None:
    train = users_with(SIZES, N_ITEMS)
    lists = client_lists(data().local(torch.arange(len(SIZES)), 1, 0, 2))
    for user in (2, 3, 5, 6):
        assert set(lists[user][1]) == set(range(N_ITEMS)) - set(train.of(user).tolist())


def test_a_client_that_has_seen_everything_has_no_negatives() -> None:
    clients = ClientData(users_with([4, 2], 4), CPU)
    local = clients.local(torch.tensor([0, 1]), 1, 0, 1)
    assert client_lists(local)[0] == ([0, 1, 2, 3], [])
    assert local.pools.tolist() == [0, 2]


def test_what_a_client_draws_does_not_depend_on_who_is_in_the_block() -> None:
    clients = data()
    together = client_lists(clients.local(torch.arange(len(SIZES)), 9, 4, 2))
    for block in ([5], [7, 0, 3], [3, 0, 7], [6, 5, 4, 3, 2, 1, 0]):
        assert client_lists(clients.local(torch.tensor(block), 9, 4, 2)) == {user: together[user] for user in block}


def test_draws_differ_by_round_user_and_seed() -> None:
    clients = ClientData(users_with([20] * 12, 400), CPU)
    everyone = torch.arange(12)

    def drawn(seed: int, round_number: int) -> list[list[int]]:
        return [negatives for _, negatives in client_lists(clients.local(everyone, seed, round_number, 1)).values()]

    assert drawn(1, 0) == drawn(1, 0)
    for other in (drawn(1, 1), drawn(2, 0)):
        assert all(a != b for a, b in zip(drawn(1, 0), other, strict=True))
    # users with the same unseen items draw apart
    same = ClientData(UserItems.from_pairs(np.repeat([0, 1], 20), np.tile(np.arange(20), 2), 2, 400), CPU)
    lists = client_lists(same.local(torch.arange(2), 1, 0, 1))
    assert lists[0][0] == lists[1][0]
    assert lists[0][1] != lists[1][1]


def frequencies(unseen: int, rounds: int, clients: int = 200) -> np.ndarray:
    """How often each unseen item is the first negative."""
    train = UserItems.from_pairs(np.repeat(np.arange(clients), 3), np.tile([0, 1, 2], clients), clients, unseen + 3)
    data = ClientData(train, CPU)
    first = np.zeros(unseen)
    for round_number in range(rounds):
        local = data.local(torch.arange(clients), 7, round_number, 1)
        negatives = local.neg_items.view(clients, 3).numpy() - 3
        first += np.bincount(negatives[:, 0], minlength=unseen)
    return first


@pytest.mark.parametrize("unseen", [7, 53])
def test_a_negative_is_uniform_over_the_unseen_items(unseen: int) -> None:
    first = frequencies(unseen, rounds=100)
    assert stats.chisquare(first).pvalue > 0.001


@pytest.mark.parametrize("unseen", [90, 114])
def test_the_negative_of_any_positive_is_uniform(unseen: int) -> None:
    clients = ClientData(UserItems.from_pairs(np.zeros(8, int), np.arange(8), 1, unseen + 8), CPU)
    drawn = np.array([clients.local(torch.tensor([0]), 5, r, 1).neg_items.numpy() - 8 for r in range(6000)])
    for place in (0, 3, 7):
        assert stats.chisquare(np.bincount(drawn[:, place], minlength=unseen)).pvalue > 0.001


def test_negatives_are_a_systematic_sample_of_the_unseen_items() -> None:
    train = users_with(SIZES, N_ITEMS)
    for round_number in range(30):
        local = ClientData(train, CPU).local(torch.arange(len(SIZES)), 3, round_number, 2)
        for user, (_, negatives) in client_lists(local).items():
            unseen = np.setdiff1d(np.arange(N_ITEMS), train.of(user))
            ranks = np.searchsorted(unseen, negatives)
            assert unseen[ranks].tolist() == negatives
            steps = np.arange(len(negatives)) * len(unseen) // len(negatives)
            assert ((ranks - ranks[:1]) % len(unseen)).tolist() == steps.tolist()


def test_partners_walk_through_all_negatives_of_the_client() -> None:
    clients = data()
    local = clients.local(torch.arange(len(SIZES)), 1, 0, 2)
    counts, pools = local.counts.tolist(), local.pools.tolist()
    for repeat in range(2):
        for epoch in range(3):
            found = local.partners(repeat, epoch)
            expected = [
                int(local.neg_ptr[c]) + (j + counts[c] * repeat + epoch) % pools[c]
                for c in range(len(counts))
                for j in range(counts[c])
            ]
            assert found is not None
            assert found.tolist() == expected


def test_ratings_are_centred_and_stay_with_their_items() -> None:
    train = users_with(SIZES, N_ITEMS)
    assert train.ratings is not None
    local = ClientData(train, CPU, torch.float64, rating_mean=2.5).local(torch.tensor([4, 0]), 1, 0, 0)
    assert local.ratings is not None
    expected = np.concatenate([train.ratings[train.indptr[u] : train.indptr[u + 1]] for u in (4, 0)]) - 2.5
    assert local.ratings.tolist() == expected.tolist()
    assert local.neg_items.numel() == 0
    assert local.pools.tolist() == [0, 0]


def test_ragged_places_count_within_each_owner() -> None:
    owners, places = ragged_places(torch.tensor([0, 2, 2, 5, 6]), torch.tensor([2, 0, 3, 1]), 6)
    assert owners.tolist() == [0, 0, 2, 2, 2, 3]
    assert places.tolist() == [0, 1, 0, 1, 2, 0]


def test_more_items_than_the_draws_can_number_are_refused() -> None:
    with pytest.raises(DataError, match=r"at most 2\*\*31 - 1"):
        ClientData(UserItems(1 << 31, np.array([0, 1]), np.array([5])), CPU)
