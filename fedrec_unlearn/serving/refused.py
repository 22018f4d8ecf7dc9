"""A request that is not carried out, with the HTTP status that says so."""

from __future__ import annotations

from fedrec_unlearn.errors import TransportError


class RefusedError(TransportError):
    """A server will not do what a message asks; nothing has changed."""

    def __init__(self, status: int, message: str) -> None:
        """A refusal.

        Args:
            status: 400 malformed, 403 wrong role, 404 unknown round, 408 too slow, 409 contradicts what was accepted
                or closed, 411 length missing, 413 too large, 503 not now: send the same message again.
            message: what is wrong and what to do; never a byte of a message.
        """
        super().__init__(message)
        self.status = status
