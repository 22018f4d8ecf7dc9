"""How much of a body a server reads, and how long it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request

from fedrec_unlearn.serving.refused import RefusedError


@dataclass(frozen=True)
class Limits:
    """How much and how long a server takes."""

    table_bytes: int = 1 << 30
    """Largest table."""
    body_seconds: float = 60.0
    """How long a body may take to arrive."""
    forward_seconds: float = 10.0
    """How long server 0 waits for server 1 before it answers a client all the same."""
    answer_seconds: float = 20.0
    """How long server 1 waits for server 0's part of a request before it asks the client to come again."""


def announced_length(request: Request, limit: int) -> int:
    """The length a body announces, which must not exceed `limit`; known before a byte of it is read."""
    text = request.headers.get("content-length", "")
    if not (text.isascii() and text.isdigit()):
        raise RefusedError(411, "a body must announce its length (Content-Length)")
    if int(text) > limit:
        raise RefusedError(413, f"body of {int(text)} bytes; in this round it has at most {limit}")
    return int(text)


async def read_body(
    request: Request, length: int, seconds: float, inspect: Callable[[bytearray], None] = lambda _: None
) -> bytearray:
    """The body, of which no more than `length` bytes ever are in memory.

    Args:
        request: whose body.
        length: as it announced.
        seconds: how long it may take to arrive.
        inspect: told of what there is after every piece; may refuse.

    Raises:
        RefusedError: it is longer (413) or slower (408).
    """
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > length:
                    raise RefusedError(413, f"body is longer than the {length} bytes it announced")
                inspect(body)
    except TimeoutError:
        raise RefusedError(408, f"body did not arrive within {seconds:g} s") from None
    return body
