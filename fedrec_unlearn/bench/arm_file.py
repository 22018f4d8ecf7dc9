"""The arms of a study file, each a line or a point of a grid, with their configurations."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from fedrec_unlearn.bench.reading import Entry, Options
from fedrec_unlearn.bench.study import GROUPS, METHOD_NAMES, Arm, Scope
from fedrec_unlearn.config import SURFACES, Config
from fedrec_unlearn.config_options import did_you_mean
from fedrec_unlearn.config_unlearn import ADVERSARIAL, METHODS

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_ARM_KEYS = ("name", "label", "group", "method", "unlearns", "epsilon", "from", "options", "surfaces")


def read_surfaces(entry: Entry) -> dict[str, Scope]:
    """What attackers see, and which attributes they infer from it.

    Raises:
        ConfigError: whatever is wrong with it, with file and line.
    """
    found: dict[str, Scope] = {}
    for surface, scope in entry.fields(SURFACES).items():
        found[surface] = "all" if scope.one_of(("all", "unlearned")) == "all" else "unlearned"
    if not found:
        entry.fail(f"needs at least one surface, for example user_embedding: all (known: {', '.join(SURFACES)})")
    return found


@dataclass(frozen=True)
class Ground:
    """What all arms stand on."""

    below: Options
    """The base, under an arm's own options."""
    above: Options
    """Changes of the quick version, over them."""
    surfaces: Mapping[str, Mapping[str, Scope]]
    """Of each group."""

    def config(self, at: Entry, own: Options, below: Options | None = None) -> Config:
        """An arm's configuration."""
        config = self.above.over(own.over(below or self.below)).config()
        known = config.attack.attributes
        for attribute in config.unlearn.attributes:
            if attribute not in known:
                near = did_you_mean(difflib.get_close_matches(attribute, known, n=1))
                at.fail(f"unlearns {attribute!r}, which is not among attack.attributes{near}")
        return config

    def arm(self, at: Entry, arm: Arm) -> Arm:
        """The arm, seen to keep what its attackers need."""
        if {"trajectory", "directions"} & set(arm.surfaces):
            if arm.source is not None and not arm.config.unlearn.adversarial:
                at.fail(
                    "trajectory and directions need the snapshots of a training of its own: leave out from, or name "
                    "other surfaces for this arm"
                )
            if arm.config.federation.snapshot_every == 0:
                at.fail("trajectory and directions need snapshots: set federation.snapshot_every")
        return arm


def read_arms(entry: Entry, ground: Ground) -> list[Arm]:
    """Section `arms`: a list of maps.

    Raises:
        ConfigError: whatever is wrong with it, with file and line.
    """
    arms: dict[str, Arm] = {}
    options: dict[str, Options] = {}
    for given in entry.entries():
        found = given.fields(_ARM_KEYS)
        own = _arm_options(found)
        source = found["from"].text() if "from" in found else None
        below = ground.below
        if source is not None:
            if source not in arms:
                near = did_you_mean(difflib.get_close_matches(source, arms, n=1))
                found["from"].fail(f"no arm {source!r} stands above this one{near}")
            outside = [name for name in own.entries if not name.startswith("unlearn.")]
            if outside:
                own.entries[outside[0]].fail(
                    "an arm that starts from another's run may change options of unlearn alone; "
                    "leave this out, or leave out from"
                )
            # the rest of its options are those of the run it starts from
            kept = {n: e for n, e in options[source].entries.items() if not n.startswith("unlearn.")}
            below = Options(kept).over(below)
        config = ground.config(given, own, below)
        if source is not None and config.unlearn.method == "none":
            given.fail("starts from another arm and unlearns nothing; name a method")
        name = found["name"].text() if "name" in found else _default_name(config)
        if not _NAME.fullmatch(name):
            found.get("name", given).fail(f"{name!r} cannot name a folder; use letters, digits, '.', '_', '+' and '-'")
        if name in arms:
            found.get("name", given).fail(f"there is an arm {name!r} already; give this one another name")
        group = found["group"].one_of(GROUPS) if "group" in found else "table"
        seen = read_surfaces(found["surfaces"]) if "surfaces" in found else ground.surfaces.get(group)
        if seen is None:
            given.fail(f"surfaces.{group} says what attackers see of this arm; it is missing")
        label = found["label"].text() if "label" in found else _default_label(config)
        arms[name] = ground.arm(given, Arm(name, label, group, config, seen, source))
        options[name] = own
    if not arms:
        entry.fail("needs at least one arm")
    return list(arms.values())


def _arm_options(found: Mapping[str, Entry]) -> Options:
    own = dict(Options.of(found["options"]).entries) if "options" in found else {}
    for key, option in (("method", "method"), ("unlearns", "attributes"), ("epsilon", "epsilon")):
        if key in found:
            if f"unlearn.{option}" in own:
                found[key].fail(f"is given twice, as {key} and in options as unlearn.{option}")
            own[f"unlearn.{option}"] = found[key]
    if "method" in found:
        found["method"].one_of(METHODS)
    return Options(own)


def _default_name(config: Config) -> str:
    return "-".join([config.unlearn.method, *config.unlearn.attributes])


def _default_label(config: Config) -> str:
    strength = f", ε {config.unlearn.epsilon:g}" if config.unlearn.adversarial and config.unlearn.epsilon else ""
    return METHOD_NAMES[config.unlearn.method] + strength


def read_grid(entry: Entry, ground: Ground, taken: set[str]) -> list[Arm]:
    """Section `ablation`: an arm for each method and strength.

    Args:
        entry: the section.
        ground: what the arms stand on.
        taken: names of the other arms.

    Raises:
        ConfigError: whatever is wrong with it, with file and line.
    """
    keys = ("methods", "unlearns", "epsilons", "options")
    found = entry.fields(keys, required=("methods", "unlearns", "epsilons"))
    if "ablation" not in ground.surfaces:
        entry.fail("surfaces.ablation says what attackers see of these arms; it is missing")
    own = Options.of(found["options"]) if "options" in found else Options({})
    arms = []
    for method in found["methods"].entries():
        method.one_of(sorted(ADVERSARIAL))
        for epsilon in found["epsilons"].entries():
            if epsilon.number() <= 0:
                epsilon.fail("must be a positive strength")
            given = {"unlearn.method": method, "unlearn.attributes": found["unlearns"], "unlearn.epsilon": epsilon}
            config = ground.config(entry, Options(given).over(own))
            name = f"{_default_name(config)}-epsilon-{epsilon.number():g}"
            if name in taken:
                epsilon.fail(f"there is an arm {name!r} already")
            taken.add(name)
            arm = Arm(name, _default_label(config), "ablation", config, ground.surfaces["ablation"])
            arms.append(ground.arm(entry, arm))
    return arms
