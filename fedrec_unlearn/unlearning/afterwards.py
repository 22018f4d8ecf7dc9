"""Methods that change the private rows once, after training: one call for all of them.

What the rows are is the model's business; a method sees vectors with classes. Users who do not know their class for one
of the attributes keep their row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedrec_unlearn.config_unlearn import UnlearnConfig
from fedrec_unlearn.data.types import Attribute
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.unlearning.erasure import erase_linear
from fedrec_unlearn.unlearning.local_dp import privatise_rows
from fedrec_unlearn.unlearning.matching import match_distributions
from fedrec_unlearn.unlearning.moments import joint_labels
from fedrec_unlearn.unlearning.transport import transport_rows


@dataclass(frozen=True)
class ChangedRows:
    """Private rows after a method, and what they cost."""

    rows: Tensor
    """(n, width), as given."""
    bytes_up: int = 0
    """Sent by all clients together."""
    bytes_down: int = 0
    """Received by all clients together."""
    pooled: bool = False
    """Whether the method looked at all rows in one place."""


def change_rows(
    rows: Tensor, attributes: Sequence[Attribute], config: UnlearnConfig, *, items: Tensor | None, seed: int
) -> ChangedRows:
    """Apply the configuration's method.

    Args:
        rows: private rows of the users that train, (n, width).
        attributes: what to unlearn, with the labels of those users.
        config: method and options.
        items: what a private row is multiplied with to score items, (m, width), or its derivative where
            they are not linear in it; None: methods keep rows near themselves instead of scores.
        seed: the run's.

    Raises:
        ConfigError: the method does not work afterwards, or a combination of attributes has too few users.
    """
    method = config.method
    if method in ("moments", "fedau2_moments"):
        moved, up, down = transport_rows(rows, attributes, config, items=items, seed=seed)
        return ChangedRows(moved, up, down)
    if method == "leace":
        moved, up, down = erase_linear(rows, attributes, config, seed=seed)
        return ChangedRows(moved, up, down)
    if method == "local_dp":
        return ChangedRows(privatise_rows(rows, epsilon=config.dp_epsilon, delta=config.dp_delta, seed=seed))
    if method in ("u2u", "d2d"):
        moved = match_distributions(
            rows,
            joint_labels([a.labels for a in attributes], [len(a.classes) for a in attributes])[0],
            kind="u2u" if method == "u2u" else "d2d",
            items=items,
            steps=config.matching_steps,
            weight=config.matching_weight or None,
            seed=seed,
        )
        return ChangedRows(moved, pooled=True)
    raise ConfigError(f"unlearn.method: {method} does not work after training")
