"""Bytes of an upload by formula: the paper's own table, and dense sharing beside it. MB are 10^6 bytes."""

from __future__ import annotations

import math

MEGABYTE = 10**6
SECURITY_BITS = 128
"""λ: bits of a node's label."""


def paper_secfedrec_bytes(n_items: int, width: int = 64, ring_bits: int = 32) -> float:
    """Upload of a client under SecFedRec, both servers: 2·m·d·b/8."""
    return 2 * n_items * width * ring_bits / 8


def paper_secemb_bytes(n_items: int, max_items: int, width: int = 64, ring_bits: int = 32) -> float:
    """Upload of a client under SecEmb as the paper's table has it, both servers: 2·m'·(λ·log₂ m + (d + 1)·b)/8.

    The formula is a fit: with λ = 128 it gives every figure the paper prints to its last digit.

    Source: Mai et al. 2025, arXiv 2505.12453.
    """
    return 2 * max_items * (SECURITY_BITS * math.log2(n_items) + (width + 1) * ring_bits) / 8


def dense_sharing_bytes(n_items: int, width: int, ring_bits: int) -> tuple[int, int]:
    """Upload of a client under dense additive sharing.

    Returns:
        with both shares as long as the table, and with one of them sent as the seed it is expanded from.
    """
    from fedrec_unlearn.federation.secagg import secagg_bytes
    from fedrec_unlearn.federation.secure_sum import SEED_BYTES

    both = secagg_bytes(n_items * width, ring_bits)
    return both, both // 2 + SEED_BYTES
