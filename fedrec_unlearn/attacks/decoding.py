"""Which of the item rows a user uploads are its own items: reading them out of the way negatives are drawn.

A client uploads the rows of its positives and of as many drawn negatives, or q times as many. The negatives are a
systematic sample: of the N items the client has not seen, in the order of their ids, those of rank (⌊jN/k⌋ + c) mod N
for j = 0 .. k − 1 (`fedrec_unlearn.federation.local_data`). Only c is secret, and a comb with a known spacing shows.

Seen from the upload alone, let L be the number of items that are not uploaded and let b(i) count those with a
smaller id than i. All of them are unseen, and every unseen item before a negative is one of them or another
negative. So the negative with number j in the comb has b = ⌊jN/k⌋ − j + s modulo L, with one unknown s for the whole
user: the b's of a user's uploads must contain a known comb, turned by s; few turns or one do, found by trying
all L of them. Uploads beside the comb are the user's own items. What stays open is who of several uploaded items
with consecutive ids is the negative (they share one b); there, the item that fewer users upload is taken.

Other samplers have other weaknesses. Drawn afresh every round, negatives of whatever kind are what changes between
two uploads of one user, and its own items are what stays; the comb needs a single round.

**No guarantee follows from negatives.** They hide the user's own items only from someone who cannot count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrec_unlearn.attacks.surfaces import update_support
from fedrec_unlearn.errors import AttackError

if TYPE_CHECKING:
    from scipy import sparse

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

FEW_TURNS = 8
"""Turns of the comb that are checked tooth by tooth for all at once; more are first thinned out."""

PASSES = 2
"""Times all users are decoded: the first by how often an item is uploaded, the others by what the one before found."""


def decoded_support(indptr: ArrayLike, item_ids: ArrayLike, n_items: int, num_negatives: int = 1) -> sparse.csr_matrix:
    """Items the server takes for each user's own, from the ids uploaded in one round.

    Args:
        indptr: shape (n_users + 1,): user u uploads the rows `item_ids[indptr[u]:indptr[u + 1]]`.
        item_ids: shape (nnz,), 0 .. n_items - 1, distinct within a user, any order.
        n_items: rows of the item table.
        num_negatives: negatives a client draws for each of its items, as the server configured it.

    Returns:
        CSR matrix of float64 ones, shape (n_users, n_items), columns ascending: of each user's n uploads the
        round(n / (1 + num_negatives)) that are its own items most likely. Where no comb fits (another sampler, or a
        client whose items leave fewer unseen ones than it should draw), popularity alone decides.

    Raises:
        AttackError: the arrays do not fit together, an id is out of range, or num_negatives is negative.
    """
    if num_negatives < 0:
        raise AttackError(f"decoded_support: num_negatives is {num_negatives}; it must be 0 or more")
    support = update_support(indptr, item_ids, n_items)
    uploads, owners = np.diff(support.indptr), np.repeat(np.arange(support.shape[0]), np.diff(support.indptr))
    own = np.rint(uploads / (1 + num_negatives)).astype(np.int64)
    if len(owners) == 0 or num_negatives == 0:
        return support
    place = np.arange(len(owners)) - support.indptr[owners]
    before = support.indices - place  # items not uploaded that have a smaller id
    teeth = [
        _expected_negatives(before[support.indptr[u] : support.indptr[u + 1]], int(own[u]), n_items)
        for u in range(support.shape[0])
    ]
    negatives = np.concatenate(teeth)  # of the whole run of consecutive ids an upload belongs to
    fresh = (before[1:] != before[:-1]) | (owners[1:] != owners[:-1])
    runs = np.concatenate([[0], np.cumsum(fresh)])

    drawn = float(np.mean((uploads - own) / np.maximum(n_items - own, 1)))
    shares = np.bincount(support.indices, minlength=n_items) / support.shape[0]
    shares = (shares - drawn) / (1.0 - min(drawn, 0.5))
    for _ in range(PASSES):
        smallest = 0.5 / support.shape[0]
        shares = np.clip(shares, smallest, 1.0 - smallest)
        doubt = ((1.0 - shares) / shares)[support.indices]
        chance = np.minimum(negatives * doubt / np.bincount(runs, doubt)[runs], 1.0)
        shares = np.bincount(support.indices, 1.0 - chance, n_items) / support.shape[0]
    # the likeliest of each user first; among equals the one with the more popular item
    order = np.lexsort((doubt, chance, owners))
    support.data[order] = place < own[owners]
    support.eliminate_zeros()
    return support


def _expected_negatives(before: IntArray, own: int, n_items: int) -> FloatArray:
    """Negatives in the run of consecutive ids that each upload belongs to, averaged over all turns that fit.

    Args:
        before: (n,), ascending: items not uploaded that have a smaller id.
        own: how many of the uploads are the user's own.
        n_items: rows of the item table.
    """
    silent, drawn, unseen = n_items - len(before), len(before) - own, n_items - own
    none_fits = np.full(len(before), drawn / max(len(before), 1))
    if silent < 1 or drawn < 1 or len(before) == own:
        return none_fits
    ranks = np.arange(drawn)
    comb = np.bincount(ranks * unseen // drawn - ranks, minlength=silent)
    # the ring closes: ids after the last silent item are neighbours of those before the first
    ring = before % silent
    held = np.bincount(ring, minlength=silent)
    turns = _fitting_turns(comb, held)
    if len(turns) == 0:
        return none_fits
    return np.asarray(np.mean([comb[ring - turn] for turn in turns], axis=0), dtype=np.float64)


def _fitting_turns(comb: IntArray, held: IntArray) -> IntArray:
    """Every turn s with held[b + s modulo length] >= comb[b] at all places b, ascending."""
    teeth = np.flatnonzero(comb)
    turns = np.arange(len(held))
    for tooth in teeth:
        if len(turns) <= FEW_TURNS:
            break
        turns = turns[held[(turns + tooth) % len(held)] >= comb[tooth]]
    fits = held[(turns[:, None] + teeth) % len(held)] >= comb[teeth]
    fitting: IntArray = turns[fits.all(axis=1)]
    return fitting
