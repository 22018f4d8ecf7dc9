"""Distributed point functions: keys for two parties whose trees differ in one leaf, and nobody sees which.

A label is 128 bits, its least significant bit the control bit. The trees of a client are made and expanded together.
Levels are node-major, (nodes, trees): a level's children are [all left | right ones that are needed], so node q of
level l stands for the leaves j ≡ q (mod 2^l), leaf j is node j of the last level, and a tree with fewer leaves than
a power of two saves exactly the nodes it does not need. At every node the two parties' labels are equal, except on
the path to the chosen leaf, where they are independent and their control bits differ.

Guarantee: one party's root and the correction words are together indistinguishable from random bits, whichever leaf
is chosen, if the hash of `prg` is circular correlation robust. Evaluation does the same work for every key. Making
keys takes the same operations for every leaf, but is not claimed to be constant-time on the client's own processor.

Source: Boyle, Gilboa, Ishai 2016 (figure 1), with 127-bit seeds and the control bit in the label as in Google's
library of distributed point functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.secemb.parameters import BLOCK_BYTES
from fedrec_unlearn.secemb.prg import Blocks, Hash, Hashes, Plane

_ONE = np.uint64(1)
_SEED = ~_ONE
"""Mask of a label's lower half without its control bit."""


class Corrections(NamedTuple):
    """Correction words of all trees of a client; the same for both parties."""

    lo: Plane
    """uint64 (depth, trees): lower half for left children, with their control bit."""
    hi: Plane
    """uint64 (depth, trees): upper half, for both children."""
    right: Plane
    """uint64 (depth, trees): control bit for right children, 0 or 1."""

    def lower_right(self, level: int) -> Plane:
        """Lower half for right children of a level, uint64 (trees,)."""
        lower: Plane = (self.lo[level] & _SEED) | self.right[level]
        return lower


class Labels(NamedTuple):
    """Labels of some nodes: two uint64 planes of one shape."""

    lo: Plane
    hi: Plane

    @property
    def control(self) -> Plane:
        """Control bits, 0 or 1."""
        bits: Plane = self.lo & _ONE
        return bits

    def __repr__(self) -> str:
        return f"Labels({self.lo.shape})"  # they are secret


def make_trees(
    hashes: Hashes, roots: tuple[Labels, Labels], leaves: NDArray[np.int64], depth: int
) -> tuple[Corrections, tuple[Labels, Labels]]:
    """Correction words that make the two parties' trees differ at one leaf of each tree.

    Args:
        hashes: the client's.
        roots: of party 0 and party 1, (trees,) planes; control bits 0 and 1.
        leaves: int64 (trees,), the chosen leaf of each tree.
        depth: levels below the root.

    Returns:
        the correction words, and each party's labels at the chosen leaves, (trees,) planes.
    """
    trees = len(leaves)
    blocks = Blocks(2 * trees)
    lo = np.stack([roots[0].lo, roots[1].lo])
    hi = np.stack([roots[0].hi, roots[1].hi])
    words = Corrections(*(np.empty((depth, trees), dtype=np.uint64) for _ in range(3)))
    for level in range(depth):
        bit = (leaves >> level).astype(np.uint64) & _ONE
        control = lo & _ONE
        blocks.load(lo, hi)
        left = hashes.left(blocks, 2 * trees).copy().reshape(2, trees, 2)
        right = hashes.right(blocks, 2 * trees).reshape(2, trees, 2)
        goes_right = np.uint64(0) - bit  # all ones where the path goes right
        differ_left, differ_right = left[0] ^ left[1], right[0] ^ right[1]
        lose = differ_right ^ ((differ_left ^ differ_right) & goes_right[:, None])  # the side the path leaves
        control_left = (differ_left[:, 0] ^ bit ^ _ONE) & _ONE
        control_right = (differ_right[:, 0] ^ bit) & _ONE
        words.lo[level] = (lose[:, 0] & _SEED) | control_left
        words.hi[level] = lose[:, 1]
        words.right[level] = control_right
        kept = left ^ ((left ^ right) & goes_right[None, :, None])
        control_kept = control_left ^ ((control_left ^ control_right) & goes_right)
        apply = np.uint64(0) - control
        lo = kept[:, :, 0] ^ (((lose[:, 0] & _SEED) | control_kept) & apply)
        hi = kept[:, :, 1] ^ (lose[:, 1] & apply)
    return words, (Labels(lo[0], hi[0]), Labels(lo[1], hi[1]))


class Workspace:
    """Memory for expanding trees, used again and again; for one thread.

    Args:
        capacity: nodes of a level at most, over all trees expanded together.
    """

    def __init__(self, capacity: int) -> None:
        self.blocks = Blocks(capacity)
        self._levels = np.empty((2, 2, capacity), dtype=np.uint64)
        self._apply = np.empty(capacity, dtype=np.uint64)

    def level(self, number: int, nodes: int, trees: int) -> Labels:
        """Room for a level's labels; every second level shares it."""
        lo, hi = self._levels[number % 2, :, : nodes * trees].reshape(2, nodes, trees)
        return Labels(lo, hi)

    def open(self, labels: Labels) -> Plane:
        """Load labels into the blocks.

        Returns:
            the control bits as masks, all ones or zeros, in the labels' shape; overwritten by the next call.
        """
        shape, n = labels.lo.shape, labels.lo.size
        apply: Plane = self._apply[:n].reshape(shape)
        np.bitwise_and(labels.lo, _ONE, out=apply)
        np.negative(apply, out=apply)
        self.blocks.load(labels.lo, labels.hi)
        return apply


def expand(
    hashes: Hashes, space: Workspace, labels: Labels, words: Corrections, start: int, stop: int, leaves: int
) -> Labels:
    """Expand trees from level `start` to level `stop`.

    Args:
        hashes: the client's.
        space: working memory for at least the nodes of level `stop`.
        labels: of level `start`, planes (nodes, trees).
        words: correction words of these trees.
        start, stop: levels, 0 is the root.
        leaves: leaves that are needed at the last level of the whole tree.

    Returns:
        labels of level `stop`, planes (min(2**stop, leaves), trees); `labels` if there is nothing to expand, otherwise
        a view of `space` that the next call overwrites.
    """
    for level in range(start, stop):
        nodes, trees = labels.lo.shape
        right_nodes = min(nodes, leaves - nodes)
        children = space.level(level, nodes + right_nodes, trees)
        apply = space.open(labels)
        left = Labels(*(plane[:nodes] for plane in children))
        _correct(hashes.left, space.blocks, apply, words.lo[level], words.hi[level], left)
        if right_nodes:
            right = Labels(*(plane[nodes:] for plane in children))
            _correct(hashes.right, space.blocks, apply[:right_nodes], words.lower_right(level), words.hi[level], right)
        labels = children
    return labels


def control_bits(
    hashes: Hashes, space: Workspace, labels: Labels, words: Corrections, start: int, leaves: int
) -> NDArray[np.uint8]:
    """Control bits of the leaves; cheaper than `expand`, because of the last level nothing else is made.

    Args:
        hashes, space, labels, words, start, leaves: as for `expand`, to the end of the tree.

    Returns:
        uint8 (leaves, trees), 0 or 1.
    """
    depth = len(words.lo)
    if start == depth:
        return labels.control.astype(np.uint8)
    labels = expand(hashes, space, labels, words, start, depth - 1, leaves)
    nodes, trees = labels.lo.shape
    bits = np.empty((leaves, trees), dtype=np.uint8)
    apply = space.open(labels).astype(np.uint8)
    last = depth - 1
    for hash_of, count, word, part in (
        (hashes.left, nodes, words.lo[last], bits[:nodes]),
        (hashes.right, leaves - nodes, words.right[last], bits[nodes:]),
    ):
        hashed = hash_of(space.blocks, count * trees)
        np.bitwise_and(apply[:count], word.astype(np.uint8), out=part)
        np.bitwise_xor(part, hashed.view(np.uint8)[:, 0].reshape(count, trees), out=part)
    return np.bitwise_and(bits, 1, out=bits)


def _correct(hash_of: Hash, blocks: Blocks, apply: Plane, lo: Plane, hi: Plane, children: Labels) -> None:
    """Write hash ⊕ (apply & correction) of the loaded labels into `children`, planes (nodes, trees)."""
    shape = apply.shape
    hashed = hash_of(blocks, apply.size)
    for half, (word, child) in enumerate(zip((lo, hi), children, strict=True)):
        np.bitwise_and(apply, word, out=child)
        np.bitwise_xor(child, hashed[:, half].reshape(shape), out=child)


class Converter:
    """Leaf labels to ring elements: each 16-byte block of them is the label's hash under a key of its own.

    Args:
        payload: ring elements per leaf.
        word: their type, uint32 or uint64.
        blocks: working memory for as many leaves as are converted at a time.
    """

    def __init__(self, payload: int, word: np.dtype[np.unsignedinteger], blocks: Blocks) -> None:
        self.payload, self.word, self.blocks = payload, word, blocks
        self.per_block = BLOCK_BYTES // word.itemsize
        self.passes = -(-payload // self.per_block)

    def add(self, convert: Sequence[Hash], labels: Labels, total: NDArray[np.unsignedinteger]) -> None:
        """Add every leaf's ring elements to `total`, (passes, leaves · per_block), leaves in the labels' order."""
        n = labels.lo.size
        self.blocks.load(labels.lo, labels.hi)
        for one_pass, hash_of in enumerate(convert):
            hashed = hash_of(self.blocks, n).reshape(-1).view(self.word)
            np.add(total[one_pass], hashed, out=total[one_pass])

    def values(self, convert: Sequence[Hash], labels: Labels) -> NDArray[np.unsignedinteger]:
        """Ring elements of leaves given as planes (n,): (n, payload)."""
        n = labels.lo.size
        total = np.zeros((self.passes, n * self.per_block), dtype=self.word)
        self.add(convert, labels, total)
        return self.rows(total, (n,))

    def rows(self, total: NDArray[np.unsignedinteger], shape: tuple[int, ...]) -> NDArray[np.unsignedinteger]:
        """What `add` summed as rows: (*shape, payload) for leaves of that shape."""
        apart = np.moveaxis(total.reshape(self.passes, *shape, self.per_block), 0, -2)
        return np.ascontiguousarray(apart).reshape(*shape, -1)[..., : self.payload]
