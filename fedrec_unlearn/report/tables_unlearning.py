"""Tables of unlearning: what was done and what it cost, what recommendation kept, what each surface still tells."""

from __future__ import annotations

from collections.abc import Callable

from fedrec_unlearn.report.figures import RunFigures
from fedrec_unlearn.report.inference import AttackResult
from fedrec_unlearn.report.tables import MISSING, Cell, Row, estimate_cell
from fedrec_unlearn.report.unlearning import Leak, Unlearning
from fedrec_unlearn.report.wording import (
    attacker_name,
    byte_size,
    count,
    decimal,
    duration,
    headed,
    listed,
    metric_name,
    percent,
    signed,
    strength,
    surface_name,
)


def unlearning_facts(run: RunFigures) -> list[Row]:
    """What was unlearned, how, and what it cost: a row with one cell a fact."""
    found = run.unlearning
    assert found is not None
    n_users = run.facts["n_users"] if isinstance(run.facts["n_users"], int) else None
    epsilon = None
    if found.epsilon:
        chosen = "chosen by fresh attackers" if found.chosen else "set"
        epsilon = Cell(strength(found.epsilon), found.epsilon, chosen)
    sums = None
    if found.words.sums and found.secure_sums is not None:
        sums = Cell("as shares to two servers" if found.secure_sums else "in the clear")
    rows = [
        ("Method", Cell(headed(found.words.name))),
        ("Attributes", Cell(listed(list(found.attributes)) if found.attributes else "none")),
        ("Strength ε", epsilon),
        ("Started from", Cell(found.source) if found.source else None),
        ("Attribute known of", _known(found)),
        ("Sums over users travel", sums),
        ("Rows and labels pooled", Cell("yes") if found.pooled_rows else None),
        ("Step after training", _maybe(found.seconds if found.words.afterwards else None, duration)),
        ("Sent for the step", _bytes(found.bytes_up, n_users)),
        ("Received for the step", _bytes(found.bytes_down, n_users)),
    ]
    if found.words.during:
        reference = found.reference
        before = None if reference is None else reference.round_seconds
        rows.append(("A round (median)", _beside(run.time["round_median"], before, duration)))
        before = None if reference is None else reference.round_bytes_up
        rows.append(
            ("Sent by a user in a round", _beside(run.traffic["up_per_user_and_round"], before, byte_size)),
        )
    return [Row(name, (cell,)) for name, cell in rows if cell is not None and cell.text]


def _maybe(value: float | None, words: Callable[[float], str]) -> Cell | None:
    return None if value is None else Cell(words(value), value)


def _known(found: Unlearning) -> Cell | None:
    told = [
        f"{count(found.known[name])}" + (f" of {count(found.known[name] + lost)}" if lost else "") + " users"
        for name in found.attributes
        if name in found.known
        for lost in [found.missing.get(name, 0)]
    ]
    if not told:
        return None
    same = len(set(told)) == 1
    return Cell(told[0] if same else "; ".join(f"{a}: {t}" for a, t in zip(found.attributes, told, strict=False)))


def _bytes(value: float | None, n_users: int | None) -> Cell | None:
    if not value:
        return None
    share = f"{byte_size(value / n_users)} a user" if n_users else ""
    return Cell(byte_size(value), value, share)


def _beside(value: float | None, before: float | None, words: Callable[[float], str]) -> Cell | None:
    if value is None:
        return None
    return Cell(words(value), value, "" if before is None else f"{words(before)} without unlearning")


KEPT_COLUMNS = ("Metric", "Before", "After", "Kept")
"""Columns of the table of ranking metrics before and after."""


def kept_rows(found: Unlearning) -> list[Row]:
    """Ranking metrics on test data before and after, and their ratio."""
    rows = []
    for pair in found.kept:
        assert pair.before is not None
        assert pair.after is not None
        ratio = MISSING if pair.ratio is None else Cell(f"{decimal(pair.ratio, 3)} times", pair.ratio)
        cells = (Cell(decimal(pair.before, 4), pair.before), Cell(decimal(pair.after, 4), pair.after), ratio)
        rows.append(Row(metric_name(pair.metric), cells, pair.metric))
    return rows


_SEEN = ("Attribute", "Attacker sees")
_FIGURES = ("Balanced accuracy", "Before", "Chance", "From chance")

UNLEARNED_COLUMNS = (*_SEEN, "Result", "Worst attacker", *_FIGURES)
"""Columns of the table of attributes that were unlearned; the first four hold words."""

OTHER_COLUMNS = (*_SEEN, "Worst attacker", *_FIGURES, "Distance, change")
"""Columns of the table of attributes that were not; the first three hold words."""


def unlearned_rows(found: Unlearning) -> list[Row]:
    """Unlearned attributes: a row a surface, with the worst attacker after and before, in either direction."""
    leaks = [leak for leak in found.leaks if leak.unlearned]
    return [
        Row(leak.attribute, (Cell(surface_name(leak.surface)), Cell(result_words(leak)), *_figures(leak)))
        for leak in leaks
    ]


def other_rows(found: Unlearning) -> list[Row]:
    """Attributes that were not to be unlearned: the same, and how far the distance from chance has changed."""
    rows = []
    for leak in found.leaks:
        if not leak.unlearned:
            change = MISSING if leak.change is None else Cell(signed(leak.change), leak.change)
            rows.append(Row(leak.attribute, (Cell(surface_name(leak.surface)), *_figures(leak), change)))
    return rows


def _figures(leak: Leak) -> tuple[Cell, ...]:
    after, before = leak.after, leak.before
    return (
        MISSING if after is None else Cell(attacker_name(after.attacker)),
        MISSING if after is None else estimate_cell(after.balanced_accuracy),
        MISSING if before is None else estimate_cell(before.balanced_accuracy),
        Cell(percent(leak.chance), leak.chance),
        _from_chance(after),
    )


def _from_chance(result: AttackResult | None) -> Cell:
    value = None if result is None else result.above_chance.value
    return MISSING if value is None else Cell(signed(value), value)


def result_words(leak: Leak) -> str:
    """What the attacks after say, in two or three words."""
    if leak.after is None:
        return "not attacked"
    if leak.telling is None:
        return "no leak shown"
    if leak.overshoot:
        return "over-shoot"
    return "leaks, inverted" if leak.telling.verdict == "inverted" else "leaks"
