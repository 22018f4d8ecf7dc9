"""Whether the extra ``serve`` is installed, asked before anything that needs it is imported."""

from __future__ import annotations

from importlib import import_module

from fedrec_unlearn.errors import DependencyError


def need_extra(*names: str) -> None:
    """See that packages of the extra are installed.

    Args:
        names: of modules.

    Raises:
        DependencyError: one is not.
    """
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            raise DependencyError(
                f"SecEmb over HTTPS needs {name}, which is not installed; run pip install 'fedrec-unlearn[serve]'"
            ) from error
