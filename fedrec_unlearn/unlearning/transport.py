"""Moment transport: after training, secure sums of counts and moments by class, then every client moves its own row.

No adversary, no gradient an attacker could invert and no further round. What the clients send is
`moments.client_message`; what comes back is the sum, from which every client works out the map of its class
(`transport_map`).

Only a random part of the users send (`unlearn.moment_share`), the others send zeros. With everyone's moments the
classes would be evened out *in the sample an attacker judges*: whoever learns from some of the users then finds the
opposite in the others. The part is a knob between that and the sampling error of the moments.

**Guarantee.** As `moments`: the two servers learn the moments of the classes and nothing of one user, as long as they
do not collude. All clients learn the moments too. What is evened out are moments up to the second, as far as the ridge
lets them: an attacker may still find what lies in others, and a snapshot of a row from before the transport tells what
it told then. The map of a class is public, so a row's value before *and* after shows the class: a client shows one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedrec_unlearn.config_unlearn import UnlearnConfig
from fedrec_unlearn.data.types import Attribute
from fedrec_unlearn.unlearning.moment_sums import moments_of
from fedrec_unlearn.unlearning.moments import ClassMoments
from fedrec_unlearn.unlearning.transport_map import ClassMaps, damped_maps, mean_maps, optimal_maps, shrunk


def transport_rows(
    rows: Tensor, attributes: Sequence[Attribute], config: UnlearnConfig, *, items: Tensor | None, seed: int
) -> tuple[Tensor, int, int]:
    """Move the private rows so that classes are alike in mean and covariance.

    Several attributes are unlearned as one whose classes are the combinations that occur.

    Args:
        rows: private rows, (n, width).
        attributes: with the labels of those users; rows of users who do not know one of them stay.
        config: `moment_share`, `moment_order`, `transport_ridge` and `shrinkage`.
        items: what a row is multiplied with to score items, (m, width), or None to keep rows near themselves.
        seed: of the draw of users.

    Returns:
        the rows, (n, width) as given; bytes sent and bytes received by all clients together.

    Raises:
        ConfigError: fewer than two classes, or combinations of classes, with enough users among those drawn.
        ModelError: rows that do not vary.

    Warns:
        UnlearnWarning: a class has too few users; their rows stay.
    """
    known = rows.detach().cpu().to(torch.float64).numpy()
    found = moments_of(known, attributes, config, seed)
    maps = make_maps(shrunk(found.moments, config.shrinkage), config, items)
    moved = torch.from_numpy(maps.apply(known, found.labels)).to(rows)
    return moved, found.bytes_up * len(known), found.bytes_down * len(known)


def make_maps(moments: ClassMoments, config: UnlearnConfig, items: Tensor | None) -> ClassMaps:
    """The maps a configuration asks for.

    Args:
        moments: of the classes.
        config: `moment_order` and `transport_ridge`.
        items: as for `transport_rows`.
    """
    if config.moment_order == "mean":
        return mean_maps(moments)
    if config.moment_order == "optimal":
        return optimal_maps(moments)
    cost = None
    if items is not None:
        factors = items.detach().cpu().to(torch.float64).numpy()
        centred = factors - factors.mean(axis=0)  # what moves all scores alike changes no ranking
        cost = centred.T @ centred / len(centred)
    return damped_maps(moments, cost, config.transport_ridge)
