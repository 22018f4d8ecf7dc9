"""Two-server shares: the sum is exact, one share alone says nothing, and what does not fit is refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.federation.contribution import quantise
from fedrec_unlearn.federation.secure_sum import Partial, SumServer, combine, expand, message_bytes, share

ROUND = 7
HEADER = struct.Struct("<BBII16s")
"""version, kind, round, numbers, nonce: the layout, written down once more."""
INT64 = np.iinfo(np.int64)


def added(vectors: list[np.ndarray]) -> np.ndarray:
    """The vectors' sum by way of two servers, B receiving in reverse order."""
    messages = [share(vector, ROUND) for vector in vectors]
    a, b = SumServer("a", len(vectors[0]), ROUND), SumServer("b", len(vectors[0]), ROUND)
    for first, _ in messages:
        a.receive(first)
    for _, second in reversed(messages):
        b.receive(second)
    return combine(a.partial(), b.partial())


def body(message: bytes) -> np.ndarray:
    return np.frombuffer(message[HEADER.size :], dtype="<u8")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(st.integers(INT64.min, INT64.max), min_size=n, max_size=n), min_size=1, max_size=5)
    )
)
def test_the_sum_is_exact_modulo_two_to_the_64(rows: list[list[int]]) -> None:
    found = added([np.array(row, dtype=np.int64) for row in rows])
    expected = [sum(column) for column in zip(*rows, strict=True)]
    # python's own integers do not wrap, so the law is checked from outside
    assert [(int(x) - y) % (1 << 64) for x, y in zip(found, expected, strict=True)] == [0] * len(expected)
    if all(INT64.min <= total <= INT64.max for total in expected):
        assert found.tolist() == expected


def test_a_sum_beyond_int64_wraps_around() -> None:
    found = added([np.array([INT64.max, INT64.min, -1]), np.array([1, -1, 1])])
    assert found.tolist() == [INT64.min, INT64.max, 0]


def test_quantised_torch_vectors_add_up_to_the_sum_of_their_roundings() -> None:
    values = torch.randn(20, 33, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    rounded = quantise(values, 20)
    a, b = SumServer("a", 33, 0), SumServer("b", 33, 0)
    for row in rounded:
        first, second = share(row, 0)
        a.receive(first)
        b.receive(second)
    assert torch.equal(torch.from_numpy(combine(b.partial(), a.partial())), rounded.sum(0))


def test_the_first_share_is_the_keystream_of_its_seed() -> None:
    seed = bytes(range(32))
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), None).encryptor().update(bytes(40))
    assert expand(seed, 5).tolist() == list(struct.unpack("<5Q", stream))
    values = np.arange(-4, 5)
    first, second = share(values, ROUND)
    assert len(first) == HEADER.size + 32
    assert ((body(second) + expand(first[HEADER.size :], 9)).view(np.int64)).tolist() == values.tolist()


def p_value_of_uniform_bytes(message: bytes) -> float:
    counts = np.bincount(np.frombuffer(message[HEADER.size :], dtype=np.uint8), minlength=256)
    return float(stats.chisquare(counts).pvalue)


@pytest.mark.parametrize("value", [0, 1, -1, INT64.min, 123_456_789])
def test_a_single_share_of_a_constant_vector_has_uniform_bytes(value: int) -> None:
    constant = np.full(8192, value, dtype=np.int64)
    _, second = share(constant, ROUND)
    # an honest share fails this once in a hundred million runs
    assert p_value_of_uniform_bytes(second) > 1e-8
    assert len(np.unique(body(second))) == 8192


def test_the_test_of_uniformity_sees_a_weak_mask() -> None:
    # a mask of 63 random bits: the highest bit of each number is that of the vector
    weak = (expand(bytes(32), 8192) >> np.uint64(1)).astype("<u8").tobytes()
    assert p_value_of_uniform_bytes(bytes(HEADER.size) + weak) < 1e-8


def test_two_shares_of_one_vector_have_nothing_in_common() -> None:
    values = np.arange(1000)
    (a1, b1), (a2, b2) = share(values, ROUND), share(values, ROUND)
    assert a1[HEADER.size :] != a2[HEADER.size :]
    assert not np.any(body(b1) == body(b2))
    assert HEADER.unpack_from(a1)[4] == HEADER.unpack_from(b1)[4] != HEADER.unpack_from(a2)[4]
    # neither half, nor the seed's stream, is near the vector: correlations of 1000 pairs spread by 0.03
    for half in (body(b1), expand(a1[HEADER.size :], 1000)):
        assert abs(np.corrcoef(half.astype(float), values)[0, 1]) < 0.25


@pytest.mark.parametrize("n", [1, 2, 1000])
def test_message_bytes_counts_what_is_sent(n: int) -> None:
    messages = share(np.zeros(n, dtype=np.int64), ROUND)
    assert sum(len(message) for message in messages) == message_bytes(n) == 2 * 26 + 32 + 8 * n


@pytest.mark.parametrize("party", ["a", "b"])
def test_a_share_sent_twice_counts_once(party: str) -> None:
    message = share(np.array([5, 6]), ROUND)[party == "b"]
    server = SumServer(party, 2, ROUND)  # type: ignore[arg-type]
    server.receive(message)
    with pytest.raises(TransportError, match="received before; it counts once"):
        server.receive(message)
    once = SumServer(party, 2, ROUND)  # type: ignore[arg-type]
    once.receive(message)
    assert server.partial().total.tolist() == once.partial().total.tolist()


@pytest.mark.parametrize("party", ["a", "b"])
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda m: m[:10], "shorter than its header"),
        (lambda m: b"\x02" + m[1:], "version 2 and kind"),
        (lambda m: m[:1] + b"\x09" + m[2:], "version 1 and kind 9"),
        (lambda m: m[:2] + struct.pack("<I", 8) + m[6:], "belongs to round 8, not 7"),
        (lambda m: m[:6] + struct.pack("<I", 3) + m[10:], "for 3 numbers"),
        (lambda m: m + b"\x00", "bytes for 2 numbers; server . expects"),
        (lambda m: m[:-1], "bytes for 2 numbers; server . expects"),
    ],
)
def test_a_message_that_does_not_fit_is_refused_and_changes_nothing(party: str, spoil: object, said: str) -> None:
    good = share(np.array([5, 6]), ROUND)[party == "b"]
    server = SumServer(party, 2, ROUND)  # type: ignore[arg-type]
    with pytest.raises(TransportError, match=said):
        server.receive(spoil(good))  # type: ignore[operator]
    part = server.partial()
    assert part.accepted == frozenset()
    assert part.total.tolist() == [0, 0]


def test_a_message_for_the_other_server_is_refused() -> None:
    first, second = share(np.array([1, 2, 3, 4]), ROUND)
    # four numbers are as long as a seed: only the kind tells them apart
    assert len(first) == len(second)
    for party, wrong in (("a", second), ("b", first)):
        with pytest.raises(TransportError, match=f"server {party} expects"):
            SumServer(party, 4, ROUND).receive(wrong)  # type: ignore[arg-type]


def test_a_server_takes_nobody_after_its_partial_sum() -> None:
    server = SumServer("b", 1, ROUND)
    server.receive(share(np.array([1]), ROUND)[1])
    part = server.partial()
    with pytest.raises(TransportError, match="would reveal that client"):
        server.receive(share(np.array([2]), ROUND)[1])
    assert server.partial().accepted == part.accepted


def test_servers_with_different_clients_are_not_combined_and_the_client_is_named() -> None:
    messages = [share(np.array([k]), ROUND) for k in range(3)]
    a, b = SumServer("a", 1, ROUND), SumServer("b", 1, ROUND)
    for first, _ in messages:
        a.receive(first)
    b.receive(messages[0][1])
    b.receive(messages[2][1])
    lost = HEADER.unpack_from(messages[1][0])[4]
    assert a.accepted - b.accepted == {lost}
    with pytest.raises(TransportError, match=f"server b without {lost.hex()}\\), so their sums do not add up"):
        combine(a.partial(), b.partial())


def test_the_missing_message_may_still_arrive_before_the_partial_sums() -> None:
    first, second = share(np.array([41]), ROUND)
    a, b = SumServer("a", 1, ROUND), SumServer("b", 1, ROUND)
    a.receive(first)
    assert a.accepted != b.accepted
    b.receive(second)
    assert combine(a.partial(), b.partial()).tolist() == [41]


def test_parts_of_one_server_of_other_rounds_or_lengths_are_not_combined() -> None:
    def part(party: str, round_number: int, n: int) -> Partial:
        return SumServer(party, n, round_number).partial()  # type: ignore[arg-type]

    with pytest.raises(TransportError, match="both partial sums come from server a"):
        combine(part("a", 1, 2), part("a", 1, 2))
    with pytest.raises(TransportError, match="rounds 1 and 2"):
        combine(part("a", 1, 2), part("b", 2, 2))
    with pytest.raises(TransportError, match="of 2 and 3 numbers"):
        combine(part("a", 1, 2), part("b", 1, 3))


@pytest.mark.parametrize(
    "values", [np.zeros(3), np.zeros(3, dtype=np.int32), np.zeros((1, 3), dtype=np.int64), torch.zeros(2)]
)
def test_only_vectors_of_int64_are_shared(values: object) -> None:
    with pytest.raises(TransportError, match="round floats with quantise first"):
        share(values, ROUND)  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "round_number"), [(0, 0), (1, -1), (1, 1 << 32)])
def test_a_length_or_round_that_the_header_cannot_carry_is_refused(n: int, round_number: int) -> None:
    with pytest.raises(TransportError, match=r"secure sum: a (vector|round)"):
        SumServer("a", n, round_number)
    with pytest.raises(TransportError, match=r"secure sum: a (vector|round)"):
        share(np.zeros(n, dtype=np.int64), round_number)
