"""From the events of a run to its curves: loss, validation metric, bytes and seconds of each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.report.wording import printable

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Rounds:
    """What was measured in each round, ascending by round; every array has shape (n_rounds,)."""

    round: NDArray[np.int64]
    clients: FloatArray
    loss: FloatArray
    """Mean training loss of the round's clients; NaN where it was not recorded."""
    interactions: FloatArray
    seconds: FloatArray
    bytes_up: FloatArray
    """Sum over the round's clients."""
    bytes_down: FloatArray

    @property
    def up_per_client(self) -> FloatArray:
        """Bytes a client of the round sends; NaN where no client took part."""
        return _divide(self.bytes_up, self.clients)

    @property
    def down_per_client(self) -> FloatArray:
        """Bytes a client of the round receives; NaN where no client took part."""
        return _divide(self.bytes_down, self.clients)


@dataclass(frozen=True)
class Evaluation:
    """An evaluation during training."""

    round: int
    best: bool
    """The best value so far when it was made."""
    metrics: dict[str, float | None]


def _divide(total: FloatArray, count: FloatArray) -> FloatArray:
    share = np.full(len(total), np.nan)
    np.divide(total, count, out=share, where=count > 0)
    return share


def rounds_of(events: Sequence[Mapping[str, Any]]) -> Rounds:
    """Collect the rounds; of a round that was repeated after an interruption the last record counts."""
    last = {event["round"]: event for event in events if event["event"] == "round"}
    ordered = [last[number] for number in sorted(last)]

    def column(key: str) -> FloatArray:
        values = [event.get(key) for event in ordered]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    return Rounds(
        round=np.array(sorted(last), dtype=np.int64),
        clients=column("clients"),
        loss=column("loss"),
        interactions=column("interactions"),
        seconds=column("seconds"),
        bytes_up=column("bytes_up"),
        bytes_down=column("bytes_down"),
    )


def evaluations_of(events: Sequence[Mapping[str, Any]], part: str = "valid") -> tuple[Evaluation, ...]:
    """Collect the evaluations on one part of the data, ascending by round; repeated ones count once, the last."""
    last = {e["round"]: e for e in events if e["event"] == "evaluation" and e["part"] == part}
    return tuple(
        Evaluation(
            number,
            bool(last[number].get("best")),
            {printable(name): value for name, value in last[number]["metrics"].items()},
        )
        for number in sorted(last)
    )


def smoothing_window(n_rounds: int, clients_per_round: float, n_users: int | None) -> int:
    """Length of the moving mean of the loss, an odd number of rounds.

    One pass over the users, so that the mean is over about every user once and not over the luck of a
    round's draw; but at most a twentieth of the rounds, so that a steep start is not flattened.
    """
    if n_rounds < 1 or not n_users or not clients_per_round > 0:
        return 1
    window = min(int(np.ceil(n_users / clients_per_round)), n_rounds // 20)
    return max(1, window // 2 * 2 + 1) if window > 1 else 1


def moving_mean(values: FloatArray, weights: FloatArray, window: int) -> FloatArray:
    """Centred weighted moving mean.

    At the start the window is cut on both sides alike, so that a steep fall is not flattened; at the end on
    its right side only, so that the last value is no less a mean than the others.

    Args:
        values: shape (n,); NaN counts as not there.
        weights: shape (n,), not negative; NaN counts as 1.
        window: odd number of values.

    Returns:
        Shape (n,); NaN where the window holds no value.
    """
    n = len(values)
    weight = np.where(np.isfinite(values), np.where(np.isfinite(weights), weights, 1.0), 0.0)
    total = np.concatenate([[0.0], np.cumsum(np.where(weight > 0, values * weight, 0.0))])
    count = np.concatenate([[0.0], np.cumsum(weight)])
    at = np.arange(n)
    left = np.minimum(window // 2, at)
    first, end = at - left, at + np.minimum(left, n - 1 - at) + 1
    mean = _divide(total[end] - total[first], count[end] - count[first])
    # a window of one is the value itself, not a difference of sums that lost digits
    return values.copy() if window == 1 else mean
