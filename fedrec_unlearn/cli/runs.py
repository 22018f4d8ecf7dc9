"""Run folders as the verbs take and name them, and what a verb says of one when it is done."""

from __future__ import annotations

import difflib
from pathlib import Path

from fedrec_unlearn.cli.tables import attack_table, figures_of_runs, print_table, ranking_table, unlearning_table
from fedrec_unlearn.config_options import did_you_mean
from fedrec_unlearn.errors import RunError


def run_folder(text: str) -> Path:
    """The run folder a user named, seen to be one before anything large is loaded.

    Raises:
        RunError: no such folder, or not a run, with the nearest runs beside it.
    """
    folder = Path(text)
    if (folder / "run.json").is_file():
        return folder
    if folder.is_file():
        raise RunError(f"{folder} is a file; name the run folder that holds it: {folder.parent}")
    if folder.is_dir():
        inner = _runs_in(folder)
        hint = f"; runs inside it: {', '.join(inner[-3:])}" if inner else "; fedrec train makes one"
        raise RunError(f"{folder} is not a run folder (it has no run.json){hint}")
    beside = list(dict.fromkeys(_runs_in(folder.parent) + _runs_in(Path("runs"))))
    near = difflib.get_close_matches(str(folder), beside, n=2, cutoff=0.7)
    near += [name for name in beside if Path(name).name == folder.name and name not in near]
    raise RunError(f"no run folder {folder}{did_you_mean(near) or '; fedrec train makes one'}")


def _runs_in(folder: Path) -> list[str]:
    return sorted(str(file.parent) for file in folder.glob("*/run.json"))


def shown_path(path: Path) -> str:
    """The path as a user would type it here: relative if it lies below the working folder."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def print_results(run: Path, quiet: bool, *, ranking: bool = True, attack: bool = True) -> None:
    """Write a run's tables to standard output.

    Args:
        run: the run folder.
        quiet: write nothing.
        ranking: the ranking metrics.
        attack: the attacks.

    Raises:
        RunError: the folder's files are damaged.
    """
    if quiet:
        return
    (figures,) = figures_of_runs([run])
    shown = (
        ranking_table(figures) if ranking else None,
        attack_table(figures) if attack else None,
        unlearning_table(figures) if ranking or attack else None,
    )
    for table in shown:
        if table is not None:
            print_table(table)


def print_path(quiet: bool, what: str, path: Path, hint: str = "") -> None:
    """Write where a result lies: alone for scripts, with its name and the next step for people.

    Args:
        quiet: only the path.
        what: for example ``Run folder``.
        path: where it is.
        hint: a command worth running next, empty for none.
    """
    if quiet:
        print(path, flush=True)
        return
    print(f"{what}: {shown_path(path)}", flush=True)
    if hint:
        print(f"Next: {hint}", flush=True)
