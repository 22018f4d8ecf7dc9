"""Three products of a ragged (client, item) pattern with tables of rows, without copying a row per entry.

Entry e of the pattern belongs to client `owner[e]` and item `items[e]`, entries of a client side by side
(`ptr`). The products are those of a sparse matrix; which library computes them fastest depends on the
device, and that choice is made here and nowhere else.
"""

from __future__ import annotations

import functools
import warnings

import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional as F

_CHUNK = 1 << 16
"""Entries whose rows are copied at once where they must be: 16 MiB at 64 float32."""


@functools.cache
def _has_mkl_sampling() -> bool:
    """Whether this torch can sample a product on the CPU; the first call also says its piece about beta support."""
    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return False
    pattern = torch.tensor([0, 1], dtype=torch.int32), torch.tensor([0], dtype=torch.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            probe = torch.sparse_csr_tensor(*pattern, torch.ones(1), (1, 1), check_invariants=False)
            torch.sparse.sampled_addmm(probe, torch.ones(1, 1), torch.ones(1, 1), beta=0.0)
        except RuntimeError:
            return False
    return True


def row_dots(left: Tensor, table: Tensor, ptr: Tensor, items: Tensor, owner: Tensor) -> Tensor:
    """⟨left[owner[e]], table[items[e]]⟩ for each entry.

    Args:
        left: shape (C, W). table: shape (m, W), same dtype.
        ptr: (C + 1,). items, owner: (E,). Integers; int32 saves a conversion for ptr and items.

    Returns:
        shape (E,).
    """
    if left.device.type == "cpu" and not _has_mkl_sampling():
        out = torch.empty(len(items), dtype=left.dtype)
        for start in range(0, len(items), _CHUNK):
            cut = slice(start, start + _CHUNK)
            rows = left.index_select(0, owner[cut]).mul_(table.index_select(0, items[cut]))
            out[cut] = rows.sum(1)
        return out
    values = torch.zeros(len(items), dtype=left.dtype, device=left.device)
    if not len(items):
        return values
    size = (len(ptr) - 1, len(table))
    pattern = torch.sparse_csr_tensor(ptr.int(), items.int(), values, size, check_invariants=False)
    sampled: Tensor = torch.sparse.sampled_addmm(pattern, left, table.mT, beta=0.0)
    return sampled.values()


def weighted_rows(weights: Tensor, table: Tensor, ptr: Tensor, items: Tensor) -> Tensor:
    """Σ weights[e]·table[items[e]] over each client's entries: shape (C, W)."""
    if not len(items):
        return torch.zeros(len(ptr) - 1, table.shape[1], dtype=table.dtype, device=table.device)
    return F.embedding_bag(items, table, ptr[:-1], mode="sum", per_sample_weights=weights)


def scatter_rows(weights: Tensor, left: Tensor, ptr: Tensor, items: Tensor, owner: Tensor, out: Tensor) -> None:
    """Add weights[e]·left[owner[e]] to out[items[e]] for each entry.

    Args:
        weights: shape (E,). left: shape (C, W). out: shape (m, W), changed in place.
    """
    if out.device.type == "cpu":
        pattern = (weights.numpy(), items.int().numpy(), ptr.int().numpy())
        matrix = sparse.csr_matrix(pattern, shape=(len(ptr) - 1, len(out)), copy=False)
        out += torch.from_numpy(matrix.T @ left.numpy())
        return
    for start in range(0, len(items), _CHUNK * 16):
        cut = slice(start, start + _CHUNK * 16)
        out.index_add_(0, items[cut], left.index_select(0, owner[cut]) * weights[cut].unsqueeze(1))
