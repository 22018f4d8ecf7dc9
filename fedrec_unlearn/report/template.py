"""What every page is made with: the template engine, and files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedrec_unlearn.errors import DependencyError


def need_libraries() -> None:
    """Refuse to start without what a page is made with.

    Raises:
        DependencyError: Jinja2 or matplotlib is not installed.
    """
    missing = [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        raise DependencyError(
            f"a report needs {' and '.join(missing)}, which is not installed: pip install 'fedrec-unlearn[report]'"
        )


def render(template: str, context: Mapping[str, Any]) -> str:
    """Fill a template. What a name from a file may hold is the template engine's business: it escapes all."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(context)


def write_whole(path: Path, content: str) -> None:
    """Write a text file beside its name, sync it, and put it in place.

    Raises:
        OSError: it cannot be written; a file of that name is then as it was.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("w", encoding="utf-8", newline="\n") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
