"""Studies of transports from files: strict YAML, checked as a whole before any work starts.

::

    kind: transports
    paper: secemb
    title: SecEmb and its rivals
    seeds: [2020, 2021, 2022]
    costs:
      repeats: 5
      round: {catalogue: Yelp, clients: 100, https: true}
      catalogues:
        - name: Yelp
          items: 93386
          max_items: 500
          printed: {secfedrec: 47.81, secemb: 0.52, ratio: 91.2}
    base:                       # a configuration, as in configs/*.yaml
      data: {name: ml-100k}
      secemb: {execution: counted}
    transports: [plain, secemb, int8]
    comparisons:
      - {name: mf, title: MF, metric: ndcg@10, max_items: [100, 200]}
    quick: {seeds: [2020], catalogues: [Yelp], costs: {repeats: 1}, options: {federation.rounds: 60}}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from fedrec_unlearn.bench.reading import Entry, Options, read_seeds
from fedrec_unlearn.bench.secemb.study import (
    TRANSPORT_NAMES,
    Catalogue,
    Comparison,
    CostPlan,
    CostTargets,
    Printed,
    TransportArm,
    TransportStudy,
)
from fedrec_unlearn.config import Config
from fedrec_unlearn.metrics import FULL, sampled_protocol

_KEYS = ("kind", "paper", "title", "seeds", "costs", "base", "transports", "comparisons", "quick")
_QUICK_KEYS = ("seeds", "catalogues", "costs", "transports", "comparisons", "max_items", "options")
_COMPARISON_KEYS = ("name", "title", "metric", "options", "max_items")
_NUMBERS = {"width": 1, "dense": 0, "fraction_bits": 1, "repeats": 1, "client_repeats": 1}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def read_transport_study(root: Entry, *, quick: bool = False) -> TransportStudy:
    """Read and check a study.

    Args:
        root: of a YAML file as above.
        quick: with the changes its section `quick` makes.

    Raises:
        ConfigError: whatever is wrong with it, with file and line.
    """
    required = ("paper", "title", "seeds", "costs", "base", "transports", "comparisons")
    found = root.fields(_KEYS, required=required)
    shortened = found["quick"].fields(_QUICK_KEYS) if "quick" in found else {}
    if quick and not shortened:
        root.fail("has no section quick, so there is no short version of it")
    short = shortened if quick else {}
    above = Options.of(short["options"]) if "options" in short else Options({})
    below = Options.of(found["base"])
    below.config()
    costs = _costs(found["costs"])
    if "costs" in short:
        costs = _changed(costs, short["costs"].fields(_cost_keys()))
    if "catalogues" in short:
        names = [catalogue.name for catalogue in costs.catalogues]
        kept = {entry.one_of(names) for entry in short["catalogues"].entries()}
        costs = replace(costs, catalogues=tuple(c for c in costs.catalogues if c.name in kept))
    comparisons = tuple(
        _comparison(entry, found["transports"], short, below, above) for entry in found["comparisons"].entries()
    )
    names = [comparison.name for comparison in comparisons]
    for name in names:
        if names.count(name) > 1:
            found["comparisons"].fail(f"there are two comparisons {name!r}")
    if "comparisons" in short:
        chosen = {entry.one_of(names) for entry in short["comparisons"].entries()}
        comparisons = tuple(comparison for comparison in comparisons if comparison.name in chosen)
    return TransportStudy(
        name=root.file.stem,
        paper=found["paper"].text(),
        title=found["title"].text(),
        seeds=read_seeds(short.get("seeds", found["seeds"])),
        base=above.over(below).config(),
        costs=costs,
        comparisons=comparisons,
        quick=quick,
    )


def _cost_keys() -> tuple[str, ...]:
    return (*_NUMBERS, "ring_bits", "encodings", "batches", "paper", "round")


def _costs(entry: Entry) -> CostPlan:
    found = entry.fields((*_cost_keys(), "catalogues"), required=("catalogues",))
    catalogues = tuple(_catalogue(given) for given in found["catalogues"].entries())
    if not catalogues:
        found["catalogues"].fail("needs at least one catalogue")
    if len({catalogue.name for catalogue in catalogues}) < len(catalogues):
        found["catalogues"].fail("names a catalogue twice")
    return _changed(CostPlan(catalogues), found)


def _changed(plan: CostPlan, found: Mapping[str, Entry]) -> CostPlan:
    """A plan with what a section says of it."""
    changes: dict[str, Any] = {key: found[key].integer(least=least) for key, least in _NUMBERS.items() if key in found}
    if "ring_bits" in found:
        changes["ring_bits"] = found["ring_bits"].integer()
        if changes["ring_bits"] not in (32, 64):
            found["ring_bits"].fail("must be 32 or 64")
    if "encodings" in found:
        changes["encodings"] = tuple(given.one_of(("binned", "paper")) for given in found["encodings"].entries())
    if "batches" in found:
        changes["batches"] = tuple(given.integer(least=1) for given in found["batches"].entries())
        if not changes["batches"]:
            found["batches"].fail("needs at least one size")
    if "paper" in found:
        inner = found["paper"].fields(("clients", "repeats"))
        changes |= {f"paper_{key}": given.integer(least=1) for key, given in inner.items()}
    if "round" in found:
        inner = found["round"].fields(("catalogue", "clients", "https"))
        if "catalogue" in inner:
            names = [catalogue.name for catalogue in plan.catalogues]
            changes["round_catalogue"] = inner["catalogue"].one_of(names)
        if "clients" in inner:
            changes["round_clients"] = inner["clients"].integer(least=1)
        if "https" in inner:
            changes["round_https"] = inner["https"].value()
            if not isinstance(changes["round_https"], bool):
                inner["https"].fail("must be true or false")
    return replace(plan, **changes)


def _catalogue(entry: Entry) -> Catalogue:
    required = ("name", "items", "max_items")
    found = entry.fields((*required, "printed", "targets"), required=required)
    printed = targets = None
    if "printed" in found:
        keys = tuple(field.name for field in fields(Printed))
        printed = Printed(**{key: given.number() for key, given in found["printed"].fields(keys, keys).items()})
    if "targets" in found:
        keys = tuple(field.name for field in fields(CostTargets))
        given_targets = found["targets"].fields(keys, [key for key in keys if key != "work_ratio"])
        targets = CostTargets(**{key: given.number() for key, given in given_targets.items()})
    return Catalogue(
        found["name"].text(), found["items"].integer(least=1), found["max_items"].integer(least=1), printed, targets
    )


def _comparison(
    entry: Entry, transports: Entry, short: Mapping[str, Entry], below: Options, above: Options
) -> Comparison:
    found = entry.fields(_COMPARISON_KEYS, required=("name", "title", "metric"))
    name = found["name"].text()
    if not _NAME.fullmatch(name):
        found["name"].fail(f"{name!r} cannot name a folder; use letters, digits, '.', '_', '+' and '-'")
    own = Options.of(found["options"]) if "options" in found else Options({})
    arms: list[TransportArm] = []
    for given in short.get("transports", transports).entries():
        transport = given.one_of(tuple(TRANSPORT_NAMES))
        config = above.over(Options({"federation.transport": given}).over(own.over(below))).config()
        label = TRANSPORT_NAMES[transport]
        if transport == "secemb" and "max_items" in found:
            label += ", no limit" if config.federation.max_items == 0 else f", m' = {config.federation.max_items}"
        arms.append(TransportArm(transport, label, config, config.federation.max_items))
    names = [arm.name for arm in arms]
    if "plain" not in names:
        transports.fail("must hold plain, which the others are compared with")
    if len(set(names)) < len(names):
        transports.fail("names a transport twice")
    if "max_items" in found:
        if "secemb" not in names:
            found["max_items"].fail("compares SecEmb with itself, so transports must hold secemb")
        place = names.index("secemb")
        like = next(e for e in short.get("transports", transports).entries() if e.text() == "secemb")
        limits = []
        for given in short.get("max_items", found["max_items"]).entries():
            limit = given.integer(least=1)
            options = Options({"federation.transport": like, "federation.max_items": given})
            config = above.over(options.over(own.over(below))).config()
            limits.append(TransportArm(f"secemb-{limit}", f"SecEmb, m' = {limit}", config, limit))
        arms[place:place] = limits
        if len({arm.name for arm in arms}) < len(arms):
            found["max_items"].fail("names a number twice")
    return Comparison(name, found["title"].text(), _metric(found["metric"], arms[0].config), tuple(arms))


def _metric(entry: Entry, config: Config) -> str:
    """The full name of a metric that the runs of a comparison have."""
    if config.federation.objective == "mse":
        return entry.one_of(("rmse",))
    options = config.evaluation
    metric = entry.one_of([f"{name}@{length}" for name in options.metrics for length in options.topk])
    protocol = FULL if options.protocol == "full" else sampled_protocol(options.sampled_negatives)
    return f"{metric}/{protocol}"
