"""Keeps napoleon from taking ``Shape (n,): user of each interaction`` under a field for a type and a description."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

BEFORE, AFTER = 400, 600
"""Priorities around napoleon's, which is 500."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Hide the docstrings of fields from napoleon and put them back as they were."""
    hidden: dict[str, list[str]] = {}

    def hide(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
        if what in ("attribute", "data", "property"):
            hidden[name], lines[:] = list(lines), []

    def restore(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
        lines[:] = hidden.pop(name, lines)

    app.connect("autodoc-process-docstring", hide, priority=BEFORE)
    app.connect("autodoc-process-docstring", restore, priority=AFTER)
    return {"parallel_read_safe": True, "version": "1"}
