"""What clients send and what the server adds up; ring mode's fixed point.

A `ClientUpdate` is one client's message before it is serialised. A `Contribution` is the sum over any set of
clients: contributions add, so a cohort may be cut into blocks, silos or machines at will. In ring mode the
sums are int64 fixed point and the addition is exact, so the cut cannot change the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.federation.named_vector import NamedVector


@dataclass(frozen=True)
class ClientUpdate:
    """Weighted update of one client: start minus end of local training, times the client's weight."""

    item_ids: Tensor
    """int64 (n,), distinct."""
    item_rows: Tensor
    """(n, item row width); float, or int64 fixed point in ring mode."""
    dense: Mapping[str, Tensor]
    weight: float
    """The client's weight in the mean."""

    def to(self, device: torch.device) -> ClientUpdate:
        """The same update on a device."""
        dense = {name: value.to(device) for name, value in self.dense.items()}
        return ClientUpdate(self.item_ids.to(device), self.item_rows.to(device), dense, self.weight)


def quantise(values: Tensor, fraction_bits: int) -> Tensor:
    """Round to fixed point: int64 multiples of 2**-fraction_bits.

    Args:
        values: float64, any shape.
        fraction_bits: binary digits after the point.

    Raises:
        TransportError: a value is not finite or needs more than 62 - 20 bits, so that sums over a million
            clients could leave int64.
    """
    scaled = torch.round(values * float(1 << fraction_bits))
    if scaled.numel() and not bool((scaled.abs() < float(1 << 42)).all()):
        raise TransportError(
            "ring mode: a client update is not finite or too large for the fixed point; training has diverged, "
            "lower federation.user_learning_rate or federation.client_learning_rate, or federation.ring_fraction_bits"
        )
    return scaled.to(torch.int64)


@dataclass
class TermSums:
    """Sums over clients for one group of a term's parameters (one attribute's adversary)."""

    weight: float = 0.0
    """Clients that sent an update."""
    known: float = 0.0
    """Clients that know their class."""
    correct: float = 0.0
    """Those of them the adversary judged rightly."""
    loss: float | int = 0.0
    """Σ of their losses (an integer in ring mode, in fixed point)."""

    def __add__(self, other: TermSums) -> TermSums:
        return TermSums(
            self.weight + other.weight,
            self.known + other.known,
            self.correct + other.correct,
            self.loss + other.loss,
        )


@dataclass
class Contribution:
    """Sums over clients: item rows, dense parameters, weights and metrics."""

    items: Tensor
    """(m, item row width): Σ weight·(start − end), zero where no client touched the row."""
    dense: dict[str, Tensor]
    row_weight: Tensor | None
    """float64 (m,): Σ weight of the clients that touched each row; None unless rows are averaged one by one."""
    weight: float = 0.0
    """Σ weight."""
    clients: int = 0
    interactions: int = 0
    loss: float | int = 0.0
    """Σ over clients of interactions × mean loss before local training (an integer in ring mode, in fixed point)."""
    bytes_up: int = 0
    bytes_down: int = 0
    fraction_bits: int | None = None
    """Fixed-point digits of `items`, `dense`, `term` and the losses in ring mode, None in float mode."""
    traffic: dict[str, int] = field(default_factory=dict)
    """What else a transport counts: bytes between servers, numbers saturated, items left out."""
    term: NamedVector = field(default_factory=NamedVector.empty)
    """Sums of the updates of a term's shared parameters, (n,); empty without a term."""
    term_sums: dict[str, TermSums] = field(default_factory=dict)
    """Weights and metrics of each of its groups."""

    @classmethod
    def zeros(
        cls,
        items: Tensor,
        dense: Mapping[str, Tensor],
        *,
        row_weight: bool,
        fraction_bits: int | None,
        term: NamedVector | None = None,
        groups: Sequence[str] = (),
    ) -> Contribution:
        """Nothing from nobody, shaped like the server's tables."""
        dtype = items.dtype if fraction_bits is None else torch.int64
        nothing = 0.0 if fraction_bits is None else 0
        return cls(
            items=torch.zeros_like(items, dtype=dtype),
            dense={name: torch.zeros_like(value, dtype=dtype) for name, value in dense.items()},
            row_weight=torch.zeros(len(items), dtype=torch.float64, device=items.device) if row_weight else None,
            loss=nothing,
            fraction_bits=fraction_bits,
            term=NamedVector.empty() if term is None else term.like(torch.zeros_like(term.flat, dtype=dtype)),
            term_sums={group: TermSums(loss=nothing) for group in groups},
        )

    def __add__(self, other: Contribution) -> Contribution:
        if self.fraction_bits != other.fraction_bits:
            raise TransportError("contributions in different number formats cannot be added")
        if (
            (self.row_weight is None) != (other.row_weight is None)
            or self.dense.keys() != other.dense.keys()
            or self.term.layout != other.term.layout
        ):
            raise TransportError("contributions to different models or aggregations cannot be added")
        row_weight = self.row_weight
        if row_weight is not None and other.row_weight is not None:
            row_weight = row_weight + other.row_weight
        return Contribution(
            items=self.items + other.items,
            dense={name: value + other.dense[name] for name, value in self.dense.items()},
            row_weight=row_weight,
            weight=self.weight + other.weight,
            clients=self.clients + other.clients,
            interactions=self.interactions + other.interactions,
            loss=self.loss + other.loss,
            bytes_up=self.bytes_up + other.bytes_up,
            bytes_down=self.bytes_down + other.bytes_down,
            fraction_bits=self.fraction_bits,
            traffic={
                name: self.traffic.get(name, 0) + other.traffic.get(name, 0)
                for name in {**self.traffic, **other.traffic}
            },
            term=self.term.like(self.term.flat + other.term.flat),
            term_sums={group: sums + other.term_sums[group] for group, sums in self.term_sums.items()},
        )

    @property
    def scale(self) -> float:
        """What a sum is multiplied with to be read as a number: 1, or the fixed point's unit in ring mode."""
        return 1.0 if self.fraction_bits is None else 2.0**-self.fraction_bits

    @property
    def mean_loss(self) -> float:
        """Mean loss per interaction before local training; NaN without interactions."""
        return self.loss * self.scale / self.interactions if self.interactions else float("nan")

    def add_update(self, update: ClientUpdate) -> None:
        """Add the tensors of one client's message in place; counts and metrics are the caller's."""
        self.items.index_add_(0, update.item_ids, update.item_rows)
        for name, value in update.dense.items():
            self.dense[name] += value
        if self.row_weight is not None:
            self.row_weight.index_add_(
                0, update.item_ids, self.row_weight.new_full((len(update.item_ids),), update.weight)
            )
