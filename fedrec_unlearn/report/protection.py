"""What is protected after unlearning and what is not, in sentences computed from figures and configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedrec_unlearn.report.inference import AttackResult
from fedrec_unlearn.report.unlearning import Leak, Unlearning
from fedrec_unlearn.report.wording import (
    CLEAR_TRANSPORTS,
    COURSES,
    SURFACES,
    UPLOADS,
    attacker_name,
    count,
    headed,
    listed,
    percent,
    plural,
    points,
    surface_name,
    surface_seen,
)

Kind = Literal["protected", "exposed", "overshoot", "unmeasured", "setting", "other"]

KINDS: dict[Kind, str] = {
    "protected": "No leak shown",
    "exposed": "Not protected",
    "overshoot": "Worse than before",
    "unmeasured": "Not measured",
    "setting": "By configuration",
    "other": "Not unlearned",
}
"""Kind of a statement -> its label."""

SPECIFIC = 0.02
"""An attribute that was not unlearned counts as unchanged within this distance."""


@dataclass(frozen=True)
class Statement:
    """A sentence on what is protected."""

    kind: Kind
    text: str

    @property
    def label(self) -> str:
        """The kind in words."""
        return KINDS[self.kind]


def statements(found: Unlearning, options: Mapping[str, str], attack: Mapping[str, Any]) -> list[Statement]:
    """What is and is not protected, by kind: what was measured, what was not, and what the configuration decides.

    Args:
        found: the unlearning of a run.
        options: the run's configuration, flat.
        attack: the configuration of the attack.
    """
    transport = options.get("federation.transport", "")
    measured = [leak for leak in found.leaks if leak.after is not None]
    told = [
        *(_measured(found, leak, transport) for leak in measured if leak.unlearned),
        _old_copies(found) if found.keeps_copy else None,
        *_unmeasured(found, options),
        *_settings(found, options),
        _choice(found, attack),
        *(_specificity(leak) for leak in measured if not leak.unlearned),
    ]
    order = list(KINDS)
    return sorted((s for s in told if s is not None), key=lambda s: order.index(s.kind))


def protection_sentence(found: Unlearning, attribute: str, options: Mapping[str, str]) -> str:
    """One sentence for the findings: from what an attribute can be told after unlearning, and from what not."""
    leaks = [leak for leak in found.of(attribute) if leak.after is not None]
    start = f"After {found.words.name}, {attribute}"
    if not leaks:
        return f"{start} has not been attacked yet: what the unlearning is worth is not known."
    shown = [f"{surface_seen(k.surface)} ({_brief(k)})" for k in leaks if k.telling is not None]
    hidden = [f"{surface_seen(k.surface)} ({_brief(k)})" for k in leaks if k.telling is None]
    parts = []
    if hidden:
        parts.append(f"cannot be told beyond luck from {listed(hidden)}")
    if shown:
        parts.append(f"{'but still' if hidden else 'can still be told'} from {listed(shown)}")
    missing = [surface_name(surface) for surface in not_measured(found, attribute, options)]
    tail = f"; not measured: {listed(missing)}" if missing else ""
    start += f" ({percent(leaks[0].chance)} by chance)"
    over = [surface_seen(k.surface) for k in leaks if k.overshoot]
    warning = f" It can be told better than before from {listed(over)}: over-shoot." if over else ""
    return f"{start} {', '.join(parts)}{tail}.{warning}"


def not_measured(found: Unlearning, attribute: str, options: Mapping[str, str]) -> list[str]:
    """Surfaces on which an attribute was not attacked; those that a secure transport does away with are left out."""
    done = {leak.surface for leak in found.of(attribute) if leak.after is not None}
    clear = options.get("federation.transport", "plain") in CLEAR_TRANSPORTS
    return [name for name in SURFACES if name not in done and (clear or name not in UPLOADS)]


def _brief(leak: Leak) -> str:
    result = leak.telling or leak.after
    assert result is not None
    before = None if leak.before is None else leak.before.balanced_accuracy.value
    told = _share(result)
    return told if before is None else f"{told}, before {percent(before)}"


def _share(result: AttackResult) -> str:
    value = result.balanced_accuracy.value
    if value is None:
        return "no figure"
    turned = result.verdict == "inverted" and len(result.classes) == 2
    return f"{percent(value)}, turned round {percent(1.0 - value)}" if turned else percent(value)


def _in_full(leak: Leak) -> str:
    result = leak.telling or leak.after
    assert result is not None
    estimate = result.balanced_accuracy
    told = f"{attacker_name(result.attacker)}: {_share(result)}"
    if estimate.low is not None and estimate.high is not None:
        low, high = percent(estimate.low).removesuffix("\u00a0%"), percent(estimate.high)
        told += f", 95\u00a0% interval {low} to {high}"
    before = None if leak.before is None else leak.before.balanced_accuracy.value
    if before is not None:
        told += f"; before {percent(before)}"
    return f"{told}; {percent(leak.chance)} by chance"


def _measured(found: Unlearning, leak: Leak, transport: str) -> Statement:
    where = headed(f"from {surface_seen(leak.surface)},")
    figures = _in_full(leak)
    if leak.telling is None:
        could = leak.before is not None and leak.before.beyond_luck
        again = "can no longer be told" if could else "cannot be told"
        return Statement("protected", f"{where} {leak.attribute} {again} beyond luck ({figures}).")
    remedy = _remedy(found, leak, transport)
    if leak.overshoot:
        return Statement(
            "overshoot",
            f"{where} {leak.attribute} can be told better than before unlearning ({figures}): over-shoot. {remedy}",
        )
    still = "can still be told"
    if leak.change is not None:
        as_well = "if anything better than" if leak.change > SPECIFIC else "as well as"
        still += f", {'if less well than' if leak.change < -SPECIFIC else as_well} before"
    return Statement("exposed", f"{where} {leak.attribute} {still} ({figures}). {remedy}".rstrip())


def _remedy(found: Unlearning, leak: Leak, transport: str) -> str:
    if leak.surface in UPLOADS:
        under = f"under the {transport} transport the server sees it" if transport else "the server sees it"
        return (
            f"Unlearning changes embeddings and not what is uploaded; {under}. "
            "A secure transport shows the server nothing but sums."
        )
    if leak.surface in COURSES:
        if found.words.during:
            return (
                "The reversed gradient pushes every embedding by its user's own label, so whoever sees several of "
                "them sees the push. Devices should keep none but the last."
            )
        return "Snapshots from before the step were never unlearned. Devices should keep none."
    return f"To change that, {found.words.remedy}." if found.words.remedy else ""


def _old_copies(found: Unlearning) -> Statement | None:
    old = [k for k in found.leaks if k.unlearned and k.surface == "user_embedding" and k.before is not None]
    telling = [f"{k.attribute} ({_share(k.before)})" for k in old if k.before is not None and k.before.beyond_luck]
    if not telling:
        return None
    return Statement(
        "exposed",
        f"Copies of the user embeddings from before still tell {listed(telling)}: devices must delete them. In this "
        "simulation the run folder keeps such a copy (before.safetensors).",
    )


def _unmeasured(found: Unlearning, options: Mapping[str, str]) -> list[Statement]:
    by_surfaces: dict[tuple[str, ...], list[str]] = {}
    for attribute in found.attributes:
        by_surfaces.setdefault(tuple(not_measured(found, attribute, options)), []).append(attribute)
    told = []
    for missing, attributes in by_surfaces.items():
        if not missing:
            continue
        text = (
            f"Not attacked for {listed(attributes)}: {listed([surface_name(name) for name in missing])}. Run fedrec "
            f"attack with --surfaces {','.join(missing)}"
        )
        courses = [surface_name(name) for name in missing if name in COURSES]
        if courses and options.get("federation.snapshot_every", "0") == "0":
            text += f"; {listed(courses)} need a training with federation.snapshot_every, which was 0"
        told.append(Statement("unmeasured", f"{text}."))
    return told


def _choice(found: Unlearning, attack: Mapping[str, Any]) -> Statement | None:
    if not found.chosen or attack.get("users", "all") != "all" or not found.leaks:
        return None
    text = (
        "The strength was chosen by attacks on a part of the users that are attacked here too, which flatters the "
        "figures a little: attack the others alone, by attack.users: audit."
    )
    return Statement("setting", text)


def _settings(found: Unlearning, options: Mapping[str, str]) -> list[Statement]:
    method = found.words
    told = []
    if method.sums and found.secure_sums is not None:
        if found.secure_sums:
            text = (
                f"{headed(method.sums)} travel as additive shares to two servers (unlearn.secure_sums is on): as long "
                "as the two do not put their shares together, each sees noise and both learn the sum alone."
            )
        else:
            text = (
                f"{headed(method.sums)} travel in the clear (unlearn.secure_sums is off): {method.reveals}. "
                "Switch it on."
            )
        told.append(Statement("setting" if found.secure_sums else "exposed", text))
    if found.pooled_rows:
        text = "The method needs all users' embeddings and attributes in one place, which a federation exists to avoid."
        told.append(Statement("exposed", text))
    if options.get("unlearn.silent_when_wrong") == "True" and method.during:
        text = (
            "Clients send no update while the adversary misjudges them (unlearn.silent_when_wrong): their silence "
            "tells the server that it did."
        )
        told.append(Statement("exposed", text))
    transport = options.get("federation.transport", "")
    if transport and transport not in CLEAR_TRANSPORTS:
        text = f"Under the {transport} transport the server sees sums alone: no user's upload exists to be attacked."
        told.append(Statement("setting", text))
    for attribute, number in found.missing.items():
        if number and found.method != "local_dp":
            known = f" ({count(found.known[attribute])} are known)" if attribute in found.known else ""
            text = f"The {attribute} of {plural(number, 'user')} is not known{known}, so theirs was not unlearned."
            told.append(Statement("exposed", text))
    return told


def _specificity(leak: Leak) -> Statement | None:
    if leak.surface != "user_embedding":
        return None
    change = leak.change
    told = f"{headed(leak.attribute)} was not to be unlearned ({_in_full(leak)})"
    if change is None:
        return Statement("other", f"{told}.")
    if abs(change) <= SPECIFIC:
        return Statement("other", f"{told}, and is as readable as before (distance from chance {points(change)}).")
    how = "less" if change < 0 else "more"
    return Statement("other", f"{told}, but is {how} readable than before (distance from chance {points(change)}).")
