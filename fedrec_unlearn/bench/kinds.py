"""The kinds of studies, of attacks and of transports, behind one face."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrec_unlearn.bench import tables
from fedrec_unlearn.bench.measure import finished_result
from fedrec_unlearn.bench.reading import read_yaml
from fedrec_unlearn.bench.secemb.study import TransportStudy, training_tasks
from fedrec_unlearn.bench.secemb.study_file import read_transport_study
from fedrec_unlearn.bench.study import Study, tasks_of
from fedrec_unlearn.bench.study_file import read_study
from fedrec_unlearn.bench.tables import StudyTable
from fedrec_unlearn.config_file import packaged_configs
from fedrec_unlearn.config_options import did_you_mean
from fedrec_unlearn.errors import ConfigError

AnyStudy = Study | TransportStudy

KINDS = ("attacks", "transports")
"""What key `kind` of a study file may say; attacks where there is none."""


def paper_studies(paper: str | None = None) -> dict[str, Path]:
    """Study files that come with the package, by name.

    Args:
        paper: only those of one paper (``fedau2`` for ``fedau2_ml-100k``).
    """
    folder = next(iter(packaged_configs().values())).parent / "paper"
    found = {file.stem: file for file in sorted(folder.glob("*.yaml"))}
    return {name: file for name, file in found.items() if paper is None or name.partition("_")[0] == paper}


def find_study(name: str, paper: str | None = None) -> Path:
    """The file of a study.

    Args:
        name: of a study that comes with the package, with or without the paper's, or a YAML file.
        paper: the paper it must belong to.

    Raises:
        ConfigError: no such study, with the nearest ones.
    """
    if name.endswith((".yaml", ".yml")):
        if not Path(name).is_file():
            raise ConfigError(f"no study file {name}")
        return Path(name)
    known = paper_studies(paper)
    short = {study.partition("_")[2] or study: study for study in known}
    if name in known or name in short:
        return known[short.get(name, name)]
    near = did_you_mean(difflib.get_close_matches(name, [*known, *short], n=2))
    of = f" of {paper}" if paper else ""
    raise ConfigError(f"no study {name}{of}{near or '; studies: ' + ', '.join(known)}")


def load_study(file: Path, *, quick: bool = False) -> AnyStudy:
    """Read and check a study of either kind.

    Args:
        file: a YAML file.
        quick: with the changes its section `quick` makes.

    Raises:
        ConfigError: whatever is wrong with it, with file and line.
    """
    root = read_yaml(file)
    given = root.items().get("kind")
    if given is not None and given.one_of(KINDS) == "transports":
        return read_transport_study(root, quick=quick)
    return read_study(root, quick=quick)


def study_tables(content: Mapping[str, Any]) -> list[StudyTable]:
    """The tables of a bench.json of either kind."""
    if content.get("kind") == "transports":
        from fedrec_unlearn.bench.secemb.tables import transport_tables

        return transport_tables(content)
    return tables.study_tables(content)


def plan(study: AnyStudy, output: Path) -> StudyTable:
    """What a study would do, and how far it is."""
    folder = output / study.folder_name
    seeds = len(study.seeds)
    if isinstance(study, TransportStudy):
        from fedrec_unlearn.bench.secemb.costs import cost_tasks, finished_cost
        from fedrec_unlearn.bench.secemb.measure import finished_training

        rows: list[tuple[str, ...]] = [
            ("costs", task.name, "-", "-", "1/1" if finished_cost(task) is not None else "0/1")
            for task in cost_tasks(study.costs, folder)
        ]
        trained = training_tasks(study, folder)
        for comparison in study.comparisons:
            for arm in comparison.arms:
                own = [t for t in trained if t.comparison is comparison and t.arm is arm]
                done = sum(finished_training(task) is not None for task in own)
                rows.append((comparison.name, arm.label, comparison.metric, arm.name, f"{done}/{seeds}"))
        columns: tuple[str, ...] = ("part", "what", "metric", "arm", "done")
    else:
        tasks = tasks_of(study, folder)
        finished = {arm.name: 0 for arm in study.arms}
        for task in tasks:
            finished[task.arm.name] += finished_result(task) is not None
        rows = [
            (
                arm.name,
                arm.group,
                arm.label,
                ", ".join(arm.unlearns) or "-",
                arm.source or "-",
                ", ".join(arm.surfaces),
                f"{finished[arm.name]}/{seeds}",
            )
            for arm in study.arms
        ]
        columns = ("arm", "group", "method", "unlearns", "starts from", "attackers see", "seeds done")
    return StudyTable(f"{study.folder_name}: {study.title}", columns, tuple(rows), words=len(columns) - 1)
