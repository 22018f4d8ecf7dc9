"""The errors this package raises on purpose: each says what is wrong, where, and what to do about it.

One base class, so that ``except FedRecError`` catches all of them; the children exist because a caller
can react differently to them, not because every message needs a class.
"""

from __future__ import annotations


class FedRecError(Exception):
    """Base of every error raised deliberately by `fedrec_unlearn`."""

    exit_code = 1
    """Exit status of the `fedrec` command when this error ends it."""


class ConfigError(FedRecError):
    """An option is unknown, of the wrong type, out of range or contradicts another."""

    exit_code = 2


class DataError(FedRecError):
    """An input file or array is missing, malformed, or cannot serve the purpose asked of it."""

    exit_code = 3


class ModelError(FedRecError):
    """A model and the data or state given to it do not fit."""

    exit_code = 4


class RunError(FedRecError):
    """A run folder cannot be written, read or resumed."""

    exit_code = 5


class TransportError(FedRecError):
    """A message between client and server is malformed or exceeds what the transport can carry."""

    exit_code = 6


class AttackError(FedRecError):
    """An attack cannot be carried out as asked (one class, too few users, ...)."""

    exit_code = 7


class DependencyError(FedRecError):
    """An optional package or device that was asked for is not available."""

    exit_code = 8
