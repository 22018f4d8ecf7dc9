"""From the rows of a study of transports, one for each arm and seed, to means with their spread over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrec_unlearn.bench.secemb.study import TransportStudy
from fedrec_unlearn.errors import DataError
from fedrec_unlearn.metrics import mean_interval

Row = Mapping[str, Any]

_MEANS = ("bytes_up", "bytes_down", "bytes_between", "deferred", "saturated", "cut", "best_round", "seconds")


def summarise(study: TransportStudy, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """`summary` of bench.json: an entry for each comparison and arm.

    Differences are taken seed by seed from the run under `plain` with the same seed, which has the same initial state
    and cohorts; ratios are those of the bytes sent.

    Args:
        study: says which arms, and their order.
        rows: of all arms and seeds.

    Raises:
        DataError: an arm lacks a seed, or a figure is not finite.
    """
    summary = []
    for comparison in study.comparisons:
        of_arm = {
            arm.name: sorted(
                (row for row in rows if (row["comparison"], row["arm"]) == (comparison.name, arm.name)),
                key=lambda row: int(study.seeds.index(row["seed"])),
            )
            for arm in comparison.arms
        }
        for name, own in of_arm.items():
            if [row["seed"] for row in own] != list(study.seeds):
                raise DataError(f"{comparison.name}, {name}: there are {len(own)} results, not one for each seed")
        sent = {name: _mean(own, "bytes_up") for name, own in of_arm.items()}
        plain = [row["value"] for row in of_arm["plain"]]
        exact = [row["value"] for row in of_arm["secagg"]] if "secagg" in of_arm else None
        for arm in comparison.arms:
            own = of_arm[arm.name]
            values = [row["value"] for row in own]
            over, apart = mean_interval(values), mean_interval([a - b for a, b in zip(values, plain, strict=True)])
            summary.append(
                {
                    "comparison": comparison.name,
                    "arm": arm.name,
                    "label": arm.label,
                    "transport": arm.config.federation.transport,
                    "max_items": arm.max_items,
                    "metric": comparison.metric,
                    "mean": over.mean,
                    "std": over.std,
                    "per_seed": values,
                    "difference": {"mean": apart.mean, "low": apart.low, "high": apart.high},
                    "same_as_secagg": None if exact is None else values == exact,
                    "ratio_plain": sent["plain"] / sent[arm.name],
                    "ratio_secagg": sent["secagg"] / sent[arm.name] if "secagg" in sent else None,
                    **{name: _mean(own, name) for name in _MEANS},
                    "touched_p90": own[0]["touched_p90"],
                    "touched_max": own[0]["touched_max"],
                }
            )
    return summary


def _mean(rows: Sequence[Row], name: str) -> float:
    return mean_interval([row[name] for row in rows]).mean
