"""What SecEmb costs: bytes, milliseconds and memory at the paper's five sizes, beside its own figures and our targets.

    python -m benchmarks.secemb

The tables are those of `fedrec bench --paper secemb`, without its trainings, measured anew each time: bytes of messages
really made; a client's keys and calls and each server's answers and sums, CPU milliseconds on one thread, medians, in a
process of their own; the ratio of the servers' work under the paper's encoding and under ours; the paper's table by its
formula; a whole round at one size, through both servers in one process and through two server processes over HTTPS
(which needs the extra `serve`), by phases and with peak memory. Whatever is measured is compared with plain integers,
to the last bit, in the same run. What to measure and the targets stand in configs/paper/secemb.yaml. No data is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.program import last_line, parser, run, table
from fedrec_unlearn.bench import TransportStudy, find_study, load_study
from fedrec_unlearn.bench.secemb.costs import cost_targets, cost_tasks, costs_content, measure_cost, possible
from fedrec_unlearn.bench.secemb.study import CostPlan
from fedrec_unlearn.bench.secemb.tables import cost_tables, round_tables, target_table
from fedrec_unlearn.errors import ConfigError


def plan(quick: bool, catalogues: str | None, encodings: str | None, rounds: str) -> CostPlan:
    """What to measure: the study's plan, or a part of it.

    Args:
        quick: the study's short version.
        catalogues, encodings: names with commas between; None: the plan's own.
        rounds: `https` (both ways), `local` or `none`.

    Raises:
        ConfigError: a name that the plan does not have.
    """
    study = load_study(find_study("secemb"), quick=quick)
    assert isinstance(study, TransportStudy)
    costs = study.costs
    if catalogues is not None:
        # a size that the short version leaves out may be named all the same
        whole = load_study(find_study("secemb"))
        assert isinstance(whole, TransportStudy)
        of = {catalogue.name: catalogue for catalogue in whole.costs.catalogues}
        named = _named("--catalogues", catalogues, tuple(of))
        costs = replace(costs, catalogues=tuple(of[name] for name in named))
        if costs.round_catalogue not in named:
            costs = replace(costs, round_catalogue=named[-1])
    if encodings is not None:
        costs = replace(costs, encodings=_named("--encodings", encodings, ("binned", "paper")))
    if rounds == "none":
        return replace(costs, round_catalogue=None)
    return replace(costs, round_https=rounds == "https")


def _named(option: str, given: str, known: Sequence[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(given.split(",")))
    for name in names:
        if name not in known:
            raise ConfigError(f"{option}: unknown name {name!r}; known: {', '.join(known)}")
    return names


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    options = parser("secemb", __doc__)
    options.add_argument("--catalogues", help="comma-separated: ML100K, ML1M, ML10M, ML25M, Yelp (default: all)")
    options.add_argument("--encodings", help="comma-separated: binned, paper (default: both)")
    options.add_argument(
        "--round", choices=("https", "local", "none"), default="https", help="how to time a whole round (default https)"
    )
    given = options.parse_args(arguments)
    asked = plan(given.quick, given.catalogues, given.encodings, given.round)
    costs = possible(asked, lambda text: print(f"  {text}", file=sys.stderr, flush=True))
    tasks = cost_tasks(costs, Path())
    figures = []
    for number, task in enumerate(tasks, 1):
        figures.append(measure_cost(task))
        print(f"  {number}/{len(tasks)} {task.name}", file=sys.stderr, flush=True)
    content = costs_content(costs, tasks, figures)
    targets = cost_targets(content)
    for shown in [*cost_tables(content), *round_tables(content), *([target_table(targets)] if targets else [])]:
        print(f"{shown.title}\n\n{table(shown.columns, shown.rows)}\n{shown.note}\n")
    last_line("secemb", {**content, "targets": targets})


if __name__ == "__main__":
    sys.exit(run(main, "secemb"))
