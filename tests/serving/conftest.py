"""Certificates, servers in threads and processes, and clients whose sum is known."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrec_unlearn.secemb.client import Client
from fedrec_unlearn.secemb.parameters import Parameters, Round
from fedrec_unlearn.serving.certificates import make_certificates
from fedrec_unlearn.serving.identity import ROLES, client_context

PARAMETERS = Parameters(
    n_items=60, width=4, payload=5, dense=3, max_items=6, limit=1 << 20, max_clients=40, min_clients=2
)


@dataclass
class Trial:
    """A round's clients, each with items, an update, and what all of them add up to."""

    round: Round
    table: np.ndarray
    clients: list[Client]
    items: list[np.ndarray]
    rows: list[np.ndarray]
    dense: list[np.ndarray]

    def requests(self) -> list[tuple[bytes, bytes]]:
        return [client.request(items) for client, items in zip(self.clients, self.items, strict=True)]

    def updates(self, answers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Check the rows each client got, and make its update."""
        messages = []
        for client, answer, items, rows, dense in zip(
            self.clients, answers, self.items, self.rows, self.dense, strict=True
        ):
            np.testing.assert_array_equal(client.rows(answer), self.table[items[client.placed]])
            messages.append(client.update(rows[client.placed], dense))
        return messages

    def check(self, total: Any, members: list[int] | None = None) -> None:
        """The sum is, to the last bit, that of these clients in the clear."""
        members = list(range(len(self.clients))) if members is None else members
        expected = np.zeros((len(self.table), self.round.parameters.payload), dtype=np.int64)
        for member in members:
            placed = self.clients[member].placed
            np.add.at(expected, self.items[member][placed], self.rows[member][placed])
        assert sorted(total.accepted) == sorted(self.clients[member].client_id for member in members)
        np.testing.assert_array_equal(total.rows, expected)
        np.testing.assert_array_equal(total.dense, sum(self.dense[member] for member in members))


@pytest.fixture(scope="session")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates") / "set")


@pytest.fixture(scope="session")
def keys(certs: Path) -> tuple[bytes, bytes]:
    return (certs / "sealing-0.pub").read_bytes(), (certs / "sealing-1.pub").read_bytes()


@pytest.fixture
def new_trial(keys: tuple[bytes, bytes]) -> Callable[..., Trial]:
    """Makes a round with clients; items and values follow from the number of the round."""

    def make(clients: int = 5, number: int = 1, run: bytes = b"r" * 16, **changes: Any) -> Trial:
        parameters = replace(PARAMETERS, **changes)
        table = np.random.default_rng(number).integers(-(1 << 16), 1 << 16, (parameters.n_items, parameters.width))
        round_ = Round.of(parameters, run, number, table)
        trial = Trial(round_, table, [], [], [], [])
        for index in range(clients):
            generator = np.random.default_rng([number, index])
            held = generator.integers(0, parameters.max_items + 1)
            trial.clients.append(Client(round_, keys, index.to_bytes(16, "big")))
            trial.items.append(generator.choice(parameters.n_items, held, replace=False))
            trial.rows.append(generator.integers(-(1 << 20), 1 << 20, (held, parameters.payload)))
            trial.dense.append(generator.integers(-(1 << 40), 1 << 40, parameters.dense))
        return trial

    return make


class Process:
    """``fedrec serve`` as a process of its own."""

    def __init__(self, party: int, certs: Path, spool: Path, port: int, peer: str | None, log: Path) -> None:
        words = [sys.executable, "-m", "fedrec_unlearn", "serve", "--party", str(party), "--certs", str(certs)]
        words += ["--spool", str(spool), "--port", str(port)] + (["--peer", peer] if peer else [])
        self._log = log.open("ab")
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment)
        assert self.child.stdout is not None
        self.line = self.child.stdout.readline().strip()
        if " listens on " not in self.line:
            self.end()
            pytest.fail(f"server {party} did not start: {self.line} {log.read_text()}")
        self.url = self.line.rpartition(" ")[2]
        self.port = int(self.url.rpartition(":")[2])

    def end(self) -> int:
        """Kill it and nothing else."""
        if self.child.poll() is None:
            self.child.kill()
        status = self.child.wait()
        if self.child.stdout is not None:
            self.child.stdout.close()
        self._log.close()
        return status


@pytest.fixture
def spawn(certs: Path, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts server processes, and ends at the end what still runs."""
    for name in ("httpx", "starlette", "uvicorn"):
        pytest.importorskip(name)
    started: list[Process] = []

    def make(party: int, port: int = 0, peer: str | None = None) -> Process:
        started.append(Process(party, certs, tmp_path / f"spool-{party}", port, peer, tmp_path / f"log-{party}"))
        return started[-1]

    yield make
    for process in started:
        process.end()


@pytest.fixture
def start_pair(certs: Path, tmp_path: Path) -> Iterator[Callable[..., tuple[Any, Any]]]:
    """Starts both servers in threads, and stops at the end what still runs."""
    for name in ("httpx", "starlette", "uvicorn"):
        pytest.importorskip(name)
    from fedrec_unlearn.serving.run import RunningServer, Settings, start

    started: list[RunningServer] = []

    def make(**limits: Any) -> tuple[RunningServer, RunningServer]:
        from fedrec_unlearn.serving.reading import Limits

        one = start(1, Settings(certs, tmp_path / "spool-1", limits=Limits(**limits)))
        started.append(one)
        zero = start(0, Settings(certs, tmp_path / "spool-0", peer=one.url, limits=Limits(**limits)))
        started.append(zero)
        return zero, one

    yield make
    with ThreadPoolExecutor() as pool:
        list(pool.map(RunningServer.stop, started))


@pytest.fixture
def call(certs: Path) -> Iterator[Callable[..., Any]]:
    """Sends one request in a role and returns the answer, whatever it is."""
    httpx = pytest.importorskip("httpx")
    clients = {role: httpx.Client(verify=client_context(certs, role), trust_env=False) for role in ROLES}

    def ask(role: str, method: str, url: str, body: bytes | None = None) -> Any:
        return clients[role].request(method, url, content=body)

    yield ask
    for client in clients.values():
        client.close()
