"""Names of ranking metrics: ``ndcg@10/full``, ``hr@10/99neg``. The protocol is part of the name.

A value reached among 99 random items and one reached among the whole catalogue are different quantities
(Krichene and Rendle 2020 show that they need not even order two models alike), so neither is ever written
without saying which it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from fedrec_unlearn.errors import ConfigError

RANKING_METRICS = ("recall", "ndcg", "hr", "mrr", "precision", "map")
"""Ranking metrics in the order in which reports list them."""

FULL = "full"
"""Protocol that ranks every item the user has not seen."""


def sampled_protocol(n_negatives: int) -> str:
    """Name of the protocol that ranks a held-out item among `n_negatives` random ones, for example ``99neg``."""
    return f"{n_negatives}neg"


def metric_key(metric: str, k: int, protocol: str) -> str:
    """Full name of a ranking metric.

    Args:
        metric: one of `RANKING_METRICS`.
        k: length of the recommendation list.
        protocol: `FULL`, or what `sampled_protocol` returns.

    Returns:
        ``"<metric>@<k>/<protocol>"``.
    """
    return f"{metric}@{k}/{protocol}"


def check_metrics(metrics: Sequence[str]) -> None:
    """Raise `ConfigError` for a metric that does not exist."""
    for name in metrics:
        if name not in RANKING_METRICS:
            close = difflib.get_close_matches(name, RANKING_METRICS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ConfigError(
                f"evaluation.metrics: unknown metric {name!r}{hint} (known: {', '.join(RANKING_METRICS)})"
            )


def check_topk(topk: Sequence[int], n_items: int) -> None:
    """Raise `ConfigError` for list lengths that cannot be filled from a catalogue of `n_items`."""
    _check_positive(topk)
    if max(topk) > n_items:
        raise ConfigError(
            f"evaluation.topk: K={max(topk)} is larger than the catalogue, n_items={n_items}; choose at most {n_items}"
        )


def check_sampled_topk(topk: Sequence[int], n_negatives: int) -> None:
    """Raise `ConfigError` for list lengths that hold every candidate, where the hit rate is 1 for any model."""
    _check_positive(topk)
    if max(topk) > n_negatives:
        raise ConfigError(
            f"evaluation.topk: a list of K={max(topk)} holds the held-out item and all {n_negatives} negatives, so "
            f"every model would score 1; choose at most {n_negatives}, or raise evaluation.sampled_negatives"
        )


def _check_positive(topk: Sequence[int]) -> None:
    if len(topk) == 0:
        raise ConfigError("evaluation.topk: names no list length; give at least one, for example 10")
    if min(topk) < 1:
        raise ConfigError(f"evaluation.topk: K={min(topk)} must be at least 1")
