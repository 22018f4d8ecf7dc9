"""Laws of the parts: trees, batch code, matching, descriptions, correction words, sealed messages."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.batch_code import Code
from fedrec_unlearn.secemb.dpf import Corrections, Labels, Workspace, control_bits, expand, make_trees
from fedrec_unlearn.secemb.matching import match
from fedrec_unlearn.secemb.parameters import Parameters, Round
from fedrec_unlearn.secemb.prg import Hashes
from fedrec_unlearn.secemb.sealing import Channel, sealed_bytes
from fedrec_unlearn.secemb.wire import Header, Kind, header_of, pack_corrections, unpack_corrections

SECRET = st.binary(min_size=16, max_size=16)
DIGEST = st.binary(min_size=32, max_size=32)


@st.composite
def parameters(draw: st.DrawFn, n_items: int = 400) -> Parameters:
    """Any parameters that are allowed and small."""
    encodings: tuple[Literal["binned", "paper"], ...] = ("binned", "paper")
    encoding = draw(st.sampled_from(encodings))
    hashes = draw(st.integers(1, 6))
    width = draw(st.integers(1, 70))
    most = draw(st.integers(1, 40))
    bins = 0 if encoding == "paper" else draw(st.integers(0, 30)) * hashes
    clients = draw(st.integers(1, 1000))
    return Parameters(
        n_items=draw(st.integers(1, n_items)),
        width=width,
        payload=width + draw(st.integers(0, 1)),
        dense=draw(st.integers(0, 50)),
        max_items=most,
        limit=draw(st.integers(1, 1 << 20)),
        max_clients=clients,
        min_clients=draw(st.integers(1, clients)),
        encoding=encoding,
        ring_bits=draw(st.sampled_from([32, 64])),
        hashes=hashes,
        bins=bins,
        code_seed=draw(st.integers(0, (1 << 63) - 1)),
        whole_keys=draw(st.booleans()),
        noise=draw(st.sampled_from([0.0, 0.3, 1.5, 1000.25])),
    )


class Trees:
    """A client's trees with given secrets."""

    def __init__(self, digest: bytes, seeds: tuple[bytes, bytes], points: list[int], slots: int) -> None:
        self.hashes = Hashes(digest, digest[:16], digest[16:], 1)
        self.trees, self.slots, self.depth = len(points), slots, (slots - 1).bit_length()
        self.space = Workspace(self.trees * slots)
        self.points = np.array(points)
        zero, one = (Labels(*self.hashes.root_labels(seed, self.trees, party)) for party, seed in enumerate(seeds))
        self.roots = (zero, one)
        self.words, self.at_points = make_trees(self.hashes, self.roots, self.points, self.depth)

    def level(self, party: int, stop: int) -> Labels:
        """Labels of a level, planes (nodes, trees)."""
        roots = Labels(*(plane[None] for plane in self.roots[party]))
        nodes = expand(self.hashes, self.space, roots, self.words, 0, stop, self.slots)
        return Labels(*(plane.copy() for plane in nodes))


@st.composite
def some_trees(draw: st.DrawFn) -> Trees:
    slots = draw(st.integers(1, 200))
    points = draw(st.lists(st.integers(0, slots - 1), min_size=1, max_size=9))
    zero, one = draw(st.lists(SECRET, min_size=2, max_size=2, unique=True))
    return Trees(draw(DIGEST), (zero, one), points, slots)


@given(some_trees())
@settings(max_examples=80, deadline=None)
def test_labels_are_equal_off_the_path_and_differ_on_it(made: Trees) -> None:
    for level in range(made.depth + 1):
        zero, one = made.level(0, level), made.level(1, level)
        nodes = min(1 << level, made.slots)
        assert zero.lo.shape == (nodes, made.trees)
        on_path = np.arange(nodes)[:, None] == made.points % (1 << level)
        np.testing.assert_array_equal(zero.control != one.control, on_path)
        np.testing.assert_array_equal(zero.hi != one.hi, on_path)
        np.testing.assert_array_equal((zero.lo ^ one.lo) > 1, on_path)


@given(some_trees(), st.integers(0, 8))
@settings(max_examples=60, deadline=None)
def test_expansion_from_any_level_and_of_control_bits_alone_is_the_same(made: Trees, start: int) -> None:
    start = min(start, made.depth)
    for party in (0, 1):
        leaves, nodes = made.level(party, made.depth), made.level(party, start)
        again = expand(made.hashes, made.space, nodes, made.words, start, made.depth, made.slots)
        for plane, expected in zip(again, leaves, strict=True):
            np.testing.assert_array_equal(plane, expected)
        bits = control_bits(made.hashes, made.space, nodes, made.words, start, made.slots)
        np.testing.assert_array_equal(bits, leaves.control)
        own = np.arange(made.trees)
        for plane, expected in zip(made.at_points[party], leaves, strict=True):
            np.testing.assert_array_equal(plane, expected[made.points, own])


@given(some_trees())
@settings(max_examples=40, deadline=None)
def test_correction_words_come_back_from_their_bytes(made: Trees) -> None:
    class Sizes:
        depth, trees = made.depth, made.trees
        correction_bytes = made.trees * made.depth * 16 + -(-made.trees * made.depth // 8)

    packed = pack_corrections(made.words)
    back = unpack_corrections(packed, Sizes)  # type: ignore[arg-type]
    for plane, expected in zip(back, made.words, strict=True):
        np.testing.assert_array_equal(plane, expected)
    assert pack_corrections(Corrections(*back)) == packed
    for damaged in (packed + b"\0", packed[:-1]):
        if damaged != packed:
            with pytest.raises(TransportError, match="correction words have"):
                unpack_corrections(damaged, Sizes)  # type: ignore[arg-type]
    unused = -made.trees * made.depth % 8
    if unused:
        with pytest.raises(TransportError, match="beyond the last"):
            unpack_corrections(packed[:-1] + bytes([packed[-1] | 1]), Sizes)  # type: ignore[arg-type]


@given(parameters())
@settings(max_examples=80, deadline=None)
def test_every_item_lies_in_distinct_bins_of_equal_size(p: Parameters) -> None:
    code = Code(p)
    everything = np.arange(p.n_items)
    if p.encoding == "paper":
        for tree in range(min(p.trees, 3)):
            trees = np.full(p.n_items, tree)
            np.testing.assert_array_equal(everything[code.items(tree)], everything)
            np.testing.assert_array_equal(code.leaves(everything, trees), everything)
        return
    per_group = p.trees // p.hashes
    assert code.bin_of.shape == (p.hashes, p.n_items)
    # one bin in each group, so k distinct ones
    np.testing.assert_array_equal(code.bin_of // per_group, np.arange(p.hashes)[:, None] + 0 * code.bin_of)
    sizes = np.bincount(code.bin_of.ravel(), minlength=p.trees)
    assert sizes.max() - sizes.min() <= 1
    assert sizes.max() == p.slots
    layout = np.array([code.items(tree) for tree in range(p.trees)])
    assert layout.shape == (p.trees, p.slots)
    for group in range(p.hashes):
        trees = code.bin_of[group].astype(np.int64)
        np.testing.assert_array_equal(layout[trees, code.leaves(everything, trees)], everything)
    # every leaf is an item's, each item's k times, or nobody's
    counts = np.bincount(layout.ravel(), minlength=p.n_items + 1)
    assert (counts[:-1] == p.hashes).all()
    np.testing.assert_array_equal((layout == p.n_items).sum(axis=1), p.slots - sizes)


@given(parameters(), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_matching_gives_distinct_bins_of_the_items_and_as_many_as_there_can_be(p: Parameters, random: Any) -> None:
    code = Code(p)
    items = np.array(random.sample(range(p.n_items), min(p.max_items, p.n_items)), dtype=np.int64)
    trees = match(code, items)
    placed = np.flatnonzero(trees >= 0)
    assert len(np.unique(trees[placed])) == len(placed)
    assert (trees < p.trees).all()
    if p.encoding == "paper":
        assert len(placed) == len(items)
        return
    assert (code.bin_of[:, items[placed]] == trees[placed]).any(axis=0).all()
    choices = code.bin_of[:, items]
    own = np.broadcast_to(np.arange(len(items)), choices.shape)
    edges = coo_array((np.ones(choices.size), (own.ravel(), choices.ravel())), shape=(len(items), p.trees)).tocsr()
    assert len(placed) == (maximum_bipartite_matching(edges, perm_type="column") >= 0).sum()
    # an item is left out only if there is no room beside those before it: the largest set in their order
    for item in range(len(items)):
        before = edges[: item + 1]
        most = (maximum_bipartite_matching(before, perm_type="column") >= 0).sum()
        assert (trees[: item + 1] >= 0).sum() == most
    if p.hashes > 1 and p.trees > 1:
        assert (trees[:2] >= 0).all()


@given(parameters(), SECRET, st.integers(0, (1 << 32) - 1), DIGEST)
@settings(max_examples=100, deadline=None)
def test_descriptions_come_back_from_their_bytes(p: Parameters, run: bytes, number: int, table: bytes) -> None:
    assert Parameters.from_bytes(p.to_bytes()) == p
    round_ = Round(p, run, number, table)
    again = Round.from_bytes(round_.to_bytes())
    assert again == round_
    assert again.digest == round_.digest
    for other in (
        replace(round_, number=number ^ 1),
        replace(round_, run=bytes([run[0] ^ 1]) + run[1:]),
        replace(round_, table=table[:-1] + bytes([table[-1] ^ 1])),
        replace(round_, parameters=replace(p, whole_keys=not p.whole_keys)),
        replace(round_, parameters=replace(p, dense=p.dense + 1)),
    ):
        assert other.digest != round_.digest


@given(parameters())
@settings(max_examples=40, deadline=None)
def test_no_second_form_of_a_description_is_taken(p: Parameters) -> None:
    valid = p.to_bytes()
    for bit in range(8 * len(valid)):
        data = bytearray(valid)
        data[bit // 8] ^= 1 << bit % 8
        try:
            other = Parameters.from_bytes(bytes(data))
        except TransportError:
            continue
        assert other.to_bytes() == bytes(data)
        assert other != p


def test_bins_beyond_the_catalogue_have_one_form() -> None:
    # a bin for each item is what all of these come to
    valid = Parameters(100, 3, 3, 0, 5, 10, 10, bins=100).to_bytes()
    assert Parameters.from_bytes(valid).hashes == 1
    for bins, hashes in ((104, 4), (104, 1), (100, 4)):
        other = valid[:32] + struct.pack("<Iqq", bins, 10, hashes) + valid[52:]
        with pytest.raises(TransportError, match="not in the one form"):
            Parameters.from_bytes(other)


@pytest.mark.parametrize("noise", [-0.0, float("nan"), float("inf"), 0.29, -1.0, 2.0**41])
def test_noise_that_cannot_be_drawn_is_refused_before_a_round(noise: float) -> None:
    p = Parameters(100, 3, 3, 0, 5, 10, 10, ring_bits=64)
    with pytest.raises(TransportError, match="noise must be 0 or lie in"):
        replace(p, noise=noise)
    valid = p.to_bytes()
    forged = valid[:-16] + struct.pack("<d", noise) + valid[-8:]
    with pytest.raises(TransportError, match="noise must be 0 or lie in"):
        Parameters.from_bytes(forged)


def test_overflow_is_ruled_out_by_the_parameters() -> None:
    for ring_bits in (32, 64):
        for clients in (1, 2, 1000):
            limit = ((1 << (ring_bits - 1)) - 1) // clients
            if limit < (1 << 62) - 1:
                Parameters(100, 3, 3, 0, 5, limit, clients, 1, ring_bits=ring_bits)
                with pytest.raises(TransportError, match="can leave a ring"):
                    Parameters(100, 3, 3, 0, 5, limit + 1, clients, 1, ring_bits=ring_bits)
                # noise takes its share of the ring
                with pytest.raises(TransportError, match="can leave a ring"):
                    Parameters(100, 3, 3, 0, 5, limit, clients, 1, ring_bits=ring_bits, noise=(1 << 28) + 0.5)


HEADERS = st.builds(
    Header,
    st.sampled_from(Kind),
    st.integers(0, 1),
    st.integers(0, (1 << 32) - 1),
    DIGEST,
    SECRET,
    SECRET,
)


@given(HEADERS)
def test_headers_come_back_from_their_bytes(header: Header) -> None:
    data = header.to_bytes()
    assert len(data) == 72
    assert header_of(data) == header_of(data + b"more") == header


@given(HEADERS, st.binary(max_size=200), st.integers(0, 1 << 30))
@settings(max_examples=100, deadline=None)
def test_sealed_messages_open_at_the_other_end_and_no_bit_can_be_changed(
    header: Header, content: bytes, bit: int
) -> None:
    server = X25519PrivateKey.generate()
    client = Channel.to_server(server.public_key().public_bytes_raw())
    other_end = Channel.from_client(server, client.ephemeral)
    message = client.seal(header, content)
    assert len(message) == sealed_bytes(header.kind, len(content))
    assert other_end.open(message) == content
    assert other_end.seal(header, content) == message
    damaged = bytearray(message)
    damaged[bit // 8 % len(message)] ^= 1 << bit % 8
    if header.kind is Kind.REQUEST and 72 <= bit // 8 % len(message) < 104:
        other_end = Channel.from_client(server, bytes(damaged[72:104]))
    with pytest.raises(TransportError):
        other_end.open(bytes(damaged))
    if header.kind is Kind.REQUEST:  # X25519 itself would ignore this bit
        damaged = bytearray(message)
        damaged[103] ^= 0x80
        with pytest.raises(TransportError, match="was changed"):
            Channel.from_client(server, bytes(damaged[72:104])).open(bytes(damaged))
    stranger = Channel.from_client(X25519PrivateKey.generate(), client.ephemeral)
    with pytest.raises(TransportError, match="not sealed for this server"):
        stranger.open(message)


@pytest.mark.parametrize("key", [bytes(32), b"\1" + bytes(31), bytes(31), b"\xff" * 33])
def test_keys_that_are_not_of_the_group_are_refused(key: bytes) -> None:
    # zero and one have small order: everybody would know the secret
    with pytest.raises(TransportError, match="not one of X25519"):
        Channel.to_server(key)
    with pytest.raises(TransportError, match="not one of X25519"):
        Channel.from_client(X25519PrivateKey.generate(), key)
