"""What a round costs: each measurement of a plan, done once and kept, and put together for the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedrec_unlearn.bench.secemb.machine import apart
from fedrec_unlearn.bench.secemb.sizes import dense_sharing_bytes, paper_secemb_bytes, paper_secfedrec_bytes
from fedrec_unlearn.bench.secemb.study import Catalogue, CostPlan
from fedrec_unlearn.bench.study import plain
from fedrec_unlearn.errors import DependencyError, RunError
from fedrec_unlearn.federation.run_folder import read_json, write_json

_FORMAT = 1

Figures = Mapping[str, Any]
Measurement = Literal["client", "server", "local round", "https round"]


@dataclass(frozen=True)
class CostTask:
    """One measurement, in a process of its own."""

    catalogue: Catalogue
    measurement: Measurement
    encoding: str
    clients: int
    settings: Mapping[str, Any]
    """Arguments of the measurement, in plain values."""
    result: Path
    """The file for what was measured."""

    @property
    def name(self) -> str:
        """For progress."""
        batch = f", {self.clients} clients" if self.measurement == "server" else ""
        return f"{self.catalogue.name}, {self.encoding}: {self.measurement}{batch}"


def possible(plan: CostPlan, told: Callable[[str], None]) -> CostPlan:
    """A plan without the round over HTTPS where what it needs is not installed.

    Args:
        plan: what to measure.
        told: takes a sentence that says what is left out and why.
    """
    from fedrec_unlearn.serving.extra import need_extra

    if plan.round_catalogue is None or not plan.round_https:
        return plan
    try:
        need_extra("httpx", "starlette", "uvicorn")
    except DependencyError as error:
        told(f"no round over HTTPS: {error}")
        return replace(plan, round_https=False)
    return plan


def cost_tasks(plan: CostPlan, folder: Path) -> list[CostTask]:
    """All measurements of a plan, smallest catalogue first.

    Args:
        plan: what to measure.
        folder: the study's output folder.
    """
    tasks = []

    def add(catalogue: Catalogue, measurement: Measurement, encoding: str, clients: int, **settings: int) -> None:
        parameters = {
            "n_items": catalogue.n_items,
            "max_items": catalogue.max_items,
            "width": plan.width,
            "ring_bits": plan.ring_bits,
            "dense": plan.dense,
            "encoding": encoding,
        }
        name = f"cost-{catalogue.name}-{encoding}-{measurement.replace(' ', '-')}-{clients}.json"
        if measurement != "client":
            settings["clients"] = clients
        given = plain({"parameters": parameters, "fraction_bits": plan.fraction_bits, **settings})
        tasks.append(CostTask(catalogue, measurement, encoding, clients, given, folder / "results" / name))

    for encoding in plan.encodings:
        papers = encoding == "paper"
        for catalogue in plan.catalogues:
            add(catalogue, "client", encoding, 1, repeats=plan.client_repeats)
            for clients in (plan.paper_clients,) if papers else plan.batches:
                repeats = plan.paper_repeats if papers else plan.repeats
                add(catalogue, "server", encoding, clients, repeats=repeats)
    rounds: tuple[Measurement, ...] = ("local round", "https round") if plan.round_https else ("local round",)
    for catalogue in plan.catalogues:
        if catalogue.name == plan.round_catalogue:
            for measurement in rounds:
                add(catalogue, measurement, "binned", plan.round_clients)
    return tasks


def finished_cost(task: CostTask) -> dict[str, Any] | None:
    """What was measured before with the same settings, None otherwise."""
    try:
        content = read_json(task.result)
    except RunError:
        return None
    if content.get("format") != _FORMAT or content.get("settings") != task.settings:
        return None
    figures: dict[str, Any] = content["figures"]
    return figures


def measure_cost(task: CostTask) -> dict[str, Any]:
    """Measure anew.

    Raises:
        WorkerError: it failed.
    """
    return apart(task.measurement, task.settings)


def complete_cost(task: CostTask) -> dict[str, Any]:
    """What was measured before, or now.

    Raises:
        WorkerError: it failed.
    """
    before = finished_cost(task)
    if before is not None:
        return before
    figures = measure_cost(task)
    write_json(task.result, {"format": _FORMAT, "settings": task.settings, "figures": figures})
    return figures


def costs_content(plan: CostPlan, tasks: Sequence[CostTask], figures: Sequence[Figures]) -> dict[str, Any]:
    """`costs`, `formula` and `rounds` of bench.json.

    Args:
        plan: what was measured.
        tasks: of `cost_tasks`.
        figures: of each of them.
    """
    costs: list[dict[str, Any]] = []
    for catalogue in plan.catalogues:
        for encoding in plan.encodings:
            own = [
                (task, found)
                for task, found in zip(tasks, figures, strict=True)
                if task.catalogue == catalogue and task.encoding == encoding
            ]
            client = next(found for task, found in own if task.measurement == "client")
            servers = [found for task, found in own if task.measurement == "server"]
            costs.append(
                {
                    "catalogue": catalogue.name,
                    "items": catalogue.n_items,
                    "max_items": catalogue.max_items,
                    "encoding": encoding,
                    "targets": None if catalogue.targets is None else asdict(catalogue.targets),
                    "client": client,
                    "server": servers,
                    **_ratios(catalogue, plan, client["bytes"]["once"]["upload"]),
                }
            )
    return {
        "width": plan.width,
        "ring_bits": plan.ring_bits,
        "costs": costs,
        "work": [_work(name, costs) for name in dict.fromkeys(entry["catalogue"] for entry in costs)],
        "formula": [formula(catalogue, plan) for catalogue in plan.catalogues],
        "rounds": [
            {"catalogue": task.catalogue.name, "kind": task.measurement, **found}
            for task, found in zip(tasks, figures, strict=True)
            if task.measurement.endswith("round")
        ],
    }


def _ratios(catalogue: Catalogue, plan: CostPlan, upload: int) -> dict[str, float]:
    both, compressed = dense_sharing_bytes(catalogue.n_items, plan.width, plan.ring_bits)
    return {"ratio": both / upload, "ratio_compressed": compressed / upload}


def formula(catalogue: Catalogue, plan: CostPlan) -> dict[str, Any]:
    """A line of the paper's table by its formula, in bytes, beside what it prints and dense sharing with a seed."""
    theirs = paper_secfedrec_bytes(catalogue.n_items, plan.width, plan.ring_bits)
    secemb = paper_secemb_bytes(catalogue.n_items, catalogue.max_items, plan.width, plan.ring_bits)
    both, compressed = dense_sharing_bytes(catalogue.n_items, plan.width, plan.ring_bits)
    return {
        "catalogue": catalogue.name,
        "items": catalogue.n_items,
        "max_items": catalogue.max_items,
        "secfedrec": theirs,
        "secemb": secemb,
        "ratio": theirs / secemb,
        "printed": None if catalogue.printed is None else asdict(catalogue.printed),
        "dense": both,
        "dense_compressed": compressed,
    }


def milliseconds(entry: Figures, part: str, clients: int | None = None) -> float:
    """Of a server for a client, in batches of so many clients; None: the largest measured."""
    of = {int(found["clients"]): found["milliseconds"] for found in entry["server"]}
    return float(of[max(of) if clients is None else clients][part])


def _work(name: str, costs: Sequence[Figures]) -> dict[str, Any]:
    """The servers' work under the paper's encoding over that under ours, in batches of the same size.

    All is None where one was not measured, or no size of both: a client alone costs several times as much as one of a
    large batch, so other ratios would flatter whichever had the larger one.
    """
    of = {entry["encoding"]: entry for entry in costs if entry["catalogue"] == name}
    targets = next(iter(of.values()))["targets"]
    found: dict[str, Any] = dict.fromkeys(("clients", "retrieve", "aggregate", "both"))
    batches = [{int(served["clients"]) for served in entry["server"]} for entry in of.values()]
    common = set.intersection(*batches)
    if {"binned", "paper"} <= of.keys() and common:
        clients = max(common)
        spent = {
            encoding: [milliseconds(of[encoding], part, clients) for part in ("retrieve", "aggregate")]
            for encoding in of
        }
        found["clients"] = clients
        found["retrieve"] = spent["paper"][0] / spent["binned"][0]
        found["aggregate"] = spent["paper"][1] / spent["binned"][1]
        found["both"] = sum(spent["paper"]) / sum(spent["binned"])
    return {"catalogue": name, "target": None if targets is None else targets["work_ratio"], **found}


def cost_targets(content: Figures) -> list[dict[str, Any]]:
    """`targets` of bench.json: whether each cost is what was aimed at, and by how much.

    Args:
        content: of `costs_content`.
    """
    judged = []
    for entry in content["costs"]:
        aims = entry["targets"]
        if aims is None or entry["encoding"] != "binned":
            continue
        sizes = entry["client"]["bytes"]
        for what, unit, found, most in (
            ("upload", " MB", sizes["once"]["upload"] / 1e6, aims["upload"]),
            ("upload with whole keys", " MB", sizes["whole"]["upload"] / 1e6, aims["upload_whole"]),
            ("keys of a client", " ms", entry["client"]["milliseconds"]["keys"], aims["keys"]),
            ("server, aggregate", " ms", milliseconds(entry, "aggregate"), aims["aggregate"]),
            ("server, retrieve", " ms", milliseconds(entry, "retrieve"), aims["retrieve"]),
        ):
            judged.append(_judged(f"{entry['catalogue']}: {what}", unit, found, most, largest=True))
        for what, found, least in (
            ("dense sharing over ours", entry["ratio"], aims["ratio"]),
            ("the same, a share as its seed", entry["ratio_compressed"], aims["ratio_compressed"]),
        ):
            judged.append(_judged(f"{entry['catalogue']}: {what}", "×", found, least, largest=False))
    for entry in content["work"]:
        if entry["target"] is not None and entry["both"] is not None:
            aim = f"{entry['catalogue']}: server work, paper's encoding over ours"
            judged.append(_judged(aim, "×", entry["both"], entry["target"], largest=False))
    return judged


def _judged(aim: str, unit: str, found: float, bound: float, *, largest: bool) -> dict[str, Any]:
    met = found <= bound if largest else found >= bound
    apart_by = abs(found / bound - 1)
    side = "above" if found > bound else "below"
    return {
        "aim": aim,
        "must": f"{'at most' if largest else 'at least'} {bound:g}{unit}",
        "measured": f"{found:.3g}{unit}, {apart_by:.1%} {side}",
        "met": bool(met),
        "arm": None,
    }
