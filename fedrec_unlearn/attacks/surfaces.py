"""What a curious server sees of a user's upload in one round, as features for an attacker.

The server is honest but curious: it follows the protocol and looks at what arrives. What arrives:

| transport | the server sees, per user |
|---|---|
| plain | the whole table of item updates; rows the user did not touch are zero, so the support shows too |
| sparse | the touched rows and, in the clear, their ids: the same knowledge for fewer bytes |
| secure aggregation, SecEmb | the sum over the clients of a round: neither surface exists per user |

Local noise on the rows hides values first and the support only where untouched rows get noise too. Negative
items are part of the support: they blur it, and more of them blur it more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrec_unlearn.errors import AttackError

if TYPE_CHECKING:
    from scipy import sparse

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

CHUNK_NUMBERS = 1 << 22
"""Float64 numbers held at once for a chunk of users' rows (32 MiB); results do not depend on it."""

UPDATE_STATISTICS = 6
"""Statistics at the end of a row of `update_values`."""


def update_support(
    indptr: ArrayLike, item_ids: ArrayLike, n_items: int, values: ArrayLike | None = None
) -> sparse.csr_matrix:
    """Which item rows each user uploads.

    Args:
        indptr: shape (n_users + 1,): user u uploads the rows `item_ids[indptr[u]:indptr[u + 1]]`.
        item_ids: shape (nnz,), 0 .. n_items - 1, distinct within a user, any order.
        n_items: rows of the item table.
        values: shape (nnz, width), the rows. Where given, all-zero rows do not count: what the plain transport shows.

    Returns:
        CSR matrix of float64 ones, shape (n_users, n_items), columns ascending.

    Raises:
        AttackError: the arrays do not fit together or an id is out of range.
    """
    from scipy import sparse

    bounds, ids = _uploads(indptr, item_ids)
    if len(ids) and int(ids.max()) >= n_items:
        raise AttackError(f"update_support: item id {ids.max()} is out of range; the table has {n_items} items")
    support = sparse.csr_matrix((np.ones(len(ids)), ids, bounds), shape=(len(bounds) - 1, n_items))
    if values is not None:
        support.data = _rows(values, len(ids)).any(axis=1).astype(np.float64)
        support.eliminate_zeros()
    support.sort_indices()
    return support


def update_values(indptr: ArrayLike, item_ids: ArrayLike, values: ArrayLike) -> FloatArray:
    """What the values of the uploaded rows tell of each user, in a fixed number of features.

    After one local step of MF every row a user uploads is a multiple of that user's embedding: the gradient of
    a score u·v by v is u, so row i is c_i·u with c_i > 0 for a positive and c_i < 0 for a negative item.
    The leading right singular vector of the user's rows then *is* the private embedding up to scale and sign;
    other models and several local steps bend this, but the leading direction stays the best single summary.
    The sign is not in the rows alone (with as many negatives as positives the c_i cancel). It follows from
    popularity: positives are items many users upload, negatives are drawn evenly, so the direction is turned
    such that rows with c_i > 0 belong to the items uploaded by more users. Where that is undecided (all items
    equally frequent, all c_i of one sign), it is turned such that its largest component is positive.

    Args:
        indptr: shape (n_users + 1,): user u uploads the rows indptr[u] .. indptr[u + 1] - 1.
        item_ids: shape (nnz,), item of each row, distinct within a user.
        values: shape (nnz, width), the uploaded rows; finite.

    Returns:
        Shape (n_users, width + 6), float64: unit leading direction (width), then log(1 + rows), log of the root
        mean square row norm, share of the squared norm in the leading direction, mean and maximum row norm
        over the root mean square, and mean coefficient c over its root mean square. For a user whose rows are
        all zero everything but the number of rows is zero.

        The mean row is left out on purpose: where positives and negatives cancel it holds nothing but noise,
        and on embeddings of MovieLens-100K it made every attacker weaker.

    Raises:
        AttackError: the arrays do not fit together, or a value is NaN or infinite.
    """
    bounds, ids = _uploads(indptr, item_ids)
    rows = _rows(values, len(ids))
    if not np.isfinite(rows).all():
        row = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        user = int(np.searchsorted(bounds, row, side="right")) - 1
        raise AttackError(f"update_values: user {user} uploads a NaN or infinite value for item {ids[row]}")
    width, counts = rows.shape[1], np.diff(bounds)
    # counted as log: a few blockbusters would otherwise decide alone
    frequency = np.log1p(np.bincount(ids)[ids].astype(np.float64)) if len(ids) else np.zeros(0)
    features = np.zeros((len(counts), width + UPDATE_STATISTICS))
    features[:, width] = np.log1p(counts)
    # users of similar size together, so that a chunk padded to its largest user wastes little
    by_size = np.argsort(counts, kind="stable")
    by_size = by_size[counts[by_size] > 0]
    start = 0
    while start < len(by_size):
        stop = start + 1
        while stop < len(by_size) and (stop + 1 - start) * max(counts[by_size[stop]], width) * width <= CHUNK_NUMBERS:
            stop += 1
        users = by_size[start:stop]
        features[users] = _summaries(rows, frequency, bounds[users], counts[users])
        start = stop
    return features


def _summaries(rows: FloatArray, frequency: FloatArray, first: IntArray, counts: IntArray) -> FloatArray:
    slot = np.arange(counts.max())
    used = slot < counts[:, None]
    index = np.where(used, first[:, None] + slot, 0)
    padded = np.where(used[:, :, None], rows[index], 0.0)  # (users, slots, width)
    squared = np.einsum("usw,usw->us", padded, padded)
    total = squared.sum(axis=1)
    silent = total == 0.0
    scale = np.where(silent, 1.0, np.sqrt(total / counts))  # root mean square row norm

    strength, axes = np.linalg.eigh(padded.transpose(0, 2, 1) @ padded)
    direction = axes[:, :, -1]
    coefficients = np.einsum("usw,uw->us", padded, direction)
    popular = np.where(used, frequency[index], 0.0)
    popular = np.where(used, popular - (popular.sum(axis=1) / counts)[:, None], 0.0)
    # signs, not sizes: the more popular a positive the smaller its coefficient, of a negative the larger
    lean = np.einsum("us,us->u", np.sign(coefficients), popular)
    # rounding must not decide: below this popularity counts as saying nothing
    bound = 1e-9 * np.abs(popular).sum(axis=1)
    largest = np.take_along_axis(direction, np.abs(direction).argmax(axis=1)[:, None], axis=1)[:, 0]
    sign = np.where(np.abs(lean) > bound, np.sign(lean), np.sign(largest))

    norms = np.sqrt(squared)
    spread = np.sqrt((coefficients**2).sum(axis=1) / counts)
    statistics = (
        np.log1p(counts),
        np.log(scale),
        strength[:, -1] / np.where(silent, 1.0, total),
        norms.sum(axis=1) / counts / scale,
        norms.max(axis=1) / scale,
        sign * coefficients.sum(axis=1) / counts / np.where(spread == 0.0, 1.0, spread),
    )
    # rounded, or the last bits of what is constant in theory would be standardised into a feature
    summary = np.concatenate([direction * sign[:, None], np.round(np.stack(statistics, axis=1), 9)], axis=1)
    summary[silent, :-UPDATE_STATISTICS] = 0.0
    summary[silent, -UPDATE_STATISTICS + 1 :] = 0.0
    return summary


def _uploads(indptr: ArrayLike, item_ids: ArrayLike) -> tuple[IntArray, IntArray]:
    bounds, ids = np.asarray(indptr, dtype=np.int64), np.asarray(item_ids, dtype=np.int64)
    ragged = bounds.ndim == 1 and len(bounds) >= 1 and bounds[0] == 0 and bool(np.all(np.diff(bounds) >= 0))
    if not ragged or ids.ndim != 1 or bounds[-1] != len(ids):
        raise AttackError("uploads: indptr must rise from 0 to the number of item_ids, one entry a user and one more")
    if len(ids) and int(ids.min()) < 0:
        raise AttackError(f"uploads: item id {ids.min()} is negative")
    return bounds, ids


def _rows(values: ArrayLike, n: int) -> FloatArray:
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2 or len(rows) != n or rows.shape[1] == 0:
        raise AttackError(f"uploads: values must have shape ({n}, width) like the item ids, not {rows.shape}")
    return rows
