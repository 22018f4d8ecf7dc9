"""Where a pass spends its time, by function of the federation, without changing it.

Functions and methods of the chosen modules are wrapped for the duration of one pass wherever the federation refers to
them. Each is charged with its own time less that of wrapped functions it calls. Reading the clock twice a call costs
about a microsecond, so figures of functions called thousands of times a pass are a little too high.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import fedrec_unlearn.federation as federation

TIMED_MODULES = (
    "bilinear", "contribution", "engine", "kernels", "local_data", "padded", "shared_step", "slopes", "transport",
)  # fmt: skip
"""Modules of the federation whose functions are told apart."""


class Stages:
    """CPU seconds and calls of each wrapped function."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._inner: list[float] = []

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.process_time() - start
                self.seconds[name] += spent - self._inner.pop()
                self.calls[name] += 1
                if self._inner:
                    self._inner[-1] += spent

        return timed


@contextmanager
def timed_stages() -> Iterator[Stages]:
    """Inside, calls of the federation's functions are counted and timed."""
    stages, undo = Stages(), list[tuple[Any, str, Any]]()
    modules = [importlib.import_module(found.name) for found in _submodules()]
    wrapped: dict[int, Callable[..., Any]] = {}
    for module in modules:
        for name, value in list(vars(module).items()):
            known = isinstance(value, FunctionType) and value.__module__.startswith(_PREFIX)
            if known and _short(value) in TIMED_MODULES:
                timed = wrapped.setdefault(id(value), stages.wrap(f"{_short(value)}.{name}", value))
                undo.append((module, name, value))
                setattr(module, name, timed)
    for module in modules:
        for kind in list(vars(module).values()):
            if isinstance(kind, type) and kind.__module__ == module.__name__ and _short(kind) in TIMED_MODULES:
                for name, value in list(vars(kind).items()):
                    if isinstance(value, FunctionType) and not name.startswith("__"):
                        undo.append((kind, name, value))
                        setattr(kind, name, stages.wrap(f"{_short(kind)}.{kind.__name__}.{name}", value))
    try:
        yield stages
    finally:
        for owner, name, value in undo:
            setattr(owner, name, value)


_PREFIX = f"{federation.__name__}."


def _short(thing: Any) -> str:
    """Last part of the name of the module a function or class was written in."""
    home: str = thing.__module__
    return home.rpartition(".")[2]


def _submodules() -> Iterator[pkgutil.ModuleInfo]:
    return pkgutil.iter_modules(federation.__path__, _PREFIX)
