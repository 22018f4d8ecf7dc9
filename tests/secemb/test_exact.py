"""Rows and sums are exact, bit for bit: against plain integers, at every size, encoding, ring and way of sending."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedrec_unlearn.errors import TransportError

CATALOGUES = {
    "ml-100k": (1_682, 200),
    "ml-1m": (3_883, 300),
    "ml-10m": (10_681, 300),
    "ml-25m": (62_423, 500),
    "yelp": (93_386, 500),
}
"""Items in the catalogue, and items a client may hold."""
Make = Callable[..., Any]


def of(name: str, **options: Any) -> dict[str, Any]:
    """A round at a catalogue's size with its own number of bins and rows of 64 numbers."""
    n_items, most = CATALOGUES[name]
    sizes = {"n_items": n_items, "max_items": most, "bins": 0, "width": 64, "payload": 65, "dense": 3}
    return sizes | {"limit": (1 << 28) - 1, "max_clients": 4} | options


def held(n_items: int, sizes: list[int], seed: int = 0) -> list[np.ndarray]:
    """Items of clients, of whom the first two share about half."""
    rng = np.random.default_rng(seed)
    drawn = [rng.choice(n_items, size, replace=False) for size in sizes]
    shared = min(sizes[0], sizes[1]) // 2
    rest = np.setdiff1d(drawn[1], drawn[0][:shared])[: sizes[1] - shared]
    drawn[1] = rng.permutation(np.concatenate([drawn[0][:shared], rest]))
    return drawn


@pytest.mark.parametrize("name", CATALOGUES)
def test_rows_and_sums_are_exact_at_every_catalogue_size(name: str, make_round: Make, complete: Make) -> None:
    n_items, most = CATALOGUES[name]
    play = make_round(**of(name))
    play.check(complete(play, held(n_items, [most, most, 1])))
    assert [len(client.placed) for client in play.clients] == [most, most, 1]


@pytest.mark.parametrize("name", CATALOGUES)
def test_papers_encoding_is_exact_at_every_catalogue_size(name: str, make_round: Make, complete: Make) -> None:
    play = make_round(**of(name, encoding="paper", max_items=5))
    play.check(complete(play, held(CATALOGUES[name][0], [5, 4])))


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUES)
def test_papers_encoding_is_exact_with_as_many_items_as_the_paper_has(
    name: str, make_round: Make, complete: Make
) -> None:
    n_items, most = CATALOGUES[name]
    play = make_round(**of(name, encoding="paper"))
    play.check(complete(play, held(n_items, [most, most])))


@pytest.mark.parametrize("dense", [0, 7])
@pytest.mark.parametrize("whole_keys", [False, True], ids=["forwarded", "whole"])
@pytest.mark.parametrize("ring_bits", [32, 64])
@pytest.mark.parametrize("encoding", ["binned", "paper"])
def test_every_form_of_a_round_is_exact(
    encoding: str, ring_bits: int, whole_keys: bool, dense: int, make_round: Make, complete: Make
) -> None:
    bins = 5 if encoding == "paper" else 12
    for width, payload in ((1, 1), (3, 3), (3, 4), (4, 5), (64, 65)):
        play = make_round(
            encoding=encoding,
            bins=bins,
            ring_bits=ring_bits,
            whole_keys=whole_keys,
            dense=dense,
            width=width,
            payload=payload,
        )
        play.check(complete(play, held(61, [5, 4, 0, 1])))
        assert (play.pair.bytes_between == 0) == whole_keys


@pytest.mark.parametrize("n_items", [1, 2, 3, 5, 8, 9, 33])
@pytest.mark.parametrize("encoding", ["binned", "paper"])
def test_tiny_catalogues_are_exact(n_items: int, encoding: str, make_round: Make, complete: Make) -> None:
    play = make_round(n_items=n_items, encoding=encoding, bins=0, max_items=min(n_items, 4))
    play.check(complete(play, held(n_items, [min(n_items, 4)] * 2)))


def test_more_clients_than_a_batch_are_exact(make_round: Make, complete: Make) -> None:
    play = make_round(max_clients=130)
    rng = np.random.default_rng(1)
    play.check(complete(play, held(61, rng.integers(0, 6, 130).tolist())))


@pytest.mark.parametrize("ring_bits", [32, 64])
def test_sum_at_the_bound_of_the_ring_is_exact(ring_bits: int, make_round: Make) -> None:
    clients = 3
    limit = ((1 << (ring_bits - 1)) - 1) // clients
    limit = min(limit, (1 << 62) - 1)
    with pytest.raises(TransportError, match="can leave a ring"):
        make_round(ring_bits=ring_bits, limit=limit + 1, max_clients=clients)
    play = make_round(ring_bits=ring_bits, limit=limit, max_clients=clients, dense=0)
    items = np.array([60, 0])
    answers = play.ask([items] * clients)
    ends = np.array([[limit, -limit, limit - 1, -1], [-limit, limit, 0, 1]])
    updates = []
    for client, responses in zip(play.clients, answers, strict=True):
        client.rows(responses)
        updates.append(client.update(ends, np.zeros(0, np.int64)))
        assert client.saturated == 0
    play.pair.update(updates)
    total = play.pair.close()
    np.testing.assert_array_equal(total.rows[items], clients * ends)
    assert np.count_nonzero(total.rows) == np.count_nonzero(ends)
    assert abs(int(total.rows.max())) > (1 << (ring_bits - 1)) - 4


def test_numbers_beyond_the_limit_are_saturated_and_counted(make_round: Make) -> None:
    play = make_round(limit=1000, width=4)
    answers = play.ask([np.array([7]), np.array([7])])
    far = np.iinfo(np.int64)
    rows = np.array([[1001, -1001, far.max, far.min]]), np.array([[1000, -1000, 0, 5]])
    updates = []
    for client, responses, own, counted in zip(play.clients, answers, rows, (4, 0), strict=True):
        client.rows(responses)
        updates.append(client.update(own, np.zeros(2, np.int64)))
        assert client.saturated == counted
    play.pair.update(updates)
    np.testing.assert_array_equal(play.pair.close().rows[7], [2000, -2000, 1000, -995])


@pytest.mark.parametrize("noise", [0.0, 5.5])
def test_dense_numbers_have_a_bound_of_their_own_that_keeps_the_sum_in_its_ring(noise: float, make_round: Make) -> None:
    play = make_round(dense=3, max_clients=3, noise=noise)
    far, most = np.iinfo(np.int64), play.round.parameters.dense_limit
    assert 3 * most + math.ceil(16 * noise) < 1 << 63 <= 3 * (most + 40)
    answers = play.ask([np.array([7])] * 3)
    updates = []
    for client, responses in zip(play.clients, answers, strict=True):
        client.rows(responses)
        updates.append(client.update(np.zeros((1, 4), np.int64), np.array([far.max, far.min, most])))
        assert client.saturated == 2
    play.pair.update(updates)
    off = np.abs(play.pair.close().dense - 3 * np.array([most, -most, most]))
    assert off.max() <= 16 * noise


@pytest.mark.parametrize("ring_bits", [32, 64])
def test_table_at_the_ends_of_the_ring_is_retrieved(ring_bits: int, make_round: Make) -> None:
    low, high = -(1 << (ring_bits - 1)), (1 << (ring_bits - 1)) - 1
    table = np.array([[low, high, 0], [high, low, -1]] * 30 + [[1, -1, low]], dtype=np.int64)
    play = make_round(table=table, ring_bits=ring_bits)
    items = np.array([60, 0, 1])
    (answer,) = play.ask([items])
    np.testing.assert_array_equal(play.clients[0].rows(answer), table[items])


@pytest.mark.parametrize("beyond", [1 << 31, -(1 << 31) - 1, np.iinfo(np.int64).min, np.iinfo(np.int64).max])
def test_table_beyond_its_ring_is_refused(beyond: int, make_round: Make) -> None:
    table = np.zeros((61, 3), dtype=np.int64)
    table[60, 2] = beyond
    make_round(table=table, ring_bits=64)
    with pytest.raises(TransportError, match="ring of 64"):
        make_round(table=table, ring_bits=32)


def test_an_item_without_a_tree_is_left_out_silently(make_round: Make, complete: Make) -> None:
    # with one bin per group 5 items cannot all be placed, and the sum holds what is
    play = make_round(bins=4)
    items = np.arange(10, 15)
    play.check(complete(play, [items, items[:2]]))
    assert [len(client.placed) for client in play.clients] == [4, 2]


def test_noise_of_both_servers_is_in_the_sum_and_nothing_else(make_round: Make, complete: Make) -> None:
    play = make_round(noise=20.0, n_items=2000, bins=0, dense=50)
    total = complete(play, held(2000, [5, 5]))
    for noise in (total.rows - play.rows, total.dense - play.dense):
        assert 0 < np.abs(noise).max() < 20 * 2**0.5 * 7
    # the variance of two servers' noise, within 6 standard deviations of its estimate over 8,000 numbers
    assert abs((total.rows - play.rows).var() / 800 - 1) < 6 * (2 / 8000) ** 0.5
