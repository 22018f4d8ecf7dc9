"""Which items lie in which tree: the public batch code, and the paper's encoding as a code of one kind of tree.

`binned`: k permutations of the catalogue, each cut into B / k bins of equal size, so that every item lies in k of
the B bins, one in each group. A client that holds up to m' ≈ B / 1.1 items finds a bin of its own for each of them
(`matching`) and so needs one point function over a bin per bin instead of one over the catalogue per item: the
servers expand k·m leaves instead of m'·m. `paper`: every tree spans the catalogue.

Source: Ishai, Kushilevitz, Ostrovsky, Sahai 2004 (batch codes); Angel, Chen, Laine, Setty 2018 (cuckoo hashing for
them); Cui, Zhu, Wang 2021, arXiv 2111.01432 (for sparse secure aggregation).

The permutations are the order of the items' splitmix64 words under keys from `code_seed`: a public constant, fixed
before and independent of what any client holds, the same on every machine.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.secemb.parameters import Parameters
from fedrec_unlearn.seeds import Purpose, hash_counters, stream_key


class Code:
    """The trees of a set of parameters.

    Args:
        parameters: catalogue, encoding, bins, hashes and seed.

    Attributes:
        bin_of: int32 (k, n_items), the bin of each item in each group; empty for the paper's encoding.
        slot_of: int32 (k, n_items), its place in that bin.
    """

    def __init__(self, parameters: Parameters) -> None:
        m, k = parameters.n_items, parameters.hashes
        self.parameters = parameters
        self.paper = parameters.encoding == "paper"
        if self.paper:
            self.bin_of = np.empty((0, m), dtype=np.int32)
            self.slot_of = self.bin_of
            return
        per_group = parameters.bins // k
        self.bin_of = np.empty((k, m), dtype=np.int32)
        self.slot_of = np.empty((k, m), dtype=np.int32)
        self._items = np.full((parameters.bins, parameters.slots), m, dtype=np.int64)
        for group in range(k):
            key = stream_key(parameters.code_seed, Purpose.BATCH_CODE, group)
            order = np.argsort(hash_counters(key, np.arange(m)), kind="stable")
            place = np.arange(m)
            self.bin_of[group, order] = group * per_group + place % per_group
            self.slot_of[group, order] = place // per_group
            self._items[self.bin_of[group], self.slot_of[group]] = np.arange(m)

    def items(self, tree: int) -> NDArray[np.int64] | slice:
        """Items of a tree's leaves, to index rows with.

        Returns:
            int64 (slots,), distinct but for n_items where a leaf stands for none; a slice of all items where leaf j
            is item j.
        """
        return slice(0, self.parameters.n_items) if self.paper else self._items[tree]

    def leaves(self, items: NDArray[np.int64], trees: NDArray[np.int64]) -> NDArray[np.int64]:
        """The leaf of each item in the tree it was given, int64 (n,)."""
        if self.paper:
            return items
        return self.slot_of[trees // self.group_size, items].astype(np.int64)

    @property
    def group_size(self) -> int:
        """Trees of a group. `binned`: within a group every item is there once; `paper`: there is one group."""
        return self.parameters.bins if self.paper else self.parameters.bins // self.parameters.hashes


@lru_cache(maxsize=4)
def code_of(parameters: Parameters) -> Code:
    """The code of some parameters, made once."""
    return Code(parameters)
