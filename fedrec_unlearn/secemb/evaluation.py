"""What a server computes: shares of the rows clients ask for, and its share of the sum of their updates.

Trees are expanded a few at a time, so that a chunk's labels, its part of the accumulator and its part of the table
stay in the processor's cache while all clients of a batch are served. The shallow levels of a client's trees are
expanded once, together; every chunk goes on from there.

All arithmetic is exact. Control bits times rows are matrix products in float64: a row's 32-bit halves are below
2^32 and at most 2^21 of them are added, so no product leaves the 53 bits that float64 holds exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.secemb.batch_code import Code
from fedrec_unlearn.secemb.dpf import Converter, Corrections, Labels, Workspace, control_bits, expand
from fedrec_unlearn.secemb.prg import Hashes

Words = NDArray[np.unsignedinteger]
Doubles = NDArray[np.float64]

_RETRIEVED_LEAVES = 1 << 16
"""Leaves expanded at a time for a retrieval."""
_ADDED_LEAVES = 1 << 15
"""Leaves expanded at a time for a sum, of which a part of the accumulator goes along."""
_SHALLOW_NODES = 1 << 16
"""Nodes at most up to which all trees of a client are expanded together."""
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class Key:
    """One client's key as a server evaluates it."""

    hashes: Hashes
    roots: Labels
    """Planes (trees,)."""
    corrections: Corrections


class Table:
    """Rows of the item table, ready for exact products with control bits.

    Args:
        rows: int64 (n_items, width) fixed point; only its value modulo the ring counts.
        word: type of the ring's numbers.
    """

    def __init__(self, rows: NDArray[np.int64], word: np.dtype[np.unsignedinteger]) -> None:
        self.word = word
        padded = np.concatenate([rows, np.zeros((1, rows.shape[1]), dtype=np.int64)])
        self._halves = _halves(padded.astype(word))

    def times(self, bits: NDArray[np.uint8], items: NDArray[np.int64] | slice) -> Words:
        """Σ_j bits[u, j] · row(items[j]).

        Args:
            bits: zeros and ones, (U, slots).
            items: of the leaves, as `Code.items` gives them; n_items stands for a row of zeros.

        Returns:
            ring words (U, width).
        """
        numbers = bits.astype(np.float64)
        return _join([numbers @ half[items] for half in self._halves], self.word)


def _halves(words: Words) -> list[Doubles]:
    """Ring words as float64: one array of 32-bit numbers, or those of the lower and of the upper half."""
    if words.dtype.itemsize == 4:
        return [words.astype(np.float64)]
    return [(words & _LOW).astype(np.float64), (words >> _HALF).astype(np.float64)]


def _join(halves: list[Doubles], word: np.dtype[np.unsignedinteger]) -> Words:
    """Ring words from sums of halves, each an integer below 2^53."""
    low = halves[0].astype(np.uint64)
    if len(halves) == 1:
        return low.astype(word)
    return low + (halves[1].astype(np.uint64) << _HALF)


class Evaluator:
    """Evaluates keys for one set of parameters; for one thread.

    Args:
        code: what each leaf stands for.
        party: 0 or 1.
    """

    def __init__(self, code: Code, party: int) -> None:
        self.code, self.party = code, party
        self.parameters = p = code.parameters
        self.shallow = 0
        while self.shallow < p.depth - 2 and min(2 << self.shallow, p.slots) * p.trees <= _SHALLOW_NODES:
            self.shallow += 1
        self._space = Workspace(max(_RETRIEVED_LEAVES, p.slots, _SHALLOW_NODES, p.trees))

    def retrieve(self, keys: Sequence[Key], table: Table) -> Words:
        """This party's shares of the rows at the keys' points.

        Args:
            keys: of U clients.
            table: the table's rows.

        Returns:
            (U, trees, width) ring words: Σ_j t(j) · row(j). The two parties' shares differ by ± the row at the point.
        """
        p = self.parameters
        shares = np.empty((len(keys), p.trees, p.width), dtype=p.word)
        upper = [self._upper(key) for key in keys]
        for chunk in self._chunks(_RETRIEVED_LEAVES):
            bits = np.empty((chunk.stop - chunk.start, len(keys), p.slots), dtype=np.uint8)
            for place, key in enumerate(keys):
                part, words = self._part(key, upper[place], chunk)
                bits[:, place] = control_bits(key.hashes, self._space, part, words, self.shallow, p.slots).T
            for place, tree in enumerate(range(chunk.start, chunk.stop)):
                shares[:, tree] = table.times(bits[place], self.code.items(tree))
        return shares

    def aggregate(self, keys: Sequence[Key], finals: Words, total: Words) -> None:
        """Add this party's shares of the clients' updates to an accumulator.

        Args:
            keys: of U clients.
            finals: (U, trees, payload), final correction words of their trees.
            total: (n_items + 1, payload) ring words, changed in place; the last row belongs to no item.
        """
        p = self.parameters
        converter = Converter(p.payload, p.word, self._space.blocks)
        upper = [self._upper(key) for key in keys]
        for chunk in self._chunks(_ADDED_LEAVES):
            trees = chunk.stop - chunk.start
            converted = np.zeros((converter.passes, trees * p.slots * converter.per_block), dtype=p.word)
            bits = np.empty((trees, p.slots, len(keys)), dtype=np.uint8)
            for place, key in enumerate(keys):
                part, words = self._part(key, upper[place], chunk)
                labels = expand(key.hashes, self._space, part, words, self.shallow, p.depth, p.slots)
                converter.add(key.hashes.convert, labels, converted)
                bits[:, :, place] = labels.control.T
            rows = converter.rows(converted, (p.slots, trees))
            for place, tree in enumerate(range(chunk.start, chunk.stop)):
                numbers = bits[place].astype(np.float64)
                share = rows[:, place] + _join([numbers @ half for half in _halves(finals[:, tree])], p.word)
                # an item is there once in a tree, but for the row of leaves that stand for none
                items = self.code.items(tree)
                if self.party:
                    total[items] -= share
                else:
                    total[items] += share

    def _chunks(self, leaves: int) -> Iterator[slice]:
        """Slices of neighbouring trees that have about so many leaves."""
        trees = max(1, leaves // self.parameters.slots)
        for start in range(0, self.parameters.trees, trees):
            yield slice(start, min(start + trees, self.parameters.trees))

    def _upper(self, key: Key) -> Labels:
        """A client's nodes at the shallow level, planes (nodes, trees)."""
        roots = Labels(*(plane[None] for plane in key.roots))
        nodes = expand(key.hashes, self._space, roots, key.corrections, 0, self.shallow, self.parameters.slots)
        return Labels(*(plane.copy() for plane in nodes))

    def _part(self, key: Key, upper: Labels, chunk: slice) -> tuple[Labels, Corrections]:
        """A client's shallow nodes and correction words of some trees."""
        part = Labels(*(np.ascontiguousarray(plane[:, chunk]) for plane in upper))
        return part, Corrections(*(plane[:, chunk] for plane in key.corrections))
