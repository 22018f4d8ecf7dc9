"""The line from this process to one server in one role: requests that are repeated until they are answered.

Every message of the protocol may be sent again without being counted again, so an answer that was lost, a server that
restarts and a 503 are all met the same way: by sending the same bytes once more, a little later.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.serving.extra import need_extra
from fedrec_unlearn.serving.identity import client_context

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 60.0
"""Longer than a server ever holds an answer back."""


class Link:
    """One server, as one role sees it. Several threads may use it at once."""

    def __init__(self, party: int, url: str, certs: Path, role: str, *, connections: int, patience: float) -> None:
        """A line; nothing is sent yet.

        Args:
            party: of the server, for messages to the reader.
            url: https://host:port.
            certs: folder of certificates.
            role: whose certificate is shown.
            connections: at most, kept open for reuse.
            patience: seconds to go on trying a server that does not answer.

        Raises:
            ConfigError: a certificate or key is missing or does not fit.
            DependencyError: httpx is not installed.
            TransportError: the address is not one of https.
        """
        need_extra("httpx")
        import httpx

        if not url.startswith("https://"):
            raise TransportError(f"address of server {party} must be https://host:port, not {url}")
        self.party, self.url, self.role = party, url.rstrip("/"), role
        self._patience = patience
        self._given_up = threading.Event()
        self._http = httpx.Client(
            verify=client_context(certs, role),
            trust_env=False,
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS, pool=None),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        )

    def post(self, path: str, body: bytes) -> bytes:
        """Send a body until it is answered with 200 or 202.

        Returns:
            The answer's body.

        Raises:
            TransportError: the server refuses it, is not whom it should be, or does not answer for `patience` seconds;
                says which server and what to do.
        """
        return self._until_answered("POST", path, body)

    def get(self, path: str) -> dict[str, Any]:
        """Ask for JSON, as persistently as `post`.

        Raises:
            TransportError: as `post`.
        """
        answer: dict[str, Any] = json.loads(self._until_answered("GET", path, None))
        return answer

    def give_up(self, yes: bool = True) -> None:
        """End the patience of all requests in progress, or take it up again."""
        if yes:
            self._given_up.set()
        else:
            self._given_up.clear()

    def disconnect(self) -> None:
        """Close the connections."""
        self.give_up()
        self._http.close()

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    def _until_answered(self, method: str, path: str, body: bytes | None) -> bytes:
        import httpx

        pause, end = _FIRST_PAUSE, time.monotonic() + self._patience
        while True:
            try:
                answer = self._http.request(method, self.url + path, content=body)
            except httpx.TransportError as error:
                self._refuse_strangers(error)
                trouble = f"{type(error).__name__}: {error}".rstrip(": ")
            else:
                if answer.status_code in (200, 202):
                    return answer.content
                if answer.status_code != 503:
                    raise TransportError(
                        f"server {self.party} at {self.url} refuses {path} ({answer.status_code}): {_reason(answer)}"
                    )
                trouble = f"503: {_reason(answer)}"
            if time.monotonic() + pause > end or self._given_up.wait(pause):
                raise TransportError(
                    f"server {self.party} at {self.url} did not answer {path} within {self._patience:g} s ({trouble}); "
                    f"see that it runs (fedrec serve --party {self.party}), with certificates of the same set, and try "
                    "again: what it has accepted it still has"
                )
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _refuse_strangers(self, error: BaseException) -> None:
        """Raise where trying again is of no use, because one end does not accept the other's certificate."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise TransportError(
                f"server {self.party} at {self.url} is not who it should be: {cause.verify_message}; "
                "use the certificates it was started with, and an address that is in its certificate"
            ) from error
        if isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or ""):
            raise TransportError(
                f"server {self.party} at {self.url} does not accept this certificate of the role {self.role} "
                f"({cause.reason}); use the set of certificates the server was started with"
            ) from error


def _reason(answer: Any) -> str:
    """What a server says of a refusal."""
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return "no reason given; is there another program at this address?"
