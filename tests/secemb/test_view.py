"""What one server sees does not tell which item a client holds: statistics, a trained distinguisher, and an attack.

The same measures are made on variants of the protocol that leak, each a known mistake, and must find them: a tenth of
the keys with a control bit in the clear, a correction word that is not masked, a hash without its feed-forward. All
secrets come from a fixed stream, so the outcome does not change from run to run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict

from fedrec_unlearn.secemb.client import download_bytes, forwarded_bytes, upload_bytes
from fedrec_unlearn.secemb.dpf import Corrections, Labels, Workspace, control_bits, make_trees
from fedrec_unlearn.secemb.prg import Blocks, Hash, Hashes, derive
from fedrec_unlearn.secemb.sealing import Channel, ephemeral_of

Bits = NDArray[np.uint8]
Planes = NDArray[np.uint64]
Make = Callable[..., Any]

SLOTS, DEPTH = 8, 3
ONE_LEAF, OTHER_LEAF = 0b010, 0b101
"""Their paths part at every level."""
IDENTITY = (b"d" * 32, b"c" * 16, b"n" * 16)
CERTAIN = 1e-6
"""Probability of an alarm, over all measures, if there is nothing to be found."""


class WithoutFeedForward(Hash):
    """A permutation: whoever has the output has the input."""

    def __call__(self, blocks: Blocks, n: int) -> Planes:
        return super().__call__(blocks, n) ^ blocks.input[:n]


class Keys(NamedTuple):
    """Many keys for one leaf."""

    hashes: Hashes
    roots: tuple[Labels, Labels]
    words: Corrections


def stream(name: str, n: int) -> bytes:
    return hashlib.shake_128(name.encode()).digest(n)


def keys(leaf: int, n: int, feed_forward: bool = True) -> Keys:
    hashes = Hashes(*IDENTITY, 1)
    if not feed_forward:
        hashes.left, hashes.right = (WithoutFeedForward(derive(side, *IDENTITY)) for side in ("left", "right"))
    drawn = np.frombuffer(stream(f"roots {leaf}", 32 * n), dtype="<u8").reshape(2, 2, n)
    zero, one = (Labels(lo & ~np.uint64(1) | np.uint64(party), hi) for party, (lo, hi) in enumerate(drawn))
    words, _ = make_trees(hashes, (zero, one), np.full(n, leaf), DEPTH)
    return Keys(hashes, (zero, one), words)


def bits_of(*planes: Planes) -> Bits:
    """Bits of planes (n,), as (n, 64 · planes)."""
    return np.unpackbits(np.stack(planes, axis=1).view(np.uint8), axis=1)


def hash_of(hash_: Hash, labels: Labels) -> Planes:
    """Hashes of labels (n,): (2, n), lower and upper halves."""
    blocks = Blocks(len(labels.lo))
    blocks.load(*labels)
    return hash_(blocks, len(labels.lo)).T.copy()


def consistent(made: Keys, party: int) -> Bits:
    """An attack: undo AES on what the first correction word hides, for either side that the path may leave.

    Returns:
        (n, 2): whether the other server's root found in this way agrees with all that is known of it.
    """
    own, words = made.roots[party], made.words
    children = {side: hash_of(getattr(made.hashes, side), own) for side in ("left", "right")}
    found = []
    for goes_right, lose in ((0, "right"), (1, "left")):
        decryptor = Cipher(algorithms.AES(derive(lose, *IDENTITY)[:16]), modes.ECB()).decryptor()  # type: ignore[arg-type]
        agrees = np.zeros(len(own.lo), dtype=bool)
        for last_bit in (np.uint64(0), np.uint64(1)):
            hidden = np.stack(
                [(children[lose][0] ^ words.lo[0]) & ~np.uint64(1) | last_bit, children[lose][1] ^ words.hi[0]], axis=1
            )
            lower, upper = np.frombuffer(decryptor.update(hidden.tobytes()), dtype="<u8").reshape(-1, 2).T
            root = Labels(lower ^ upper, lower.copy())  # σ undone
            left, right = (hash_of(getattr(made.hashes, side), root)[0] for side in ("left", "right"))
            agrees |= (
                (root.control == 1 - party)
                & ((children["left"][0] ^ left ^ words.lo[0]) & np.uint64(1) == 1 - goes_right)
                & ((children["right"][0] ^ right ^ words.right[0]) & np.uint64(1) == goes_right)
            )
        found.append(agrees)
    return np.stack(found, axis=1).astype(np.uint8)


def view(made: Keys, party: int) -> Bits:
    """Everything one server has of each key, and what it can compute: (n, features)."""
    own, words = made.roots[party], made.words
    n = len(own.lo)
    space = Workspace(n * SLOTS)
    leaves = control_bits(made.hashes, space, Labels(own.lo[None], own.hi[None]), words, 0, SLOTS)
    differences = [
        hash_of(hash_, own) ^ np.stack([words.lo[0], words.hi[0]]) for hash_ in (made.hashes.left, made.hashes.right)
    ]
    return np.concatenate(
        [
            bits_of(own.lo >> np.uint64(1) << np.uint64(1), own.hi),  # the control bit is the party's
            bits_of(*words.lo, *words.hi),
            words.right.T.astype(np.uint8),
            leaves.T,
            bits_of(*differences[0], *differences[1]),
            consistent(made, party),
        ],
        axis=1,
    )


class Found(NamedTuple):
    """Whether a measure tells two samples apart."""

    bits: bool
    bytes: bool
    distinguisher: bool


def bits_differ(one: Bits, other: Bits) -> bool:
    """Frequency of every bit, two samples."""
    n = len(one)
    p = (one.sum(axis=0) + other.sum(axis=0)) / (2 * n)
    varies = (p > 0) & (p < 1)
    z = (one.mean(axis=0) - other.mean(axis=0))[varies] / np.sqrt(p[varies] * (1 - p[varies]) * 2 / n)
    return bool(2 * stats.norm.sf(np.abs(z).max()) * varies.sum() < CERTAIN)


def bytes_differ(one: Bits, other: Bits) -> bool:
    """Distribution of every byte, chi-square of two samples."""
    width = one.shape[1] // 8 * 8
    least = 1.0
    for place in range(width // 8):
        counts = np.stack(
            [
                np.bincount(np.packbits(x[:, 8 * place : 8 * place + 8], axis=1)[:, 0], minlength=256)
                for x in (one, other)
            ]
        )
        seen = counts[:, counts.sum(axis=0) > 20]
        if seen.shape[1] > 1:
            least = min(least, stats.chi2_contingency(seen).pvalue)
    return bool(least * (width // 8) < CERTAIN)


def auc(one: Bits, other: Bits) -> float:
    """Cross-validated AUC of logistic regression on all bits."""
    x = np.concatenate([one, other]).astype(np.float32)
    y = np.repeat([0, 1], [len(one), len(other)])
    model = LogisticRegression(C=0.01, max_iter=60, tol=1e-3)
    order = np.random.default_rng(0).permutation(len(y))
    scores = cross_val_predict(model, x[order], y[order], cv=4, method="decision_function")
    return float(roc_auc_score(y[order], scores))


def chance(n: int) -> float:
    """How far the AUC of two samples of n strays from one half, with probability below `CERTAIN`; Mann & Whitney."""
    return float(stats.norm.isf(CERTAIN / 2) * np.sqrt((2 * n + 1) / (12 * n * n)))


def tell_apart(one: Bits, other: Bits, trained: int = 2500) -> Found:
    return Found(
        bits_differ(one, other),
        bytes_differ(one, other),
        abs(auc(one[:trained], other[:trained]) - 0.5) > chance(trained),
    )


@pytest.mark.parametrize("party", [0, 1])
def test_no_measure_tells_two_leaves_apart_by_one_servers_view(party: int) -> None:
    views = [view(keys(leaf, 16_000), party) for leaf in (ONE_LEAF, OTHER_LEAF)]
    assert tell_apart(views[0], views[1]) == Found(False, False, False)
    # and every bit of the key itself is a fair coin: 128 of the root without its control bit, 129 of each level
    for seen in views:
        key = np.delete(seen[:, : 128 + 129 * DEPTH], 7, axis=1)
        z = np.abs(key.mean(axis=0) - 0.5) * 2 * np.sqrt(len(key))
        assert key.shape[1] == 127 + 129 * DEPTH
        assert 2 * stats.norm.sf(z.max()) * key.shape[1] > CERTAIN


@pytest.mark.parametrize("party", [0, 1])
def test_measures_find_a_control_bit_in_the_clear_in_one_key_of_ten(party: int) -> None:
    n, views = 16_000, []
    for leaf in (ONE_LEAF, OTHER_LEAF):
        made = keys(leaf, n)
        leaky = np.frombuffer(stream(f"leaky {leaf}", 2 * n), dtype="<u2") < 65536 // 10
        made.words.right[0, leaky] = leaf & 1
        views.append(view(made, party))
    found = tell_apart(views[0], views[1], trained=n // 2)
    assert found.bits
    assert found.bytes
    assert found.distinguisher


@pytest.mark.parametrize("party", [0, 1])
def test_measures_find_a_correction_word_that_is_not_masked(party: int) -> None:
    views = []
    for leaf in (ONE_LEAF, OTHER_LEAF):
        made = keys(leaf, 4_000)
        lose = made.hashes.left if leaf & 1 else made.hashes.right
        lower, upper = hash_of(lose, made.roots[party])
        made.words.lo[0] = lower & ~np.uint64(1) | made.words.lo[0] & np.uint64(1)
        made.words.hi[0] = upper
        views.append(view(made, party))
    assert tell_apart(views[0], views[1]) == Found(True, True, True)


@pytest.mark.parametrize("party", [0, 1])
def test_measures_find_a_hash_without_feed_forward(party: int) -> None:
    views = [view(keys(leaf, 4_000, feed_forward=False), party) for leaf in (ONE_LEAF, OTHER_LEAF)]
    found = tell_apart(views[0], views[1])
    assert found.bits
    assert found.distinguisher
    # the attack reads the path's first step off every key, and with the feed-forward off none
    for leaf, seen in zip((ONE_LEAF, OTHER_LEAF), views, strict=True):
        assert seen[:, -2 + (leaf & 1)].all()
        assert 0.1 < view(keys(leaf, 4_000), party)[:, -2 + (leaf & 1)].mean() < 0.35


def contents(play: Any, n: int, item: int | None) -> list[Bits]:
    """All that n clients with this item send, opened: for each server (n, bits)."""
    p = play.round.parameters
    clients = [play.client() for _ in range(n)]
    requests = [client.request(np.array([] if item is None else [item], dtype=np.int64)) for client in clients]
    updates = []
    for client, answers in zip(clients, play.pair.request(requests), strict=True):
        client.rows(answers)
        updates.append(client.update(np.full((len(client.placed), p.payload), 3), np.full(p.dense, 3)))
    seen = []
    for party, private in enumerate(play.pair._private):
        opened = b""
        for request, update in zip(requests, updates, strict=True):
            channel = Channel.from_client(private, ephemeral_of(request[party]))
            opened += channel.open(request[party]) + channel.open(update[party])
        seen.append(np.unpackbits(np.frombuffer(opened, dtype=np.uint8).reshape(n, -1), axis=1))
    return seen


def test_no_measure_tells_two_items_or_none_apart_by_what_a_client_sends(make_round: Make) -> None:
    n = 1_000
    sizes = {"n_items": 16, "max_items": 2, "encoding": "paper", "bins": 0, "width": 1, "payload": 1, "dense": 1}
    play = make_round(**sizes, max_clients=3 * n, limit=100)
    drawn = 0

    def token_bytes(size: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return stream(f"client {drawn}", size)

    with mock.patch("secrets.token_bytes", token_bytes):
        views = [contents(play, n, item) for item in (0b0101, 0b1010, None)]
    assert drawn == 4 * 3 * n  # nonce, two seeds, dummies
    for party in (0, 1):
        for other in (1, 2):
            assert tell_apart(views[0][party], views[other][party], trained=n) == Found(False, False, False)


@pytest.mark.parametrize("whole", [False, True], ids=["forwarded", "whole"])
@pytest.mark.parametrize("encoding", ["binned", "paper"])
def test_sizes_are_the_same_for_every_client_whatever_it_holds(encoding: str, whole: bool, make_round: Make) -> None:
    play = make_round(encoding=encoding, whole_keys=whole, bins=0, n_items=300)
    most = play.round.parameters.max_items
    sizes = set()
    for held in (0, 1, 2, most):
        items = np.arange(held) * 7
        client = play.client()
        requests = client.request(items)
        before = play.pair.bytes_between
        (answers,) = play.pair.request([requests])
        rows = client.rows(answers)
        updates = client.update(np.ones((len(rows), 4), np.int64), np.zeros(2, np.int64))
        play.pair.update([updates])
        assert len(rows) == held
        sizes.add((*map(len, (*requests, *answers, *updates)), play.pair.bytes_between - before))
    ((*sent, forwarded),) = sizes
    assert sum(sent[:2]) + sum(sent[4:]) == upload_bytes(play.round)
    assert sum(sent[2:4]) == download_bytes(play.round)
    assert forwarded == forwarded_bytes(play.round)
    assert play.pair.close().clients == 4
