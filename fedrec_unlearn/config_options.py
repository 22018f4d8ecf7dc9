"""The list of all options with their types, defaults and docstrings, and strict conversion of values.

One place that knows how a value may be written, for YAML files (`convert`) and for the command line
(`parse_text`). Nothing is guessed: ``true`` is not a number, ``"5"`` is not an integer, and whatever does not fit
is named together with what was expected.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import math
import types
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedrec_unlearn import config as config_module
from fedrec_unlearn import config_attack, config_secemb, config_unlearn
from fedrec_unlearn.config import SECTIONS, Config
from fedrec_unlearn.errors import ConfigError

ELSEWHERE = {
    "batch_size": "federation.clients_per_round",
    "dataset": "data.name",
    "dim": "model.embedding_dim",
    "embedding_size": "model.embedding_dim",
    "epochs": "federation.local_epochs",
    "eval_step": "evaluation.every",
    "k": "evaluation.topk",
    "learning_rate": "federation.client_learning_rate",
    "lr": "federation.client_learning_rate",
    "mlp_hidden_size": "model.hidden_sizes",
    "optimizer": "federation.server_optimizer",
    "stopping_step": "evaluation.patience",
    "valid_metric": "evaluation.select_by",
    "weight_decay": "federation.l2",
}
"""Names other libraries give to an option of ours; used for suggestions only, never accepted as options."""

TRUE_WORDS = frozenset({"true", "yes", "on"})
FALSE_WORDS = frozenset({"false", "no", "off"})
NULL_WORDS = frozenset({"null", "none", "~"})


@dataclass(frozen=True)
class Option:
    """One field of `Config` or of one of its sections."""

    name: str
    """As a user writes it: ``federation.local_epochs``, or ``seed`` at the top."""
    annotation: Any
    """The field's type, resolved."""
    default: object
    doc: str
    """The docstring under the field."""

    @property
    def section(self) -> str:
        """Section of the option, empty at the top."""
        return self.name.rpartition(".")[0]

    @property
    def choices(self) -> tuple[str, ...]:
        """The only values allowed, empty where any value of the type is."""
        return get_args(self.annotation) if get_origin(self.annotation) is Literal else ()

    @property
    def type_name(self) -> str:
        """The type in words, for messages and help."""
        return _describe(self.annotation)


def _docstrings() -> dict[str, dict[str, str]]:
    """Docstrings under the fields of every class of the configuration, by class and field."""
    found: dict[str, dict[str, str]] = {}
    sources = (config_attack, config_secemb, config_unlearn, config_module)
    for node in (statement for module in sources for statement in ast.parse(inspect.getsource(module)).body):
        if isinstance(node, ast.ClassDef):
            documented = found.setdefault(node.name, {})
            for statement, after in zip(node.body, node.body[1:], strict=False):
                match statement, after:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        documented[name] = " ".join(text.split())
    return found


@cache
def options() -> tuple[Option, ...]:
    """All options: those at the top first, then section by section, in the order of `fedrec_unlearn.config`."""
    documented = _docstrings()
    hints = get_type_hints(Config)
    listed: list[Option] = []
    for cls, prefix in ((Config, ""), *((hints[name], f"{name}.") for name in SECTIONS)):
        types_of = get_type_hints(cls)
        for item in fields(cls):
            if not prefix and item.name in SECTIONS:
                continue
            doc = documented[cls.__name__].get(item.name, "")
            # the sections alone have a factory; an option's default is a plain immutable value
            listed.append(Option(prefix + item.name, types_of[item.name], item.default, doc))
    return tuple(listed)


@cache
def options_by_name() -> dict[str, Option]:
    """The same by dotted name."""
    return {option.name: option for option in options()}


def option_docs() -> dict[str, str]:
    """Docstring of every option by dotted name."""
    return {option.name: option.doc for option in options()}


def suggestions(name: str) -> list[str]:
    """Known option names near a mistyped or misplaced one, the best first, three at most.

    Looks through all sections, so ``learning_rate`` at the top finds the rates of ``federation``.
    """
    wanted = name.strip().lower().replace("-", "_")
    section, _, last = wanted.rpartition(".")
    scored: list[tuple[float, str]] = []
    for option in options():
        own = option.name.rpartition(".")[2]
        score = difflib.SequenceMatcher(None, last, own).ratio()
        if ELSEWHERE.get(last) == option.name:
            score = 1.0
        elif min(len(last), len(own)) >= 4 and (last in own or own in last):
            score = max(score, 0.75)
        if score >= 0.7:
            near = difflib.SequenceMatcher(None, section, option.section).ratio() if section else 0.0
            scored.append((score + 0.2 * near, option.name))
    scored.sort(key=lambda entry: -entry[0])
    best = scored[0][0] if scored else 0.0
    return [known for score, known in scored[:3] if score > best - 0.25]


def did_you_mean(candidates: Sequence[str]) -> str:
    """``; did you mean a, b or c?``, empty without candidates."""
    if not candidates:
        return ""
    listed = candidates[0] if len(candidates) == 1 else f"{', '.join(candidates[:-1])} or {candidates[-1]}"
    return f"; did you mean {listed}?"


def _optional(annotation: Any) -> Any | None:
    """The X of ``X | None``, else None."""
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [arg for arg in get_args(annotation) if arg is not type(None)]
        if len(inner) == 1:
            return inner[0]
    return None


def _describe(annotation: Any) -> str:
    words = {int: "an integer", float: "a number", bool: "true or false", str: "text"}
    inner = _optional(annotation)
    if inner is not None:
        return f"{_describe(inner)}, or null"
    if get_origin(annotation) is Literal:
        return f"one of {', '.join(get_args(annotation))}"
    if get_origin(annotation) is tuple:
        args = get_args(annotation)
        plural = {int: "integers", float: "numbers", str: "texts"}.get(args[0], _describe(args[0]))
        return f"a list of {plural}" if args[-1] is Ellipsis else f"a list of {len(args)} {plural}"
    return words[annotation]


def _shown(value: object) -> str:
    kinds = {bool: "", int: "the integer ", float: "the number ", str: "the text ", list: "the list ", dict: "the map "}
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    shortened = text if len(text) <= 80 else f"{text[:77]}..."
    return "null" if value is None else kinds.get(type(value), f"the {type(value).__name__} ") + shortened


def _wrong(option: Option, value: object, remedy: str = "") -> ConfigError:
    return ConfigError(f"{option.name}: expected {option.type_name}, not {_shown(value)}{remedy}")


def convert(option: Option, value: object) -> object:
    """The value as the option's type.

    Args:
        option: from `options`.
        value: what YAML or a Python caller gave. Integers serve as numbers, lists as tuples, null only where the
            option is optional. YAML 1.1 reads ``1e-3`` as text, so text that is a number serves as one where a
            number (not an integer) is expected.

    Raises:
        ConfigError: the value is of another type, not among the choices, not finite, or a list of another length.
    """
    return _convert(option, option.annotation, value, value)


def _convert(option: Option, annotation: Any, value: object, whole: object) -> object:
    inner = _optional(annotation)
    if inner is not None:
        return None if value is None else _convert(option, inner, value, whole)
    if get_origin(annotation) is Literal:
        if value in get_args(annotation) and isinstance(value, str):
            return value
        near = difflib.get_close_matches(str(value), get_args(annotation), n=1)
        raise _wrong(option, whole, did_you_mean(near))
    if get_origin(annotation) is tuple:
        return _convert_tuple(option, get_args(annotation), value)
    if annotation is float:
        return _convert_float(option, value, whole)
    if annotation is str and isinstance(value, int | float) and not isinstance(value, bool):
        raise _wrong(option, whole, f'; write it in quotes: "{value}"')
    if annotation is int and isinstance(value, str) and _is_integer(value):
        raise _wrong(option, whole, f"; write it without quotes: {value.strip()}")
    if not isinstance(value, annotation) or (annotation is int and isinstance(value, bool)):
        raise _wrong(option, whole)
    return value


def _convert_float(option: Option, value: object, whole: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _wrong(option, whole)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise _wrong(option, whole) from None
    if not math.isfinite(number):
        raise ConfigError(f"{option.name}: must be a finite number, not {value}")
    return number


def _convert_tuple(option: Option, args: tuple[Any, ...], value: object) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        remedy = f"; write a list: [{value}]" if isinstance(value, int | float | str) and args[-1] is Ellipsis else ""
        raise _wrong(option, value, remedy)
    if args[-1] is Ellipsis:
        return tuple(_convert(option, args[0], entry, value) for entry in value)
    if len(value) != len(args):
        raise _wrong(option, value)
    return tuple(_convert(option, arg, entry, value) for arg, entry in zip(args, value, strict=True))


def _is_integer(text: str) -> bool:
    return text.strip().lstrip("+-").isdecimal()


def parse_text(option: Option, text: str) -> object:
    """The value that `text` stands for, read by the option's type and not by what it looks like.

    So ``--data.name 100`` is a name and ``--federation.l2 1e-3`` a number. Lists are written with commas
    (``10,20``; brackets may stand around them, an empty text is an empty list), null as ``null`` or ``none``.

    Raises:
        ConfigError: the text does not stand for a value of the option's type.
    """
    return convert(option, _read(option.annotation, text))


def _read(annotation: Any, text: str) -> object:
    inner = _optional(annotation)
    if inner is not None:
        return None if text.strip().lower() in NULL_WORDS else _read(inner, text)
    if get_origin(annotation) is tuple:
        bare = text.strip().removeprefix("[").removesuffix("]")
        parts = [part.strip().strip("'\"") for part in bare.split(",")] if bare.strip() else []
        return [_read(get_args(annotation)[0], part) for part in parts]
    if annotation is bool and text.strip().lower() in TRUE_WORDS | FALSE_WORDS:
        return text.strip().lower() in TRUE_WORDS
    if annotation is int and _is_integer(text):
        return int(text)
    return text
