"""A vector with names: order, views, copies, groups."""

from __future__ import annotations

import copy

import pytest
import torch

from fedrec_unlearn.federation.named_vector import Layout, NamedVector


def tensors(lead: tuple[int, ...] = ()) -> dict[str, torch.Tensor]:
    shapes = {"a.weight": (2, 3), "a.bias": (2,), "b.scale": ()}
    draws = torch.Generator().manual_seed(0)
    return {name: torch.randn((*lead, *shape), generator=draws) for name, shape in shapes.items()}


@pytest.mark.parametrize("n_clients", [None, 4])
def test_tensors_come_back_by_name(n_clients: int | None) -> None:
    given = tensors(() if n_clients is None else (n_clients,))
    vector = NamedVector.of(given, n_clients)
    assert list(vector) == list(given)
    assert vector.flat.shape == ((9,) if n_clients is None else (n_clients, 9))
    for name, value in given.items():
        assert torch.equal(vector[name], value)


def test_the_vector_is_the_tensors_one_after_the_other() -> None:
    given = tensors()
    assert torch.equal(NamedVector.of(given).flat, torch.cat([value.reshape(-1) for value in given.values()]))


@pytest.mark.parametrize("n_clients", [None, 4])
def test_values_are_views_of_the_vector_and_not_of_what_was_given(n_clients: int | None) -> None:
    given = tensors(() if n_clients is None else (n_clients,))
    vector = NamedVector.of(given, n_clients)
    before = given["a.bias"].clone()
    vector["a.bias"].add_(1.0)
    assert torch.equal(vector.flat[..., 6:8], before + 1.0)
    assert torch.equal(given["a.bias"], before)


def test_another_vector_has_the_same_names() -> None:
    vector = NamedVector.of(tensors())
    other = vector.like(torch.arange(9.0))
    assert torch.equal(other["a.weight"], torch.arange(6.0).view(2, 3))
    assert other["b.scale"].item() == 8.0
    assert other.layout is vector.layout


def test_layouts_are_equal_with_equal_shapes_in_equal_order() -> None:
    layout = Layout({"x": (2,), "y": (3,)})
    assert layout == Layout.of({"x": (2,), "y": (3,)}) == copy.deepcopy(layout)
    assert layout != Layout({"y": (3,), "x": (2,)})
    assert layout != Layout({"x": (2,), "y": (1, 3)})


def test_groups_are_what_the_names_begin_with() -> None:
    assert NamedVector.of(tensors()).layout.groups == {"a": slice(0, 8), "b": slice(8, 9)}


def test_a_group_in_two_pieces_is_refused() -> None:
    with pytest.raises(ValueError, match="tensors of a lie apart"):
        _ = Layout({"a.x": (1,), "b.x": (1,), "a.y": (1,)}).groups


def test_nothing_is_false_and_has_no_numbers() -> None:
    assert not NamedVector.empty()
    assert NamedVector.empty().layout.size == 0
