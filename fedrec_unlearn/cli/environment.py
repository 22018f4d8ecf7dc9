"""What `fedrec doctor` looks at: each check says how something stands and, where it is not well, the remedy."""

from __future__ import annotations

import inspect
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from fedrec_unlearn import __version__
from fedrec_unlearn.errors import FedRecError

DISTRIBUTION = "fedrec-unlearn"

EXTRAS = {
    "report": "the pages and plots of `fedrec report`",
    "serve": "two servers over HTTPS: `fedrec serve`",
    "dp": "the privacy that noise buys, as ε",
    "recbole": "RecBole's models, and the files of ml-100k that its package carries (Python 3.11 only)",
}
"""Optional parts of the installation and what they are for."""

LOW_DISK_GIB = 1.0


@dataclass(frozen=True)
class Check:
    """One finding."""

    status: Literal["ok", "warn", "fail"]
    """warn: something optional is missing; fail: something needed is."""
    subject: str
    detail: str
    remedy: str = ""


def all_checks() -> Iterable[Check]:
    """All findings, cheap ones first; a check that breaks is itself a finding."""
    checks: tuple[Callable[[], Iterable[Check]], ...] = (
        check_python,
        check_packages,
        check_extras,
        check_torch,
        check_recbole,
        check_folder,
        check_data,
    )
    for check in checks:
        try:
            yield from check()
        except FedRecError as error:
            yield Check("fail", check.__name__.removeprefix("check_"), str(error))
        except Exception as error:
            subject = check.__name__.removeprefix("check_")
            yield Check("fail", subject, f"{type(error).__name__}: {error}", "a defect of fedrec; please report it")


def check_python() -> Iterable[Check]:
    """The interpreter and this package."""
    version = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {sys.executable}"
    yield Check("ok", "Python", version)
    yield Check("ok", DISTRIBUTION, f"{__version__} in {Path(__file__).parent.parent}")


def check_packages() -> Iterable[Check]:
    """The packages that must be there, with the versions this installation asks for."""
    for name, minimum in _requirements(None):
        found = _version(name)
        wanted = f"{name}>={minimum}" if minimum else name
        if found is None:
            yield Check("fail", name, "not installed", f"pip install '{wanted}'")
        elif minimum and _numbers(found) < _numbers(minimum):
            yield Check("fail", name, f"{found} is too old", f"pip install '{wanted}'")
        else:
            yield Check("ok", name, found)


def check_extras() -> Iterable[Check]:
    """The optional parts: complete, or what installs them."""
    for extra, purpose in EXTRAS.items():
        named = [name for name, _ in _requirements(extra)]
        missing = [name for name in named if _version(name) is None]
        if missing:
            command = f"pip install '{DISTRIBUTION}[{extra}]'"
            yield Check("warn", f"extra {extra}", f"without {', '.join(missing)}; it is for {purpose}", command)
        elif named:
            installed = ", ".join(f"{name} {_version(name)}" for name in named)
            yield Check("ok", f"extra {extra}", installed)


def check_torch() -> Iterable[Check]:
    """Whether torch computes, and where."""
    try:
        import torch
    except Exception as error:
        yield Check("fail", "device", f"torch cannot be imported: {error}", "pip install --force-reinstall torch")
        return
    yield Check("ok", "device", f"cpu, {torch.get_num_threads()} threads of {os.cpu_count()} processors")
    for index in range(torch.cuda.device_count()):
        name = torch.cuda.get_device_name(index)
        try:
            torch.ones(8, device=f"cuda:{index}").sum().item()
            free, total = torch.cuda.mem_get_info(index)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            yield Check("warn", f"device cuda:{index}", f"{name} does not compute: {reason}", "use --device cpu")
        else:
            yield Check("ok", f"device cuda:{index}", f"{name}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")


def check_recbole() -> Iterable[Check]:
    """Whether RecBole can be imported, and which of its parts are broken beside the packages of today."""
    if _version("recbole") is None:
        return
    try:
        # the import itself fails where RecBole cannot work
        from fedrec_unlearn.recbole import prepare
        from fedrec_unlearn.recbole._compat import CURES

        cured = prepare()
    except FedRecError as error:
        yield Check("warn", "recbole", str(error), "needed for RecBole's own models only")
        return
    yield Check(
        "ok", "recbole", f"{_version('recbole')} can be imported; broken beside these packages and mended: {len(cured)}"
    )
    for name in cured:
        yield Check("ok", f"  {name}", (inspect.getdoc(CURES[name]) or "").partition("\n\n")[0].replace("\n", " "))


def check_folder() -> Iterable[Check]:
    """Whether runs can be written here."""
    folder = Path.cwd()
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        yield Check("ok", "folder", f"{folder} can be written to; runs go to {folder / 'runs'}")
    except OSError as error:
        yield Check("fail", "folder", f"{folder} cannot be written to: {error.strerror}", "change folder, or give -o")
    free = shutil.disk_usage(folder).free / 2**30
    if free < LOW_DISK_GIB:
        yield Check("warn", "disk", f"{free:.2f} GiB free", "checkpoints of large models may not fit")
    else:
        yield Check("ok", "disk", f"{free:.1f} GiB free")


def check_data() -> Iterable[Check]:
    """Which data sets are here."""
    from fedrec_unlearn.config import DataConfig
    from fedrec_unlearn.data.cards import card_names
    from fedrec_unlearn.data.places import ENVIRONMENT, find_files

    named = os.environ.get(ENVIRONMENT)
    if not named:
        yield Check("ok", ENVIRONMENT, "not set; it may name a folder with one folder per data set")
    elif not Path(named).expanduser().is_dir():
        yield Check("fail", ENVIRONMENT, f"{named} is no folder", f"correct it, or unset {ENVIRONMENT}")
    else:
        yield Check("ok", ENVIRONMENT, named)
    absent = []
    for name in card_names():
        try:
            found = find_files(DataConfig(name=name))
        except FedRecError:
            absent.append(name)
        else:
            yield Check("ok", f"data {name}", f"{found.place} ({found.layout})")
    if DataConfig().name in absent:
        # the demo and the defaults use it, so a first user without it wants to know
        absent.remove(DataConfig().name)
        yield Check("warn", f"data {DataConfig().name}", "not here", f"fedrec download {DataConfig().name}")
    if absent:
        yield Check("ok", "data not here", f"{', '.join(absent)}; fedrec download NAME fetches one")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _requirements(extra: str | None) -> list[tuple[str, str]]:
    """(name, lowest version or empty) of what the installation or one of its extras needs on this Python."""
    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        raise FedRecError(
            f"{DISTRIBUTION} runs from its sources without being installed; pip install -e . installs it"
        ) from None
    found = []
    for line in declared:
        requirement, _, marker = line.partition(";")
        of = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        older = re.search(r"python_version < ['\"]3\.(\d+)['\"]", marker)
        if (of.group(1) if of else None) != extra or (older and sys.version_info[1] >= int(older.group(1))):
            continue
        name = re.split(r"[<>=!~\[ ]", requirement.strip(), maxsplit=1)[0]
        minimum = re.search(r">=\s*([\d.]+)", requirement)
        found.append((name, minimum.group(1) if minimum else ""))
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
