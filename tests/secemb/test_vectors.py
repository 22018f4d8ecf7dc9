"""Test vectors, and an implementation of the client's and servers' work from the protocol's description alone.

The reference works on Python integers, a node at a time, and shares no code with the package. Its conventions: a label
is a number of 128 bits, in bytes little-endian; its lowest bit is the control bit; level l of a path is bit l of the
leaf's number, lowest first.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import json
import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

VECTORS = Path(__file__).parent / "vectors"
NAMES = sorted(path.stem for path in VECTORS.glob("*.json") if path.stem != "sealing")
WORD = (1 << 64) - 1


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def make() -> Any:
    """The script that made the vectors."""
    spec = importlib.util.spec_from_file_location("secemb_vectors_make", VECTORS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Reference:
    """One client's trees, as both servers see them."""

    def __init__(self, name: str) -> None:
        self.v = load(name)
        self.p = p = self.v["parameters"]
        self.digest, self.client, self.nonce = (bytes.fromhex(self.v[part]) for part in ("digest", "client", "nonce"))
        stream = hashlib.shake_256(f"table {name}".encode()).digest(4 * p["n_items"] * p["width"])
        numbers = [x for (x,) in struct.iter_unpack("<i", stream)]
        self.table = [numbers[i : i + p["width"]] for i in range(0, len(numbers), p["width"])]
        self.contents = {k: [bytes.fromhex(c) for c in pair] for k, pair in self.v["contents"].items()}
        self.seeds = [content[:16] for content in self.contents["request"]]
        self.ring = 1 << p["ring"]
        self.word = p["ring"] // 8

    def derived(self, purpose: str, number: int = 0, secret: bytes = b"") -> bytes:
        bound = struct.pack("<I", number) + self.digest + self.client + self.nonce + secret
        return hashlib.sha256(b"fedrec secemb " + purpose.encode() + b"\0" + bound).digest()

    @cache  # noqa: B019
    def cipher(self, purpose: str, number: int) -> Any:
        return Cipher(algorithms.AES128(self.derived(purpose, number)[:16]), modes.ECB()).encryptor()

    def hash(self, purpose: str, label: int, number: int = 0) -> int:
        upper, lower = label >> 64, label & WORD
        sigma = (upper ^ lower) << 64 | upper
        block = sigma.to_bytes(16, "little")
        return int.from_bytes(self.cipher(purpose, number).update(block), "little") ^ sigma

    def root(self, party: int, tree: int) -> int:
        hashed = self.hash("roots", int.from_bytes(self.seeds[party], "little") ^ tree)
        return hashed >> 1 << 1 | party

    @property
    def corrections(self) -> list[list[tuple[int, int, int]]]:
        """Of each tree and level: seed, control bit for left, for right children; from the message's bytes."""
        packed, trees, depth = self.contents["request"][0][16:], self.p["trees"], self.p["depth"]
        count = trees * depth
        lower = [x for (x,) in struct.iter_unpack("<Q", packed[: 8 * count])]
        upper = [x for (x,) in struct.iter_unpack("<Q", packed[8 * count : 16 * count])]
        bits = "".join(f"{byte:08b}" for byte in packed[16 * count :])
        assert len(bits) == -(-count // 8) * 8
        assert "1" not in bits[count:]
        at = [[level * trees + tree for level in range(depth)] for tree in range(trees)]
        return [[(upper[i] << 64 | lower[i] >> 1 << 1, lower[i] & 1, int(bits[i])) for i in places] for places in at]

    def leaf(self, node: int, words: list[tuple[int, int, int]], leaf: int) -> int:
        """Label of a leaf under a node, by going down one level and calling itself."""
        if not words:
            return node
        (seed, left, right), *deeper = words
        child = self.hash("right" if leaf & 1 else "left", node)
        if node & 1:
            child ^= seed ^ (right if leaf & 1 else left)
        return self.leaf(child, deeper, leaf >> 1)

    def generate(self, nodes: tuple[int, int], point: int, depth: int) -> list[tuple[int, int, int]]:
        """Correction words from the two roots down to the point: Boyle, Gilboa, Ishai 2016, figure 1."""
        if depth == 0:
            return []
        bit = point & 1
        left, right = ([self.hash(side, node) for node in nodes] for side in ("left", "right"))
        lose, keep = (left, right) if bit else (right, left)
        seed = (lose[0] ^ lose[1]) >> 1 << 1
        control = {"left": (left[0] ^ left[1] ^ bit ^ 1) & 1, "right": (right[0] ^ right[1] ^ bit) & 1}
        kept = control["right" if bit else "left"]
        below = [child ^ (seed ^ kept if node & 1 else 0) for node, child in zip(nodes, keep, strict=True)]
        return [(seed, control["left"], control["right"]), *self.generate((below[0], below[1]), point >> 1, depth - 1)]

    @cache  # noqa: B019
    def leaves(self, party: int) -> list[list[int]]:
        """Labels of all leaves of all trees."""
        words = self.corrections
        return [
            [self.leaf(self.root(party, tree), words[tree], leaf) for leaf in range(self.p["slots"])]
            for tree in range(self.p["trees"])
        ]

    def points(self) -> list[int]:
        """The one leaf of each tree where the parties' labels differ."""
        found = []
        for zero, one in zip(self.leaves(0), self.leaves(1), strict=True):
            different = [leaf for leaf, pair in enumerate(zip(zero, one, strict=True)) if pair[0] != pair[1]]
            assert len(different) == 1
            assert (zero[different[0]] ^ one[different[0]]) & 1 == 1
            found.append(different[0])
        return found

    def converted(self, label: int) -> list[int]:
        """A leaf's ring elements."""
        per_block = 16 // self.word
        blocks = [self.hash("convert", label, number) for number in range(-(-self.p["payload"] // per_block))]
        stream = b"".join(block.to_bytes(16, "little") for block in blocks)
        return self.ints(stream)[: self.p["payload"]]

    def ints(self, data: bytes) -> list[int]:
        return [int.from_bytes(data[i : i + self.word], "little") for i in range(0, len(data), self.word)]

    def bytes(self, numbers: list[int]) -> bytes:
        return b"".join((number % self.ring).to_bytes(self.word, "little") for number in numbers)

    def place(self, item: int) -> list[tuple[int, int]]:
        """Every tree and leaf an item has, by sorting the catalogue by its splitmix64 words."""
        if self.p["encoding"] == "paper":
            return [(tree, item) for tree in range(self.p["trees"])]
        per_group = self.p["trees"] // self.p["hashes"]
        ranks = [ranks_of(self.p["code_seed"], group, self.p["n_items"])[item] for group in range(self.p["hashes"])]
        return [(group * per_group + rank % per_group, rank // per_group) for group, rank in enumerate(ranks)]

    def items(self) -> dict[tuple[int, int], int]:
        """Item of a tree and leaf."""
        return {where: item for item in range(self.p["n_items"]) for where in self.place(item)}


def mix(x: int) -> int:
    """Splitmix64's finaliser."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    return x ^ x >> 31


@cache
def ranks_of(seed: int, group: int, n_items: int) -> list[int]:
    """Place of each item in a group's permutation."""
    gamma, batch_code = 0x9E3779B97F4A7C15, 15
    key = mix(seed + gamma & WORD)
    for value in (batch_code, group):
        key = mix(key ^ mix(value + gamma & WORD))
    order = sorted(range(n_items), key=lambda item: mix(item * gamma + key & WORD))
    ranks = [0] * n_items
    for rank, item in enumerate(order):
        ranks[item] = rank
    return ranks


@pytest.fixture(scope="module", params=NAMES)
def reference(request: pytest.FixtureRequest) -> Reference:
    return Reference(request.param)


def test_there_is_a_vector_of_every_shape() -> None:
    made = [load(name)["parameters"] for name in NAMES]
    assert {(p["payload"], p["ring"]) for p in made} >= {
        (payload, ring) for payload in (1, 3, 4, 64, 65) for ring in (32, 64) if (payload, ring) != (4, 32)
    }
    assert {p["depth"] for p in made} >= {0, 1, 2, 3, 4, 5, 6, 7, 9}
    assert sum(p["slots"].bit_count() > 1 for p in made) > 5
    assert {p["encoding"] for p in made} == {"binned", "paper"}
    assert {p["whole_keys"] for p in made} == {True, False}


def test_package_still_makes_the_vectors(make: Any) -> None:
    made = make.everything()
    assert sorted(made) == sorted([*NAMES, "sealing"])
    for name, vector in made.items():
        assert json.loads(json.dumps(vector)) == load(name), name


def test_digest_binds_the_whole_description(reference: Reference) -> None:
    v, p = reference.v, reference.p
    described = bytes.fromhex(v["round"])
    assert hashlib.sha256(b"fedrec secemb round\0" + described).digest() == reference.digest
    rows = b"".join(struct.pack("<q", x) for row in reference.table for x in row)
    table = hashlib.sha256(struct.pack("<QQ", p["n_items"], p["width"]) + rows).digest()
    assert described[20:52] == table
    fields = struct.unpack("<BBBBIIIIIIIIqqdQ", described[52:])
    encoding = ["binned", "paper"].index(p["encoding"])
    assert fields[:7] == (1, encoding, p["ring"], p["whole_keys"], p["n_items"], p["width"], p["payload"])
    assert fields[7] == p["dense"]
    assert fields[11] == p["trees"]
    assert fields[13:] == (p["hashes"], 0.0, p["code_seed"])


def test_trees_differ_in_one_leaf_and_the_words_are_those_of_the_reference(reference: Reference) -> None:
    points, words = reference.points(), reference.corrections
    for tree, point in enumerate(points):
        roots = reference.root(0, tree), reference.root(1, tree)
        assert reference.generate(roots, point, reference.p["depth"]) == words[tree]


def test_server_one_gets_the_words_or_their_hash(reference: Reference) -> None:
    for kind, start in (("request", 16), ("update", 0)):
        zero, one = reference.contents[kind]
        words = zero[start:]
        sent = words if reference.p["whole_keys"] else hashlib.sha256(words).digest()
        assert one[start : start + len(sent)] == sent
        assert len(one) == start + len(sent) + (8 * reference.p["dense"] if kind == "update" else 0)


def test_every_item_held_has_a_tree_that_points_at_it(reference: Reference) -> None:
    points = set(enumerate(reference.points()))
    held = [set(reference.place(item)) & points for item in reference.v["items"]]
    if reference.p["encoding"] == "paper":  # every tree spans the catalogue; the first ones are taken
        assert reference.points()[: len(held)] == reference.v["items"]
    assert all(held)


def test_answers_are_sums_over_control_bits_and_open_to_the_rows(reference: Reference) -> None:
    p, item_of = reference.p, reference.items()
    zero_row = [0] * p["width"]
    shares = []
    for party in (0, 1):
        rows = []
        for tree, leaves in enumerate(reference.leaves(party)):
            total = zero_row
            for leaf, label in enumerate(leaves):
                if label & 1 and (tree, leaf) in item_of:
                    total = [a + b for a, b in zip(total, reference.table[item_of[tree, leaf]], strict=True)]
            rows.append(total)
        assert b"".join(map(reference.bytes, rows)) == reference.contents["response"][party]
        shares.append(rows)
    for tree, point in enumerate(reference.points()):
        sign = 1 if reference.leaves(0)[tree][point] & 1 else -1
        opened = [sign * (a - b) for a, b in zip(shares[0][tree], shares[1][tree], strict=True)]
        item = item_of.get((tree, point))
        assert opened == (zero_row if item is None else reference.table[item])


def test_final_words_and_dense_shares_are_those_of_the_reference(reference: Reference) -> None:
    p, v = reference.p, reference.v
    rows = [[int(x) for x in row.split()] for row in v["rows"]]
    row_of = dict(zip(v["items"], rows, strict=True))
    item_of = reference.items()
    packed = reference.contents["update"][0]
    size = p["payload"] * reference.word
    used: dict[int, int] = {}
    for tree, point in enumerate(reference.points()):
        zero, one = (reference.leaves(party)[tree][point] for party in (0, 1))
        sign = -1 if one & 1 else 1
        final = reference.ints(packed[tree * size : (tree + 1) * size])
        carried = [
            (a - b + sign * word) % reference.ring
            for a, b, word in zip(reference.converted(zero), reference.converted(one), final, strict=True)
        ]
        if any(carried):
            item = item_of[tree, point]
            assert carried == [x % reference.ring for x in row_of[item]]
            used[item] = tree
    assert sorted(used) == sorted(v["items"])
    key = reference.derived("masks", secret=reference.seeds[0])
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor().update(bytes(8 * p["dense"]))
    share = reference.contents["update"][1][-8 * p["dense"] :] if p["dense"] else b""
    for value, mask, rest in zip(
        v["dense"], struct.iter_unpack("<Q", stream), struct.iter_unpack("<Q", share), strict=True
    ):
        assert (mask[0] + rest[0]) & WORD == value & WORD
    masked = {"0": stream, "1": share}
    assert [hashlib.sha256(masked[party]).hexdigest() for party in "01"] == [part["dense"] for part in v["partials"]]


def test_servers_sums_are_those_of_the_reference(reference: Reference) -> None:
    p, item_of = reference.p, reference.items()
    packed, size = reference.contents["update"][0], reference.p["payload"] * reference.word
    for party in (0, 1):
        rows = [[0] * p["payload"] for _ in range(p["n_items"])]
        for tree, leaves in enumerate(reference.leaves(party)):
            final = reference.ints(packed[tree * size : (tree + 1) * size])
            for leaf, label in enumerate(leaves):
                item = item_of.get((tree, leaf))
                if item is None:
                    continue
                share = [x + (label & 1) * word for x, word in zip(reference.converted(label), final, strict=True)]
                sign = -1 if party else 1
                rows[item] = [total + sign * x for total, x in zip(rows[item], share, strict=True)]
        data = b"".join(map(reference.bytes, rows))
        assert hashlib.sha256(data).hexdigest() == reference.v["partials"][party]["rows"]


def test_sealed_messages_are_those_of_the_standards() -> None:
    vector = load("sealing")
    server, client = (
        X25519PrivateKey.from_private_bytes(bytes.fromhex(vector[f"{side}_private"])) for side in ("server", "client")
    )
    publics = [key.public_key().public_bytes_raw() for key in (client, server)]
    shared = server.exchange(X25519PublicKey.from_public_bytes(publics[0]))
    content = bytes.fromhex(vector["content"])
    assert len(vector["messages"]) == 6
    keys = set()
    for name, text in vector["messages"].items():
        message = bytes.fromhex(text)
        header = message[:72]
        kind, party = name.split()
        identifiers = bytes(range(32)) + bytes(range(16)) + bytes(range(16, 32))
        number = {"REQUEST": 1, "UPDATE": 2, "RESPONSE": 5}[kind]
        assert header == struct.pack("<BBBBI", 1, number, int(party), 0, 77) + identifiers
        # RFC 5869 with a salt of zeros, one block of output
        extracted = hmac.digest(bytes(32), shared, "sha256")
        info = b"fedrec secemb seal\0" + b"".join(publics) + header
        key = hmac.digest(extracted, info + b"\1", "sha256")
        keys.add(key)
        front = header + (publics[0] if kind == "REQUEST" else b"")
        assert message == front + ChaCha20Poly1305(key).encrypt(bytes(12), content, header)
    assert len(keys) == 6  # the cipher's nonce is always zero: every message needs a key of its own
