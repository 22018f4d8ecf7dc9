"""The three products against dense matrices, with and without the library that samples products."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fedrec_unlearn.federation import kernels
from fedrec_unlearn.federation.kernels import row_dots, scatter_rows, weighted_rows

M, W = 13, 5
COUNTS = {
    "mixed": [3, 0, 1, 7, 0],
    "first empty": [0, 2, 4],
    "all empty": [0, 0, 0],
    "one client": [6],
    "whole catalogue": [M, 2],
}


@pytest.fixture(params=["as installed", "without sampling"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "without sampling":
        monkeypatch.setattr(kernels, "_has_mkl_sampling", lambda: False)
        monkeypatch.setattr(kernels, "_CHUNK", 4)  # so that a few entries make several chunks
    return str(request.param)


Pattern = tuple[Tensor, Tensor, Tensor]


def pattern(counts: list[int]) -> Pattern:
    """ptr, items (distinct within a client), owner."""
    draw = torch.Generator().manual_seed(len(counts))
    items = [torch.randperm(M, generator=draw)[:n] for n in counts]
    ptr = torch.tensor([0, *counts]).cumsum(0)
    return ptr, torch.cat(items), torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


def numbers(*shape: int, dtype: torch.dtype, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def dense_weights(weights: Tensor, items: Tensor, owner: Tensor, n_clients: int) -> Tensor:
    """The pattern as a matrix (C, M)."""
    matrix = torch.zeros(n_clients, M, dtype=torch.float64)
    matrix[owner, items] = weights.double()
    return matrix


def assert_close(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    assert found.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


over_patterns = pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS.keys())
over_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@over_patterns
@over_types
def test_row_dots_are_the_entries_of_the_product(library: str, counts: list[int], dtype: torch.dtype) -> None:
    ptr, items, owner = pattern(counts)
    left, table = numbers(len(counts), W, dtype=dtype, seed=1), numbers(M, W, dtype=dtype, seed=2)
    kept = left.clone(), table.clone()
    expected = (left.double() @ table.double().T)[owner, items]
    assert_close(row_dots(left, table, ptr, items, owner), expected, dtype)
    assert torch.equal(left, kept[0])
    assert torch.equal(table, kept[1])


@over_patterns
@over_types
def test_weighted_rows_are_the_product_with_the_pattern(library: str, counts: list[int], dtype: torch.dtype) -> None:
    ptr, items, owner = pattern(counts)
    weights, table = numbers(len(items), dtype=dtype, seed=3), numbers(M, W, dtype=dtype, seed=2)
    expected = dense_weights(weights, items, owner, len(counts)) @ table.double()
    assert_close(weighted_rows(weights, table, ptr, items), expected, dtype)


@over_patterns
@over_types
def test_scatter_rows_add_the_product_with_the_transposed_pattern(
    library: str, counts: list[int], dtype: torch.dtype
) -> None:
    ptr, items, owner = pattern(counts)
    weights, left = numbers(len(items), dtype=dtype, seed=3), numbers(len(counts), W, dtype=dtype, seed=1)
    out = numbers(M, W, dtype=dtype, seed=4)
    expected = out.double() + dense_weights(weights, items, owner, len(counts)).T @ left.double()
    scatter_rows(weights, left, ptr, items, owner, out)
    assert_close(out, expected, dtype)


@pytest.mark.parametrize("width", [1, 64, 65])
def test_both_ways_of_row_dots_agree_at_any_width(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ptr, items, owner = pattern(COUNTS["mixed"])
    left = numbers(5, width, dtype=torch.float64, seed=1)
    table = numbers(M, width, dtype=torch.float64, seed=2)
    results: list[Tensor] = []
    ways: list[Callable[[], bool]] = [kernels._has_mkl_sampling, lambda: False]
    for way in ways:
        monkeypatch.setattr(kernels, "_has_mkl_sampling", way)
        results.append(row_dots(left, table, ptr, items, owner))
    torch.testing.assert_close(results[0], results[1], rtol=1e-13, atol=1e-13)
