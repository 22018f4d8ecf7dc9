"""Distribution matching after training: users of different classes are moved until they look alike.

A rival, not a federated method: the loss compares private rows of different users, so whoever runs it **sees all
rows and all labels**. It stands beside the methods that keep rows on the clients to show what pooling buys.

The loss is weight · distance between classes + keep, minimised over the private rows with the items held still.

* **u2u**: mean squared distance between users of different classes (the quadratic form of the Laplacian of the
  graph that joins them), over the mean squared distance of all users at the start.
* **d2d**: squared maximum mean discrepancy between classes, summed over five Gaussian kernels.
* **keep**: mean squared change of a user's scores (less their mean over items, which orders nothing), over the mean
  square of these scores at the start.

With more than two classes both distances are the mean over pairs of classes.

Where it departs from the paper, because the rival comes out stronger:

* steps: momentum with an equal pull on every user instead of Adam, whose sign-like steps mark classes;
* kernels: widths are not given; the usual 1/4 .. 4 mean squared distances over-match neighbours, so that k-NN reads
  the classes the other way round, and wider ones do not;
* keep: squared change of scores (Chen et al. 2024) instead of the order of a list or the distance of rows.

u2u pulls each user to the other classes' mean, and so shrinks what is personal along with what the class shares: at
most to (K − 1)/K of its size does the difference of K classes fall against the spread of users, at any weight.

Source: Li et al. 2023 (Making Users Indistinguishable: Attribute-wise Unlearning in Recommender Systems), losses
U2U and D2D; Gretton et al. 2012 (MMD); Chen et al. 2024 (Post-Training Attribute Unlearning in Recommender
Systems) for keeping scores rather than parameters, and for more than two classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec_unlearn.data.types import MISSING
from fedrec_unlearn.errors import ConfigError, DataError, ModelError
from fedrec_unlearn.seeds import Purpose, generator

Kind = Literal["u2u", "d2d"]

WEIGHTS: dict[Kind, float] = {"u2u": 0.1, "d2d": 2.0}
"""Weights of the distance chosen on validation data of MovieLens 100K; see `match_distributions`."""
KERNELS = 5
"""Gaussian kernels of d2d; each is half as wide as the one before."""
WIDEST = 64.0
"""Width of the widest kernel exp(−distance²/width), in mean squared distances of two users at the start."""
SAMPLE = 2048
"""d2d: each step compares every user with at most so many, drawn anew; with fewer users with all of them."""

_STEP, _MOMENTUM = 0.2, 0.9
_CHUNK_NUMBERS = 1 << 22
_DRAW = 0x6D6D64
"""Sets these draws apart from others of `Purpose.UNLEARN`."""


def match_distributions(
    rows: Tensor,
    labels: NDArray[np.int64],
    *,
    kind: Kind = "d2d",
    items: Tensor | None,
    steps: int = 100,
    weight: float | None = None,
    seed: int,
) -> Tensor:
    """Move private rows until classes are alike; see the module for the loss.

    Args:
        rows: private rows of all users, shape (n, width).
        labels: shape (n,), class ids or `MISSING`.
        kind: the distance between classes.
        items: shape (m, width): what a private row is multiplied with to score items, up to an offset that does not
            depend on the user: item embeddings for MF, FM and PFedRec, with a column of zeros for a user's bias.
            None: rows are kept near themselves.
        steps: gradient steps over all users.
        weight: of the distance against keeping scores; None: of `WEIGHTS`. Larger is not safer: too much d2d makes
            classes avoid themselves, which reads as well as the opposite.
        seed: of the users compared in a step, where there are more than `SAMPLE`.

    Returns:
        Shape (n, width), the rows' dtype and device. Rows of users with a `MISSING` label are returned as they are.

    Raises:
        ConfigError: an unknown kind, or steps or weight not positive.
        DataError: shapes that do not fit, or users of fewer than two classes.
        ModelError: a value is NaN or infinite.
    """
    strength = WEIGHTS.get(kind, 1.0) if weight is None else weight
    _check(rows, labels, items, kind, steps, strength)
    known = np.flatnonzero(labels != MISSING)
    chosen = torch.from_numpy(known).to(rows.device)
    start = rows.detach().index_select(0, chosen).to(torch.float64)
    group = torch.from_numpy(np.unique(labels[known], return_inverse=True)[1]).to(rows.device)
    classes = Classes.of(group)
    spread = float(2.0 * (start.square().sum(1).mean() - start.mean(0).square().sum()))
    if spread <= 0:
        raise ModelError("matching: all users have the same private row; there is nothing to unlearn, train first")
    metric = score_metric(start, items)
    gradient: Callable[[Tensor, int], Tensor]
    if kind == "u2u":

        def gradient(x: Tensor, step: int) -> Tensor:
            return u2u_gradient(x, classes, spread)
    else:

        def gradient(x: Tensor, step: int) -> Tensor:
            return d2d_gradient(x, classes, spread, _compared(group, seed, step))

    # the steepest either part can be: a step that neither overshoots
    rate = _STEP / (2.0 * strength / spread + 2.0 * float(torch.linalg.eigvalsh(metric)[-1]))
    x, velocity = start.clone(), torch.zeros_like(start)
    for step in range(steps):
        velocity *= _MOMENTUM
        velocity -= rate * (strength * gradient(x, step) + 2.0 * ((x - start) @ metric))
        x += velocity
    if not bool(torch.isfinite(x).all()):
        raise ModelError(f"matching: rows became infinite at weight {strength:g}; lower unlearn.matching_weight")
    moved = rows.detach().clone()
    moved[chosen] = x.to(rows.dtype)
    return moved


@dataclass(frozen=True)
class Classes:
    """Who is in which class."""

    group: Tensor
    """int64 (n,): class of each user, 0 .. K-1, none empty."""
    counts: Tensor
    """float64 (K,): users of each class."""

    @classmethod
    def of(cls, group: Tensor) -> Classes:
        """Classes of users, int64 (n,)."""
        return cls(group, torch.bincount(group).to(torch.float64))

    def means(self, x: Tensor) -> Tensor:
        """Mean of the users of each class: (n, width) gives (K, width)."""
        sums = x.new_zeros(len(self.counts), x.shape[1]).index_add_(0, self.group, x)
        return sums / self.counts.unsqueeze(1)


def u2u_loss(x: Tensor, classes: Classes, spread: float) -> Tensor:
    """Mean squared distance between users of different classes over `spread`, a scalar; classes weigh equally."""
    means = classes.means(x)
    squares = classes.means(x.square().sum(1, keepdim=True)).squeeze(1)
    distance = squares.unsqueeze(1) + squares - 2.0 * means @ means.T
    k = len(means)
    return (distance.sum() - distance.diagonal().sum()) / (k * (k - 1) * spread)


def u2u_gradient(x: Tensor, classes: Classes, spread: float) -> Tensor:
    """Gradient of `u2u_loss`, each user's times the size of its class, K/2 and so alike in strength for all: (n, W)."""
    means = classes.means(x)
    others = (means.sum(0) - means) / (len(means) - 1)
    return 2.0 * (x - others.index_select(0, classes.group)) / spread


def d2d_loss(x: Tensor, classes: Classes, spread: float) -> Tensor:
    """Squared MMD between classes, biased estimate, mean over pairs of classes and sum over kernels, a scalar."""
    value, _ = _kernels(x, x, spread)
    member = torch.nn.functional.one_hot(classes.group).to(x.dtype) / classes.counts
    means = member.T @ value @ member
    k = len(means)
    return 2.0 * (k * means.diagonal().sum() - means.sum()) / (k * (k - 1))


def d2d_gradient(x: Tensor, classes: Classes, spread: float, compared: Tensor | None = None) -> Tensor:
    """Gradient of `d2d_loss`, each user's times the size of its class and K/2, in float32 products: (n, W).

    Args:
        x: rows, float64 (n, W).
        classes: who is in which class.
        spread: mean squared distance of two users, the unit of the kernels' widths.
        compared: users each is compared with, int64 (s,), at least one of each class; None: all.
    """
    k = len(classes.counts)
    others = x if compared is None else x.index_select(0, compared)
    group = classes.group if compared is None else classes.group.index_select(0, compared)
    counts = torch.bincount(group, minlength=k).to(torch.float32)
    # a user is drawn to the other classes as much as its own class pushes it away
    signs = torch.full((k, k), -1.0 / (k - 1), device=x.device).fill_diagonal_(1.0) / counts
    near, far = x.to(torch.float32), others.to(torch.float32)
    gradient = torch.empty_like(x)
    size = max(1, _CHUNK_NUMBERS // len(far))
    for first in range(0, len(x), size):
        part = near[first : first + size]
        _, slope = _kernels(part, far, spread)
        slope *= signs.index_select(0, classes.group[first : first + size]).index_select(1, group)
        flow = slope.sum(1, keepdim=True) * part - slope @ far
        gradient[first : first + size] = (4.0 * flow).to(x.dtype)
    return gradient


def score_metric(start: Tensor, items: Tensor | None) -> Tensor:
    """Matrix G for which Σ (x − start) G (x − start) over a user is that user's share of `keep`: (W, W)."""
    width = start.shape[1]
    gram = torch.eye(width, dtype=torch.float64, device=start.device)
    if items is not None:
        wide = items.detach().to(device=start.device, dtype=torch.float64)
        centred = wide - wide.mean(0)
        gram = centred.T @ centred
    before = float(((start @ gram) * start).sum(1).mean())
    if before <= 0:
        raise ModelError("matching: every user scores all items alike, so there are no recommendations to keep")
    return gram / before


def _kernels(x: Tensor, y: Tensor, spread: float) -> tuple[Tensor, Tensor]:
    """Sum of the kernels of each pair and its derivative in the squared distance, both (n, s)."""
    distance = x.square().sum(1, keepdim=True) + y.square().sum(1) - 2.0 * x @ y.T
    power = torch.exp(distance.clamp_min_(0.0) / -(WIDEST * spread))
    value, slope, times = power.clone(), power.clone(), 1
    for _ in range(KERNELS - 1):  # half the width is the square
        power = power.square()
        times *= 2
        value += power
        slope.add_(power, alpha=times)
    return value, slope.mul_(-1.0 / (WIDEST * spread))


def _compared(group: Tensor, seed: int, step: int) -> Tensor | None:
    """Users to compare with in a step, classes in their proportions; None for all."""
    n = len(group)
    if n <= SAMPLE:
        return None
    draw = generator(seed, Purpose.UNLEARN, _DRAW, step)
    labels = group.cpu().numpy()
    parts = []
    for c in range(int(labels.max()) + 1):
        members = np.flatnonzero(labels == c)
        parts.append(draw.permutation(members)[: max(1, round(len(members) * SAMPLE / n))])
    return torch.from_numpy(np.sort(np.concatenate(parts))).to(group.device)


def _check(rows: Tensor, labels: NDArray[np.int64], items: Tensor | None, kind: str, steps: int, weight: float) -> None:
    if kind not in get_args(Kind):
        raise ConfigError(f"matching: unknown kind {kind!r}; known: {', '.join(get_args(Kind))}")
    if steps < 1:
        raise ConfigError(f"unlearn.matching_steps: must be at least 1, not {steps}")
    if not 0 < weight < float("inf"):
        raise ConfigError(f"unlearn.matching_weight: must be positive, not {weight:g}")
    if rows.dim() != 2 or labels.shape != (len(rows),):
        raise DataError(
            f"matching: rows of shape {tuple(rows.shape)} need one label each, not labels of shape {labels.shape}"
        )
    if items is not None and (items.dim() != 2 or items.shape[1] != rows.shape[1]):
        raise DataError(
            f"matching: items of shape {tuple(items.shape)} do not score rows of width {rows.shape[1]}; "
            "give one column for each column of a private row"
        )
    if len(np.unique(labels[labels != MISSING])) < 2:
        raise DataError("matching: users of at least two classes are needed; nobody can be told apart otherwise")
    for name, values in (("private rows", rows), ("items", items)):
        if values is not None and not bool(torch.isfinite(values).all()):
            raise ModelError(f"matching: {name} hold NaN or infinite values; training has diverged")
