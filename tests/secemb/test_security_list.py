"""The fourteen points of SecEmb's security, and the tests that hold each.

A point is a function of which the docstring is the promise; `held_by` names tests as `file::test`, from the folder of
all tests. That these exist, once, and run by default is checked here, so that no promise is left without a test.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
Point = Callable[[], None]
POINTS: list[Point] = []
HELD: dict[str, tuple[str, ...]] = {}


def held_by(*tests: str) -> Callable[[Point], Point]:
    """Add a point to the list."""

    def add(point: Point) -> Point:
        POINTS.append(point)
        HELD[point.__name__] = tests
        return point

    return add


@held_by(
    "secemb/test_vectors.py::test_trees_differ_in_one_leaf_and_the_words_are_those_of_the_reference",
    "secemb/test_view.py::test_measures_find_a_hash_without_feed_forward",
    "secemb/test_view.py::test_no_measure_tells_two_leaves_apart_by_one_servers_view",
)
def point_1_hash_with_feed_forward() -> None:
    """The hash is AES_k(σ(x)) ⊕ σ(x) with σ(hi, lo) = (hi ⊕ lo, hi); without the feed-forward the path is read off."""


@held_by(
    "secemb/test_secrecy.py::test_keys_for_every_purpose_number_client_round_and_nonce_are_different",
    "secemb/test_secrecy.py::test_the_hash_does_not_repeat_over_purposes_passes_and_sessions",
    "secemb/test_vectors.py::test_digest_binds_the_whole_description",
    "secemb/test_properties.py::test_descriptions_come_back_from_their_bytes",
)
def point_2_keys_are_separated() -> None:
    """Keys are separate for left, right, convert, roots, masks, and bound to version, round, table, client, nonce."""


@held_by(
    "secemb/test_schedules.py::test_second_session_and_second_message_of_a_client_are_refused",
    "secemb/test_vectors.py::test_final_words_and_dense_shares_are_those_of_the_reference",
)
def point_3_one_final_word_for_each_tree() -> None:
    """A tree gets one final correction word; a second one would show the difference of two payloads."""


@held_by(
    "secemb/test_secrecy.py::test_every_secret_of_a_client_is_drawn_from_the_operating_system",
    "secemb/test_secrecy.py::test_noise_is_drawn_from_the_operating_system",
    "secemb/test_secrecy.py::test_no_generator_but_the_operating_systems_is_within_reach",
    "secemb/test_noise.py::test_the_operating_system_is_asked_and_nothing_else",
)
def point_4_secrets_from_the_operating_system() -> None:
    """Seeds, dummies, masks and noise come from the operating system's generator, never numpy, torch or `random`."""


@held_by(
    "secemb/test_view.py::test_sizes_are_the_same_for_every_client_whatever_it_holds",
    "secemb/test_view.py::test_no_measure_tells_two_items_or_none_apart_by_what_a_client_sends",
    "secemb/test_exact.py::test_an_item_without_a_tree_is_left_out_silently",
)
def point_5_constant_shape() -> None:
    """Every client sends as many trees and gets as many rows, in both phases; nothing depends on its items."""


@held_by(
    "secemb/test_secrecy.py::test_permutations_follow_from_public_parameters_alone",
    "secemb/test_properties.py::test_every_item_lies_in_distinct_bins_of_equal_size",
    "secemb/test_vectors.py::test_every_item_held_has_a_tree_that_points_at_it",
)
def point_6_public_permutations() -> None:
    """The permutations are public, fixed before and independent of any client's items."""


@held_by(
    "secemb/test_secrecy.py::test_neither_server_can_open_what_is_sealed_to_the_other",
    "secemb/test_properties.py::test_sealed_messages_open_at_the_other_end_and_no_bit_can_be_changed",
    "secemb/test_vectors.py::test_sealed_messages_are_those_of_the_standards",
    "secemb/test_schedules.py::test_client_with_one_key_twice_or_a_wrong_identifier_is_refused",
    "serving/test_keeper.py::test_the_spool_never_holds_a_seed_in_the_clear",
)
def point_7_a_sealed_channel_to_each_server() -> None:
    """Each server has a channel of its own, bound to round, client, role and version; no server sees both seeds."""


@held_by(
    "secemb/test_schedules.py::test_any_schedule_sums_exactly_the_accepted_clients",
    "secemb/test_schedules.py::test_client_that_stops_at_any_step_is_left_out_and_harms_nobody",
    "secemb/test_schedules.py::test_second_session_and_second_message_of_a_client_are_refused",
    "secemb/test_schedules.py::test_shares_of_different_sums_are_not_combined",
    "secemb/test_schedules.py::test_tampered_words_that_come_before_the_clients_message_give_way_to_it",
)
def point_8_single_use_and_one_set_of_clients() -> None:
    """(client, round, nonce) is used once; both servers fix the same clients first, a dropout is in neither share."""


@held_by(
    "secemb/test_schedules.py::test_round_is_closed_once_with_one_set_of_enough_clients",
    "secemb/test_decoders.py::test_share_over_fewer_or_more_clients_than_the_round_allows_is_refused",
    "serving/test_keeper.py::test_a_round_is_closed_once",
)
def point_9_enough_clients_and_one_sum() -> None:
    """A sum is over a minimum number of clients, and a round opens one."""


@held_by(
    "secemb/test_secrecy.py::test_sum_shows_a_row_that_one_client_touched_and_noise_covers_every_row",
    "secemb/test_secrecy.py::test_each_servers_share_alone_is_noise",
    "secemb/test_noise.py::test_every_number_is_noised_also_where_no_client_was",
)
def point_10_a_row_of_one_client_shows_without_noise() -> None:
    """A sum shows a row that one client alone touched, unless there is noise, which is on all rows."""


@held_by(
    "secemb/test_exact.py::test_noise_of_both_servers_is_in_the_sum_and_nothing_else",
    "secemb/test_noise.py::test_both_servers_noise_opens_to_the_sum_plus_both_draws",
    "secemb/test_properties.py::test_noise_that_cannot_be_drawn_is_refused_before_a_round",
    "serving/test_keeper.py::test_noise_is_drawn_once_even_if_the_sum_could_not_be_written_at_first",
    "privacy/test_clipping.py::test_integer_norm_is_never_above_the_limit",
    "privacy/test_accounting.py::test_a_chosen_noise_multiplier_meets_its_target_and_hardly_more",
)
def point_11_full_noise_of_each_server() -> None:
    """Each server adds full discrete Gaussian noise mod 2^b, once; clients clip, rounds are accounted for."""


@held_by(
    "secemb/test_properties.py::test_overflow_is_ruled_out_by_the_parameters",
    "secemb/test_exact.py::test_sum_at_the_bound_of_the_ring_is_exact",
    "secemb/test_exact.py::test_numbers_beyond_the_limit_are_saturated_and_counted",
    "secemb/test_exact.py::test_dense_numbers_have_a_bound_of_their_own_that_keeps_the_sum_in_its_ring",
    "secemb/test_schedules.py::test_no_more_clients_than_the_overflow_bound_was_checked_for",
)
def point_12_no_overflow() -> None:
    """Clients · limit fits the ring, checked at the start; numbers beyond are saturated, counted; signs come last."""


@held_by(
    "secemb/test_decoders.py::test_fuzzer_finds_nothing",
    "secemb/test_decoders.py::test_mutated_messages_are_refused_by_our_error_alone",
    "secemb/test_decoders.py::test_nothing_is_allocated_for_a_message_of_a_wrong_length",
    "secemb/test_properties.py::test_correction_words_come_back_from_their_bytes",
    "secemb/test_properties.py::test_no_second_form_of_a_description_is_taken",
    "secemb/test_secrecy.py::test_no_generator_but_the_operating_systems_is_within_reach",
    "secemb/test_schedules.py::test_every_bad_form_of_every_message_is_refused_and_the_sum_is_that_of_a_round_without_them",
)
def point_13_strict_decoders() -> None:
    """Lengths, version, party and padding are exact, refused before anything is allocated; nothing is pickled."""


@held_by(
    "secemb/test_secrecy.py::test_no_repr_tells_a_secret",
    "secemb/test_secrecy.py::test_no_error_tells_a_secret",
    "secemb/test_secrecy.py::test_servers_do_the_same_work_in_the_same_order_for_every_client",
)
def point_14_no_secret_told() -> None:
    """No secret is in a log, repr or exception, and what a server does follows no secret."""


@cache
def defined_in(file: str) -> dict[str, list[str]]:
    """Tests that a file defines, with their decorators."""
    tree = ast.parse((TESTS / file).read_text())
    found: dict[str, list[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            assert node.name not in found, f"{file} defines {node.name} twice; the first is lost"
            found[node.name] = [ast.unparse(decorator) for decorator in node.decorator_list]
    return found


def test_there_are_fourteen_points_in_order() -> None:
    assert [int(point.__name__.split("_")[1]) for point in POINTS] == list(range(1, 15))


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.__name__)
def test_point_is_held_by_tests_that_exist_and_run_by_default(point: Point) -> None:
    assert len(point.__doc__ or "") > 40
    assert HELD[point.__name__]
    for name in HELD[point.__name__]:
        file, _, test = name.partition("::")
        assert test in defined_in(file), f"{name} does not exist any more: name the test that holds {point.__name__}"
        assert not any("slow" in decorator or "skip" in decorator for decorator in defined_in(file)[test]), name
