"""Feeds every decoder with damaged messages: `python tests/secemb/fuzz_decoders.py [-atheris_runs=N] [folder]`.

Needs `atheris` (coverage-guided mutation; Python below 3.13). An input is one byte that names a target and then the
bytes for it; the corpus begins with valid ones. Two things are wrong and end the run: an exception other than
`TransportError`, and a server that refuses a message but has another state than before. `test_decoders.py` uses the
same targets with hypothesis, where atheris is not needed.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

if __name__ == "__main__":
    import atheris  # type: ignore[import-untyped]

    instrumented: Any = atheris.instrument_imports(include=["fedrec_unlearn.secemb"])
else:
    instrumented = contextlib.nullcontext()

with instrumented:
    from fedrec_unlearn.errors import TransportError
    from fedrec_unlearn.secemb.client import Client
    from fedrec_unlearn.secemb.parameters import Parameters, Round
    from fedrec_unlearn.secemb.server import Partial, Server
    from fedrec_unlearn.secemb.wire import HEADER_BYTES, Kind, header_of, unpack_corrections

FIT = 0x80
"""Bit of an input's first byte: cut or fill the rest to a length that the target takes."""


class Targets:
    """A small round in the middle, and everything in it that decodes bytes."""

    def __init__(self) -> None:
        p = Parameters(61, 3, 4, 2, 5, limit=1000, max_clients=5, bins=12)
        table = np.arange(183, dtype=np.int64).reshape(61, 3)
        self.round = Round.of(p, b"a run's 16 bytes", 3, table)
        private = (X25519PrivateKey.generate(), X25519PrivateKey.generate())
        self.keys = (private[0].public_key().public_bytes_raw(), private[1].public_key().public_bytes_raw())
        zero, one = (Server(party, self.round, table, key) for party, key in enumerate(private))
        self.servers = (zero, one)
        done, half, fresh = (Client(self.round, self.keys, bytes([number]) * 16) for number in range(3))
        requests = [client.request(np.array([7, 8])) for client in (done, half, fresh)]
        forwards = [self._deliver(requests[0]), self._deliver(requests[1])]
        answers = [
            tuple(server.answer([client.client_id])[client.client_id] for server in self.servers)
            for client in (done, half)
        ]
        done.rows((answers[0][0], answers[0][1]))
        updates = done.update(np.ones((2, 4), dtype=np.int64), np.ones(2, dtype=np.int64))
        forwards.append(self._deliver(updates))
        self.waiting, self.answers = half, (answers[1][0], answers[1][1])
        twin = copy.copy(half)
        twin.rows(self.answers)
        next_updates = twin.update(np.ones((2, 4), dtype=np.int64), np.ones(2, dtype=np.int64))
        packed = half._channels[0].open(requests[1][0])[16:]
        share = self._share()
        self.valid: list[tuple[str, bytes]] = [
            *(("header", message) for message in (*requests[2], *updates, *answers[0], forwards[0], share)),
            ("parameters", p.to_bytes()),
            ("round", self.round.to_bytes()),
            ("corrections", packed),
            *(
                (f"receive {party}", message)
                for party in (0, 1)
                for message in (requests[0][party], requests[2][party], next_updates[party], updates[party])
            ),
            *(("forward 1", message) for message in forwards),
            ("forward 0", forwards[0]),
            ("partial", share),
            *((f"rows {party}", self.answers[party]) for party in (0, 1)),
            # behind the seal: contents that the client itself sealed
            *((f"inside {party}", half._channels[party].open(next_updates[party])) for party in (0, 1)),
        ]
        self.names = sorted({name for name, _ in self.valid})
        self.lengths = {name: len(message) for name, message in reversed(self.valid)}

    def once(self, data: bytes) -> None:
        """One input: a byte for the target, then what it decodes."""
        if data:
            name, rest = self.names[(data[0] & ~FIT) % len(self.names)], data[1:]
            length = self.lengths[name]
            self.run(name, rest[:length].ljust(length, b"\0") if data[0] & FIT else rest)

    def _deliver(self, messages: tuple[bytes, bytes]) -> bytes:
        forward = self.servers[0].receive(messages[0])
        self.servers[1].receive(messages[1])
        assert forward is not None
        self.servers[1].receive_forward(forward)
        return forward

    def _share(self) -> bytes:
        p = self.round.parameters
        rows = np.zeros((p.n_items, p.payload), dtype=p.word)
        accepted = (bytes(16), bytes([9]) * 16)
        return Partial(0, self.round, accepted, rows, np.zeros(p.dense, dtype=np.uint64)).to_bytes()

    def run(self, name: str, data: bytes) -> bool:
        """Decode once.

        Returns:
            whether it was taken; what was taken is taken back.

        Raises:
            AssertionError: a refused message changed something, or a decoded value has other bytes.
        """
        kind, _, party = name.partition(" ")
        before = self._state()
        try:
            self._decode(kind, int(party or 0), data)
        except TransportError:
            if self._state() != before:
                raise AssertionError(f"{name}: a message was refused and the state changed") from None
            return False
        self._restore(before)
        return True

    def _decode(self, kind: str, party: int, data: bytes) -> None:
        p = self.round.parameters
        if kind == "header":
            assert header_of(data).to_bytes() == data[:HEADER_BYTES]
        elif kind == "parameters":
            assert Parameters.from_bytes(data).to_bytes() == data
        elif kind == "round":
            assert Round.from_bytes(data).to_bytes() == data
        elif kind == "corrections":
            assert unpack_corrections(data, p).lo.shape == (p.depth, p.trees)
        elif kind == "receive":
            self.servers[party].receive(data)
        elif kind == "forward":
            self.servers[party].receive_forward(data)
        elif kind == "partial":
            assert Partial.from_bytes(data, self.round).to_bytes() == data
        elif kind == "rows":
            answers = (data, self.answers[1]) if party == 0 else (self.answers[0], data)
            self.waiting.rows(answers)
        elif kind == "inside":
            header = header_of(self.answers[0])._replace(kind=Kind.UPDATE, party=party)
            self.servers[party].receive(self.waiting._channels[party].seal(header, data))
        else:
            raise AssertionError(kind)

    def _state(self) -> Any:
        return [
            {
                client: (
                    entry.nonce,
                    entry.channel,
                    entry.seed,
                    entry.share,
                    dict(entry.public),
                    dict(entry.expected),
                    dict(entry.seen),
                )
                for client, entry in server._inbox.entries.items()
            }
            for server in self.servers
        ] + [self.waiting._state]

    def _restore(self, state: Any) -> None:
        for server, clients in zip(self.servers, state, strict=False):
            entries = server._inbox.entries
            for client in entries.keys() - clients.keys():
                del entries[client]
            for client, kept in clients.items():
                entry = entries[client]
                entry.nonce, entry.channel, entry.seed, entry.share = kept[:4]
                entry.public, entry.expected, entry.seen = (dict(part) for part in kept[4:])
        self.waiting._state = state[-1]


def main() -> None:
    """Fuzz until told to stop."""
    targets = Targets()
    options = [argument for argument in sys.argv[1:] if argument.startswith("-")]
    folders = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    with tempfile.TemporaryDirectory() as own:
        corpus = Path(folders[0] if folders else own)
        for number, (name, message) in enumerate(targets.valid):
            for fit in (0, FIT):
                first = bytes([targets.names.index(name) | fit])
                (corpus / f"valid-{number:02}-{fit}").write_bytes(first + message)
        atheris.Setup([sys.argv[0], "-max_len=2048", "-len_control=0", *options, str(corpus)], targets.once)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
