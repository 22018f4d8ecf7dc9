"""Tensors that are kept as one vector, and read by name.

A term's parameters are many and small: moving them one by one costs more than moving them. Who adds, scales or sends
them uses the vector; who wants to know what they are uses the names.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

Shapes = Mapping[str, tuple[int, ...]]


class Layout:
    """Where each of several tensors lies in one vector: in the order of their names, row-major, without gaps.

    Args:
        shapes: of each tensor.
    """

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = dict(shapes)
        ends = list(itertools.accumulate(math.prod(shape) for shape in self.shapes.values()))
        self.places = dict(zip(self.shapes, map(slice, [0, *ends], ends), strict=False))
        self.size = ends[-1] if ends else 0
        """Numbers in all."""

    @staticmethod
    def of(shapes: Shapes) -> Layout:
        """The layout of these shapes, without making it anew each time."""
        return _layout(tuple((name, tuple(shape)) for name, shape in shapes.items()))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Layout) and [*self.shapes.items()] == [*other.shapes.items()])

    def __hash__(self) -> int:
        return hash(tuple(self.shapes.items()))

    @functools.cached_property
    def groups(self) -> dict[str, slice]:
        """Place of the tensors named `<group>.<name>`, by group.

        Raises:
            ValueError: a group's tensors are not next to each other.
        """
        found: dict[str, slice] = {}
        for name, place in self.places.items():
            group = name.split(".", 1)[0]
            before = found.get(group)
            if before is not None and before.stop != place.start:
                raise ValueError(f"tensors of {group} lie apart: name a group's tensors one after the other")
            found[group] = slice(place.start if before is None else before.start, place.stop)
        return found


@functools.lru_cache(maxsize=64)
def _layout(shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> Layout:
    return Layout(dict(shapes))


class NamedVector(Mapping[str, Tensor]):
    """Tensors by name, each a view of one vector, or of one vector a client.

    Args:
        layout: names, shapes and places.
        flat: (n,), or (C, n) for C clients; values are then (*shape) or (C, *shape).
    """

    __slots__ = ("flat", "layout")

    def __init__(self, layout: Layout, flat: Tensor) -> None:
        self.layout, self.flat = layout, flat

    @classmethod
    def empty(cls) -> NamedVector:
        """No tensors at all."""
        return cls(Layout.of({}), torch.zeros(0))

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], n_clients: int | None = None) -> NamedVector:
        """A copy of tensors, in their order.

        Args:
            tensors: each (*shape), or (C, *shape) where `n_clients` is C; of one dtype and device.
            n_clients: C; None where there is one copy for all.
        """
        skip = 0 if n_clients is None else 1
        layout = Layout.of({name: tuple(value.shape[skip:]) for name, value in tensors.items()})
        lead = () if n_clients is None else (n_clients,)
        parts = [value.reshape(*lead, -1) for value in tensors.values()]
        return cls(layout, torch.cat(parts, -1) if parts else torch.zeros((*lead, 0)))

    def like(self, flat: Tensor) -> NamedVector:
        """Another vector under the same names."""
        return NamedVector(self.layout, flat)

    def __getitem__(self, name: str) -> Tensor:
        return self.flat[..., self.layout.places[name]].view((*self.flat.shape[:-1], *self.layout.shapes[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout.shapes)

    def __len__(self) -> int:
        return len(self.layout.shapes)
