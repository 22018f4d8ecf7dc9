from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.federation.contribution import ClientUpdate
from fedrec_unlearn.federation.reference import ReferenceEngine
from fedrec_unlearn.federation.transport import Transport, make_transport

N_ITEMS, W, ROUND = 12, 3, 41
HEADER = struct.Struct("<BBHIIIId")
"""version, kind, bytes per number, round, rows, width, dense numbers, weight: the layout, written down once more."""

TYPES = {"float": torch.float32, "ring": torch.int64}
both_transports = pytest.mark.parametrize("name", ["plain", "sparse"])
both_types = pytest.mark.parametrize("kind", TYPES)


def expected(kind: str) -> tuple[Tensor, dict[str, Tensor]]:
    """The server's sums: item rows and dense parameters."""
    return torch.zeros(N_ITEMS, W, dtype=TYPES[kind]), {
        "bias": torch.zeros(1, dtype=TYPES[kind]),
        "w": torch.zeros(2, 4, dtype=TYPES[kind]),
    }


def update(kind: str, ids: tuple[int, ...] = (7, 0, 11, 4)) -> ClientUpdate:
    draw = torch.Generator().manual_seed(1)

    def numbers(*shape: int) -> Tensor:
        if kind == "float":
            return torch.randn(shape, generator=draw)
        return torch.randint(-(2**41), 2**41, shape, generator=draw)

    return ClientUpdate(torch.tensor(ids), numbers(len(ids), W), {"bias": numbers(1), "w": numbers(2, 4)}, 4.0)


def sent(name: str, kind: str = "float") -> tuple[Transport, bytes]:
    transport = make_transport(name, N_ITEMS)
    return transport, transport.encode(update(kind), ROUND)


def changed(message: bytes, **fields: Any) -> bytes:
    """The message with fields of its header replaced."""
    names = ("version", "kind", "size", "round", "rows", "width", "dense", "weight")
    header = dict(zip(names, HEADER.unpack_from(message), strict=True)) | fields
    return HEADER.pack(*header.values()) + message[HEADER.size :]


@both_types
def test_sparse_brings_the_rows_back_with_their_ids(kind: str) -> None:
    transport, message = sent("sparse", kind)
    received, original = transport.decode(message, ROUND, *expected(kind)), update(kind)
    assert torch.equal(received.item_ids, original.item_ids)
    assert torch.equal(received.item_rows, original.item_rows)
    assert received.item_rows.dtype == TYPES[kind]
    assert received.weight == 4.0
    assert received.dense.keys() == original.dense.keys()
    for name, value in original.dense.items():
        assert torch.equal(received.dense[name], value)


@both_types
def test_plain_tells_the_rows_that_are_not_zero(kind: str) -> None:
    transport, message = sent("plain", kind)
    received, original = transport.decode(message, ROUND, *expected(kind)), update(kind)
    by_id = original.item_ids.argsort()
    assert torch.equal(received.item_ids, original.item_ids[by_id])
    assert torch.equal(received.item_rows, original.item_rows[by_id])
    for name, value in original.dense.items():
        assert torch.equal(received.dense[name], value)


@both_transports
def test_a_client_without_rows_and_a_model_without_dense_parameters_travel(name: str) -> None:
    transport = make_transport(name, N_ITEMS)
    nothing = ClientUpdate(torch.zeros(0, dtype=torch.int64), torch.zeros(0, W), {}, 1.0)
    received = transport.decode(transport.encode(nothing, 0), 0, torch.zeros(N_ITEMS, W), {})
    assert not received.item_rows.any()
    assert received.dense == {}


@both_transports
def test_changing_what_was_received_does_not_change_the_message(name: str) -> None:
    transport, message = sent(name)
    kept = bytes(message)
    received = transport.decode(message, ROUND, *expected("float"))
    received.item_rows.zero_()
    received.dense["w"].zero_()
    assert message == kept


@both_types
def test_messages_have_the_size_the_byte_counts_say(kind: str) -> None:
    size, n_dense = (4, 9) if kind == "float" else (8, 9)
    rows = torch.tensor([4])
    transport, message = sent("plain", kind)
    assert len(message) == int(transport.upload_bytes(rows, W, n_dense, size)[0])
    assert len(message) == 28 + (N_ITEMS * W + 9) * size
    transport, message = sent("sparse", kind)
    # the ids go out a second time before training, in the request for the rows
    request = 28 + 4 * 4
    assert len(message) == int(transport.upload_bytes(rows, W, n_dense, size)[0]) - request
    assert len(message) == 28 + 4 * 4 + (4 * W + 9) * size
    assert int(transport.download_bytes(rows, W, n_dense, size)[0]) == 28 + (4 * W + 9) * size


@both_transports
@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("model", ["mf", "ncf"])
def test_a_rounds_byte_count_is_that_of_the_messages_written(
    make_federation: Callable[..., Any], name: str, ring: bool, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_federation(model, transport=name, ring=ring)
    transport = made.work.transport
    lengths, ids = [], []
    encode = transport.encode

    def counted(given: ClientUpdate, round_number: int) -> bytes:
        message: bytes = encode(given, round_number)
        lengths.append(len(message))
        ids.append(len(given.item_ids))
        return message

    monkeypatch.setattr(transport, "encode", counted)
    users = made.work.eligible()[:6]
    total = ReferenceEngine(made.work).train_clients(made.state, users, 0)
    requests = sum(28 + 4 * n for n in ids) if name == "sparse" else 0
    assert total.bytes_up == sum(lengths) + requests
    assert len(lengths) == 6


@both_transports
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"version": 2}, "version 2"),
        ({"kind": 9}, "kind 9"),
        ({"round": ROUND + 1}, "belongs to round 42, not 41"),
        ({"size": 8}, "8-byte numbers"),
        ({"size": 2}, "2-byte numbers"),
        ({"width": W + 1}, "rows of 4"),
        ({"dense": 8}, "8 dense numbers"),
        ({"rows": 5}, "bytes"),
        ({"rows": 2**32 - 1}, "bytes"),
        ({"weight": 0.0}, "weight 0.0"),
        ({"weight": -1.0}, "weight -1.0"),
        ({"weight": float("nan")}, "weight nan"),
        ({"weight": float("inf")}, "weight inf"),
    ],
)
def test_a_wrong_header_is_refused(name: str, fields: dict[str, Any], problem: str) -> None:
    transport, message = sent(name)
    with pytest.raises(TransportError, match=problem):
        transport.decode(changed(message, **fields), ROUND, *expected("float"))


@both_transports
def test_a_message_cut_short_or_with_more_behind_it_is_refused(name: str) -> None:
    transport, message = sent(name)
    for length in range(len(message)):
        with pytest.raises(TransportError, match="bytes"):
            transport.decode(message[:length], ROUND, *expected("float"))
    with pytest.raises(TransportError, match="bytes"):
        transport.decode(message + b"\0", ROUND, *expected("float"))


@both_transports
def test_the_other_transports_message_is_refused(name: str) -> None:
    other = "plain" if name == "sparse" else "sparse"
    _, message = sent(name)
    with pytest.raises(TransportError, match="kind"):
        make_transport(other, N_ITEMS).decode(message, ROUND, *expected("float"))


@both_transports
def test_a_message_for_another_model_or_number_format_is_refused(name: str) -> None:
    transport, message = sent(name)
    items, dense = expected("float")
    with pytest.raises(TransportError, match="dense numbers"):
        transport.decode(message, ROUND, items, {"bias": dense["bias"]})
    with pytest.raises(TransportError, match="rows of 3"):
        transport.decode(message, ROUND, torch.zeros(N_ITEMS, W + 1), dense)
    with pytest.raises(TransportError, match="4-byte numbers"):
        transport.decode(message, ROUND, *expected("ring"))


@pytest.mark.parametrize("ids", [(1, 1, 2, 3), (0, 1, 2, N_ITEMS), (0, 1, 2, 2**31 - 1)])
def test_ids_given_twice_or_beyond_the_catalogue_are_refused(ids: tuple[int, ...]) -> None:
    transport, message = sent("sparse")
    forged = message[: HEADER.size] + struct.pack("<4I", *ids) + message[HEADER.size + 16 :]
    with pytest.raises(TransportError, match="twice or one beyond"):
        transport.decode(forged, ROUND, *expected("float"))


def test_a_plain_message_with_another_number_of_rows_is_refused() -> None:
    message = make_transport("plain", N_ITEMS + 1).encode(update("float"), ROUND)
    with pytest.raises(TransportError, match="13 rows of a table of 12"):
        make_transport("plain", N_ITEMS).decode(message, ROUND, *expected("float"))


@both_transports
def test_numbers_of_another_type_are_not_sent(name: str) -> None:
    good = update("float")
    wide = ClientUpdate(good.item_ids, good.item_rows.double(), good.dense, 1.0)
    mixed = ClientUpdate(good.item_ids, good.item_rows, {"bias": torch.zeros(1, dtype=torch.int64)}, 1.0)
    for given_update in (wide, mixed):
        with pytest.raises(TransportError, match="float32 or, in ring mode, int64"):
            make_transport(name, N_ITEMS).encode(given_update, 0)


def refuses_or_decodes(name: str, message: bytes, kind: str) -> None:
    """Anything but an update that fits the model, or `TransportError`, fails."""
    items, dense = expected(kind)
    try:
        received = make_transport(name, N_ITEMS).decode(message, ROUND, items, dense)
    except TransportError:
        return
    ids = received.item_ids.tolist()
    assert len(set(ids)) == len(ids) == len(received.item_rows)
    assert all(0 <= i < N_ITEMS for i in ids)
    assert received.item_rows.shape[1] == W
    assert received.item_rows.dtype == items.dtype
    assert {n: v.shape for n, v in received.dense.items()} == {n: v.shape for n, v in dense.items()}
    assert 0 < received.weight < float("inf")


@given(st.binary(max_size=400), st.sampled_from(["plain", "sparse"]), st.sampled_from(["float", "ring"]))
def test_random_bytes_give_nothing_but_transport_errors(message: bytes, name: str, kind: str) -> None:
    refuses_or_decodes(name, message, kind)


@settings(max_examples=300)
@given(st.data(), st.sampled_from(["plain", "sparse"]), st.sampled_from(["float", "ring"]))
def test_a_damaged_message_gives_a_fitting_update_or_a_transport_error(data: Any, name: str, kind: str) -> None:
    message = bytearray(sent(name, kind)[1])
    where = data.draw(st.lists(st.integers(0, len(message) - 1), min_size=1, max_size=4))
    for place in where:
        message[place] = data.draw(st.integers(0, 255))
    end = data.draw(st.one_of(st.just(len(message)), st.integers(0, len(message))))
    refuses_or_decodes(name, bytes(message[:end]) + data.draw(st.binary(max_size=4)), kind)


@settings(max_examples=300)
@given(
    st.sampled_from([1, 2]), st.sampled_from([4, 8]), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1), st.floats(), st.binary(max_size=200), st.sampled_from(["plain", "sparse"]),
)  # fmt: skip
def test_a_well_formed_header_with_any_counts_is_checked(
    kind: int, size: int, rows: int, width: int, dense: int, weight: float, body: bytes, name: str
) -> None:
    for n in (rows, rows % 5):
        message = HEADER.pack(1, kind, size, ROUND, n, W if width % 2 else width, 9 if dense % 2 else dense, weight)
        refuses_or_decodes(name, message + body, "float" if size == 4 else "ring")
