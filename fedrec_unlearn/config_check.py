"""How a section of the configuration refuses a value: one sentence that names the option as a user writes it."""

from __future__ import annotations

from fedrec_unlearn.errors import ConfigError


def need(condition: bool, option: str, problem: str) -> None:
    """Raise `ConfigError` unless the condition holds.

    Args:
        condition: what the option must meet.
        option: its dotted name.
        problem: what is wrong, to be read after the name.
    """
    if not condition:
        raise ConfigError(f"{option}: {problem}")
