"""The floor counts what it says, for layers small enough to count by hand."""

from __future__ import annotations

import pytest

from benchmarks.floors import Cost, Rates, pass_cost, read_bandwidth
from fedrec_unlearn.models import MF, NCF


def test_matrix_factorisation_takes_two_products_an_epoch_and_one_at_the_end() -> None:
    model = MF(n_users=3, n_items=10, embedding_dim=4)
    assert pass_cost(model, entries=100, clients=3, local_epochs=1) == Cost(100 * 4 * 3, 100 * 16 * 2, 100 * 16 * 2)
    assert pass_cost(model, entries=100, clients=3, local_epochs=5) == Cost(100 * 4 * 11, 100 * 16 * 10, 100 * 16 * 2)


@pytest.mark.parametrize("local_epochs", [1, 3])
def test_the_first_layer_is_counted_once_an_item_until_clients_have_drifted(local_epochs: int) -> None:
    model = NCF(n_users=3, n_items=10, embedding_dim=4, hidden_sizes=(5, 2))
    # per entry: 4 (GMF) + 5 * 2 (second layer) + 2 (output); the first layer is 4 * 5 for an item and for a user
    entry, first = 4 + 10 + 2, 20
    expected = local_epochs * 100 * entry + 10 * first + (local_epochs - 1) * 100 * first + local_epochs * 3 * first
    found = pass_cost(model, entries=100, clients=3, local_epochs=local_epochs)
    assert found.multiply_adds == 3 * expected
    assert (found.read_bytes, found.update_bytes) == (100 * 32, 100 * 64)


def test_seconds_are_amounts_over_rates() -> None:
    assert Rates(10.0, 100.0, 1000.0).seconds(Cost(20, 300, 4000)) == (2.0, 7.0)


def test_faster_measurements_win() -> None:
    assert Rates(1.0, 5.0, 3.0).best(Rates(2.0, 4.0, 6.0)) == Rates(2.0, 5.0, 6.0)


def test_reading_has_a_rate() -> None:
    assert read_bandwidth(0.1, rows=256, repeats=1) > 0
