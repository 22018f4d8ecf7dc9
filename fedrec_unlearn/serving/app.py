"""A server's routes: who may ask what, how much of it is read, and which status says what became of it.

| route | role | body | answer |
|---|---|---|---|
| ``POST /v1/rounds`` | coordinator | description and table (`bodies.pack_open`) | 200, JSON |
| ``POST /v1/rounds/N/request`` | client | a REQUEST | 200, a RESPONSE |
| ``POST /v1/rounds/N/update`` | client | an UPDATE | 200; 202 from server 0 if server 1 will get its part later |
| ``POST /v1/rounds/N/forward`` | server 0, at server 1 | messages (`bodies.pack_messages`) | 200, JSON |
| ``GET /v1/rounds/N/received`` | coordinator | | 200, JSON |
| ``POST /v1/rounds/N/close`` | coordinator | digest and client ids (`bodies.pack_close`) | 200, a PARTIAL |
| ``GET /v1/key`` | any | | 200, JSON |
| ``GET /health`` | any | | 200 or 503, JSON |

Errors are JSON ``{"error": ...}``; `refused.RefusedError` lists the statuses. An exact repeat of an accepted message is
answered like the first, so whoever lost an answer sends again.

Guarantee: status, size and text of an answer follow from the round, the client's id and what was sent before, never
from the items or values in a message. Logs tell events, sizes and the first eight digits of a client's id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.parameters import Round
from fedrec_unlearn.secemb.wire import Header, Kind, header_of
from fedrec_unlearn.serving.bodies import (
    MAX_DESCRIPTION,
    message_bytes,
    most_close_bytes,
    most_forward_bytes,
    unpack_close,
    unpack_messages,
)
from fedrec_unlearn.serving.forwarder import Forwarder
from fedrec_unlearn.serving.identity import CLIENT, COORDINATOR, ROLES, SERVERS
from fedrec_unlearn.serving.keeper import Keeper
from fedrec_unlearn.serving.reading import Limits, announced_length, read_body
from fedrec_unlearn.serving.receipt import Receipt
from fedrec_unlearn.serving.refused import RefusedError
from fedrec_unlearn.serving.worker import Worker

log = logging.getLogger("fedrec_unlearn.serving")

Handler = Callable[[Request], Awaitable[Response]]

_FORWARDS = (Kind.FORWARD_REQUEST, Kind.FORWARD_UPDATE)


class Service:
    """What the routes of one server share."""

    def __init__(
        self, keeper: Keeper, public_key: bytes, peer: tuple[str, ssl.SSLContext] | None, limits: Limits
    ) -> None:
        """A server's routes.

        Args:
            keeper: its round.
            public_key: 32 bytes, told to whoever asks.
            peer: of server 0: address of server 1 and TLS towards it; None at server 1.
            limits: how much and how long it takes.
        """
        self._keeper, self._key, self._limits = keeper, public_key, limits
        self._party = keeper.party
        self._forwarder = None if peer is None else Forwarder(*peer, self._acknowledge)
        self._worker = Worker(keeper, None if self._forwarder is None else self._forwarder.add)

    def app(self) -> Starlette:
        """The ASGI application."""
        routes = [
            Route("/v1/rounds", self._guard(self._open, COORDINATOR), methods=["POST"]),
            Route("/v1/rounds/{number:int}/request", self._guard(self._request, CLIENT), methods=["POST"]),
            Route("/v1/rounds/{number:int}/update", self._guard(self._update, CLIENT), methods=["POST"]),
            Route("/v1/rounds/{number:int}/received", self._guard(self._received, COORDINATOR), methods=["GET"]),
            Route("/v1/rounds/{number:int}/close", self._guard(self._close, COORDINATOR), methods=["POST"]),
            Route("/v1/key", self._guard(self._tell_key, *ROLES), methods=["GET"]),
            Route("/health", self._guard(self._health, *ROLES), methods=["GET"]),
        ]
        if self._party:
            forward = self._guard(self._forward, SERVERS[0])
            routes.append(Route("/v1/rounds/{number:int}/forward", forward, methods=["POST"]))
        return Starlette(routes=routes, lifespan=self._lifespan, exception_handlers={HTTPException: _unrouted})

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        if self._forwarder is not None and self._keeper.round is not None:
            for key, message in self._keeper.forwards.items():
                self._forwarder.add(self._keeper.round.digest, key, message)
        tasks = [asyncio.create_task(self._worker.run())]
        if self._forwarder is not None:
            tasks.append(asyncio.create_task(self._forwarder.run()))
        for task in tasks:
            task.add_done_callback(self._ended)
        try:
            yield
        finally:
            for task in reversed(tasks):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            self._worker.stop()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Nobody may wait for a task that a defect has ended."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._keeper.broken = "a defect has stopped this server; see its log and start it again"
            log.error("party %d is stopped by a defect: %s", self._party, type(error).__name__)

    def _guard(self, handler: Handler, *roles: str) -> Handler:
        """The handler for these roles alone, with refusals told as JSON and nothing else told of anything."""

        async def guarded(request: Request) -> Response:
            role = getattr(request.state, "role", None)
            try:
                if role not in roles:
                    raise RefusedError(403, f"role {role} may not do this; it takes {' or '.join(roles)}")
                if self._keeper.broken is not None and handler != self._health:
                    raise RefusedError(503, self._keeper.broken)
                return await handler(request)
            except RefusedError as refusal:
                return self._refused(request, refusal.status, str(refusal))
            except TransportError as error:
                return self._refused(request, 400, str(error))
            except ClientDisconnect:
                return self._refused(request, 400, "the connection ended before the body did")
            except Exception as error:
                # its text and values may be anything, so only the kind and the place are told
                place = traceback.extract_tb(error.__traceback__)[-1]
                log.error("party %d failed: %s at %s:%s", self._party, type(error).__name__, place.name, place.lineno)
                return JSONResponse({"error": "internal error; see the server's log"}, 500)

        return guarded

    def _refused(self, request: Request, status: int, message: str) -> Response:
        path = request.scope["raw_path"].decode("ascii")  # still quoted, so it cannot begin a line of its own
        log.info("party %d refused %s %s: %d %s", self._party, request.method, path, status, message)
        # the rest of a body that is not read ends with the connection
        headers = {"connection": "close"} if status in (408, 411, 413) else {}
        return JSONResponse({"error": message}, status, headers=headers)

    async def _open(self, request: Request) -> Response:
        length = announced_length(request, 4 + MAX_DESCRIPTION + self._limits.table_bytes)
        round_: Round | None = None

        def fits(body: bytearray) -> None:
            """As soon as the description is there, see that what follows is its table's length and no more."""
            nonlocal round_
            size = int.from_bytes(body[:4], "little")
            if round_ is None and len(body) >= 4:
                if size > MAX_DESCRIPTION:
                    raise RefusedError(
                        400, "body must be the length of the round's description, the description, the table"
                    )
                if len(body) >= 4 + size:
                    round_ = Round.from_bytes(bytes(body[4 : 4 + size]))
                    expected = 4 + size + 8 * round_.parameters.n_items * round_.parameters.width
                    if length != expected:
                        raise RefusedError(
                            413 if length > expected else 400, f"body has {length} bytes, not {expected}"
                        )

        body = await read_body(request, length, self._limits.body_seconds, fits)
        if round_ is None:
            raise RefusedError(400, "body ends before the round's description does")
        before, description = self._keeper.round, round_.to_bytes()
        table = bytes(memoryview(body)[4 + len(description) :])
        await self._worker.call(self._keeper.open, description, table)
        if self._forwarder is not None and before != round_:
            self._forwarder.drop()
        return JSONResponse({"round": round_.digest.hex()})

    async def _request(self, request: Request) -> Response:
        round_ = self._open_round(request)
        header, _ = await self._message(request, round_, Kind.REQUEST)
        response = await self._worker.response(round_.digest, header.client, self._limits.answer_seconds)
        return Response(response, media_type="application/octet-stream")

    async def _update(self, request: Request) -> Response:
        _, arrived = await self._message(request, self._open_round(request), Kind.UPDATE)
        return JSONResponse({"kept": True, "forwarded": arrived}, 200 if arrived else 202)

    async def _message(self, request: Request, round_: Round, kind: Kind) -> tuple[Header, bool]:
        """Take a client's message; its header, and whether server 1 has its part of it."""
        expected = message_bytes(round_.parameters, kind, self._party)
        body = bytes(await self._whole(request, expected))
        header = header_of(body)
        if header.kind is not kind:
            raise RefusedError(400, f"this is of kind {header.kind.name}, not {kind.name}; send it to its own route")
        (receipt,) = await self._worker.receive([body])
        if not isinstance(receipt, Receipt):
            raise receipt
        told = "repeated" if receipt.repeated else "accepted"
        log.info("party %d %s %s of %s in round %d", self._party, told, kind.name, _short(header), header.number)
        if self._forwarder is None or round_.parameters.whole_keys:
            return header, True
        return header, await self._forwarder.arrived(receipt.key, self._limits.forward_seconds)

    async def _forward(self, request: Request) -> Response:
        round_ = self._open_round(request)
        body = await self._whole(request, most_forward_bytes(round_.parameters))
        messages = unpack_messages(bytes(body))
        if any(header_of(message).kind not in _FORWARDS for message in messages):
            raise RefusedError(400, "server 0 forwards correction words and nothing else")
        outcomes = await self._worker.receive(messages)
        errors = [outcome for outcome in outcomes if not isinstance(outcome, Receipt)]
        for error in errors:
            log.warning("party 1 refused a forwarded message: %s", error)
        log.info("party 1 took %d forwarded messages in round %d", len(outcomes) - len(errors), round_.number)
        return JSONResponse({"refused": len(errors)})

    async def _received(self, request: Request) -> Response:
        received = await self._worker.call(self._keeper.received)
        if received.round.number != request.path_params["number"]:
            raise RefusedError(404, f"round {request.path_params['number']} is not here, but {received.round.number}")
        return JSONResponse(
            {
                "round": received.round.digest.hex(),
                "closed": received.closed,
                "clients": sorted(client.hex() for client in received.clients),
                "forwarded_bytes": received.forwarded_bytes,
                "pending": 0 if self._forwarder is None or received.closed else self._forwarder.pending,
            }
        )

    async def _close(self, request: Request) -> Response:
        round_ = self._round(request)
        body = bytes(await self._whole(request, most_close_bytes(round_.parameters)))
        digest, accepted = unpack_close(body)
        partial = await self._worker.call(self._keeper.close, digest, accepted)
        if self._forwarder is not None:
            self._forwarder.drop()
        return Response(partial, media_type="application/octet-stream")

    async def _tell_key(self, _: Request) -> Response:
        return JSONResponse({"party": self._party, "key": self._key.hex()})

    async def _health(self, _: Request) -> Response:
        keeper, forwarder = self._keeper, self._forwarder
        state = "broken" if keeper.broken else "open" if keeper.is_open else "closed" if keeper.round else "idle"
        content = {
            "party": self._party,
            "state": state,
            "round": None if keeper.round is None else keeper.round.number,
            "to_forward": 0 if forwarder is None else forwarder.pending,
            "trouble": keeper.broken or (forwarder.trouble if forwarder is not None else None),
        }
        return JSONResponse(content, 503 if keeper.broken else 200)

    async def _acknowledge(self, digest: bytes, keys: list[tuple[Kind, bytes]]) -> None:
        await self._worker.call(self._keeper.acknowledge, digest, keys)

    def _round(self, request: Request) -> Round:
        number = request.path_params["number"]
        if self._keeper.round is None or self._keeper.round.number != number:
            raise RefusedError(404, f"round {number} is not open here; ask the coordinator which one is")
        return self._keeper.round

    def _open_round(self, request: Request) -> Round:
        round_ = self._round(request)
        if not self._keeper.is_open:
            raise RefusedError(409, f"round {round_.number} is closed; take part in the next one")
        return round_

    async def _whole(self, request: Request, limit: int) -> bytearray:
        """A body of at most `limit` bytes."""
        return await read_body(request, announced_length(request, limit), self._limits.body_seconds)


def _short(header: Header) -> str:
    return header.client[:4].hex()


async def _unrouted(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": f"{error.detail}: there is no such thing here"}, error.status_code)
