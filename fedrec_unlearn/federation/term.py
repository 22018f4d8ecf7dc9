"""A further loss that each client adds on its own representation, with shared parameters of its own.

The recommender's loss asks the private row to predict items. A `UserTerm` asks something else of it (that an
adversary cannot read an attribute from it) and may train shared parameters of its own on the way. Engines know
nothing of what it asks: they add its gradient to the private row's and its parameters' updates to the round's sum.

What a client knows for the term (its attribute) stays with the term, on the client: it enters no message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from torch import Tensor

from fedrec_unlearn.federation.named_vector import NamedVector


class TermStep(NamedTuple):
    """What a term asks of a block of C clients in one local step."""

    row_gradient: Tensor
    """(C, private row width): added to the gradient of the client's mean loss in its private row."""
    gradients: NamedVector
    """Gradient of the shared parameters: (C, n) one by one, or (n,) summed over the clients."""
    loss: Tensor
    """(C, G): loss of each client in each group; 0 where it knows nothing for the group."""
    correct: Tensor
    """(C, G), float: 1 where the adversary names the client's class, else 0."""
    known: Tensor
    """(C, G), float: 1 where the client knows its class, else 0."""
    weight: Tensor
    """(C, G), float: 1 where the client sends an update of the group's parameters, else 0. Gradients are zero there."""


class UserTerm(Protocol):
    """A loss on private rows beside the recommender's."""

    groups: tuple[str, ...]
    """Names of G groups of parameters, each averaged over the clients that train it: one an attribute."""
    shapes: dict[str, tuple[int, ...]]
    """Shared parameters, named `<group>.<name>`, group after group: they travel whole, apart from the recommender's."""
    secure: bool
    """Whether their updates travel as additive shares to two servers, which learn the sum alone."""
    client_learning_rate: float
    """SGD step size of a client's copy of the shared parameters."""
    server_learning_rate: float
    """Step size of the server's optimiser for them."""

    def initial(self, seed: int) -> dict[str, Tensor]:
        """Initial shared parameters, float64."""

    def step(
        self,
        rows: Tensor,
        parameters: Mapping[str, Tensor],
        users: Tensor,
        round_number: int,
        epoch: int,
        *,
        summed: bool,
    ) -> TermStep:
        """Loss and gradients of a block of clients.

        Args:
            rows: private rows, (C, width).
            parameters: each (*shape) where `summed`, else one copy a client (C, *shape). A `NamedVector` in the order
                of `shapes` is read as it lies.
            users: ids of the clients, int64 (C,).
            round_number: coordinates of random draws, with `epoch` and the user's id.
            epoch: local epoch, from 0.
            summed: return the parameters' gradients summed over the clients.
        """
