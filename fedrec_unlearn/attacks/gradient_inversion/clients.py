"""The clients under attack: who they are, what they compute, and what the server sees of it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedrec_unlearn.attacks.gradient_inversion.defences import Defence
from fedrec_unlearn.attacks.gradient_inversion.observation import Observation
from fedrec_unlearn.errors import AttackError
from fedrec_unlearn.seeds import Purpose, generator

if TYPE_CHECKING:
    from fedrec_unlearn.models.adversary import Adversary

IntArray = NDArray[np.int64]

# first counter of the draws made under Purpose.INVERSION, so that no two uses share a stream
VICTIMS, FELLOWS, NOISE, DEFENCE, ATTACK = range(5)

CLIENTS_AT_ONCE = 2048
"""Clients whose gradients are held at the same time."""


@dataclass(frozen=True)
class Target:
    """An adversary with the shared parameters it has at some moment of training."""

    adversary: Adversary
    parameters: Mapping[str, Tensor]
    """Each (*shape)."""
    stage: str = "initial"
    """When that is: initial, trained, or what a report should say."""


@dataclass(frozen=True)
class Population:
    """Users to draw clients from.

    Raises:
        AttackError: from `of`, where rows and labels do not fit or a class has no users.
    """

    rows: Tensor
    """(m, width), float64."""
    members: tuple[IntArray, ...]
    """Users of each class."""

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.members)

    @classmethod
    def of(cls, rows: ArrayLike, labels: ArrayLike, n_classes: int) -> Population:
        """Check and group rows (m, width) by labels (m,); users whose label is not in 0 .. K - 1 are left out."""
        matrix, given = np.array(rows, dtype=np.float64), np.asarray(labels)
        if matrix.ndim != 2 or given.shape != (len(matrix),):
            raise AttackError(f"gradient inversion: rows {matrix.shape} and labels {given.shape} do not fit together")
        if not np.isfinite(matrix).all():
            raise AttackError("gradient inversion: a row is NaN or infinite")
        members = tuple(np.flatnonzero(given == k) for k in range(n_classes))
        for k, users in enumerate(members):
            if len(users) == 0:
                raise AttackError(f"gradient inversion: no user has class {k} of {n_classes}; all classes are attacked")
        return cls(torch.from_numpy(matrix), members)

    def victims(self, n: int, draws: np.random.Generator) -> tuple[IntArray, IntArray]:
        """n users and their classes, which are equally frequent up to one; no user twice while there are others."""
        classes = np.arange(n) % self.n_classes
        users = np.empty(n, dtype=np.int64)
        for k, members in enumerate(self.members):
            places = np.flatnonzero(classes == k)
            users[places] = np.resize(draws.permutation(members), len(places))
        return users, classes

    def fellows(self, shape: tuple[int, ...], draws: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Users and their classes, drawn evenly over classes and then over a class's users."""
        classes = draws.integers(0, self.n_classes, shape)
        sizes = np.array([len(members) for members in self.members])
        first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        places = first[classes] + draws.integers(0, sizes[classes])
        return np.concatenate(self.members)[places], classes


def observe(
    population: Population, target: Target, defence: Defence, n: int, seed: int, class_weights: Tensor
) -> tuple[Observation, Tensor]:
    """What the server sees of n clients, and their classes.

    Under secure aggregation each of the n is summed with `defence.members` - 1 fellows, and the server divides the
    sum by their number. Gradients are rounded to float32 on the way, as they travel.

    Args:
        population: whom clients are drawn from.
        target: the adversary and its parameters.
        defence: what happens before the server sees anything.
        n: clients attacked.
        seed: of all draws; the clients depend on it alone.
        class_weights: (K,), what a client's loss is multiplied by.

    Returns:
        n gradients, float64; true classes, int64 (n,).
    """
    adversary, n_classes = target.adversary, population.n_classes
    users, classes = population.victims(n, generator(seed, Purpose.INVERSION, VICTIMS))
    shape = (n, defence.members - 1)
    others, theirs = population.fellows(shape, generator(seed, Purpose.INVERSION, FELLOWS))
    everyone = torch.from_numpy(np.concatenate([users[:, None], others], axis=1).reshape(-1))
    labels = torch.from_numpy(np.concatenate([classes[:, None], theirs], axis=1).reshape(-1))

    noise = generator(seed, Purpose.INVERSION, NOISE)
    chance = generator(seed, Purpose.INVERSION, DEFENCE, zlib.crc32(defence.name.encode()))
    reported = defence.reported(labels, n_classes, chance)
    parameters = {name: tensor.to(torch.float64) for name, tensor in target.parameters.items()}
    groups = max(1, CLIENTS_AT_ONCE // defence.members)
    seen: list[dict[str, Tensor]] = []
    for start in range(0, n, groups):
        block = slice(start * defence.members, min(start + groups, n) * defence.members)
        rows, said = population.rows[everyone[block]], reported[block]
        draws = torch.from_numpy(noise.standard_normal((len(rows), adversary.n_draws)))
        _, gradients, _, _ = adversary.gradients(
            parameters, rows, defence.target(said, n_classes, rows.dtype), draws, class_weights[said], False
        )
        released = defence.released(gradients, chance)
        seen.append({name: g.reshape(-1, defence.members, *g.shape[1:]).mean(dim=1) for name, g in released.items()})
    gradients = {name: torch.cat([part[name] for part in seen]).float().double() for name in parameters}
    return Observation(adversary, parameters, gradients, class_weights), torch.from_numpy(classes)


def check_targets(targets: Sequence[Target], width: int) -> int:
    """Number of classes that all targets share.

    Raises:
        AttackError: there is no target, or they differ in classes or width.
    """
    sizes = {(target.adversary.n_classes, target.adversary.width) for target in targets}
    if len(sizes) != 1:
        raise AttackError(f"gradient inversion: targets need one number of classes and one width, not {sorted(sizes)}")
    ((n_classes, expected),) = sizes
    if expected != width:
        raise AttackError(f"gradient inversion: the adversary reads rows of width {expected}, the rows have {width}")
    return n_classes
