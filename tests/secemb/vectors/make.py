"""Makes the test vectors beside it: `python tests/secemb/vectors/make.py`, when the protocol's version changes.

A vector is one client's round with fixed secrets: what goes in, the contents of its messages before they are sealed,
the servers' answers and their shares of the sum. All are made by the package; `test_vectors.py` computes them again
by code that shares nothing with it. A table's numbers are those of SHAKE-256 of "table " and the vector's name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrec_unlearn.secemb.client import Client
from fedrec_unlearn.secemb.parameters import Parameters, Round
from fedrec_unlearn.secemb.sealing import Channel, ephemeral_of
from fedrec_unlearn.secemb.server import Server
from fedrec_unlearn.secemb.wire import Header, Kind

HERE = Path(__file__).parent
CASES: dict[str, dict[str, Any]] = {
    "slots-1": {"n_items": 7, "max_items": 4, "bins": 8, "width": 1, "payload": 1, "dense": 0},
    "slots-2": {"n_items": 8, "max_items": 3, "bins": 4, "hashes": 1, "width": 3, "payload": 3, "dense": 1},
    "slots-3": {"n_items": 9, "max_items": 4, "bins": 6, "hashes": 2, "width": 4, "payload": 4, "dense": 2},
    "slots-5": {"n_items": 13, "max_items": 5, "bins": 12, "width": 64, "payload": 64, "dense": 3},
    "slots-8": {"n_items": 16, "max_items": 4, "bins": 8, "width": 64, "payload": 65, "dense": 0},
    "slots-13": {"n_items": 37, "max_items": 6, "bins": 12, "width": 1, "payload": 1, "dense": 5, "ring_bits": 64},
    "slots-21": {"n_items": 61, "max_items": 5, "bins": 12, "width": 3, "payload": 3, "dense": 0, "ring_bits": 64},
    "slots-64": {"n_items": 256, "max_items": 9, "bins": 16, "width": 3, "payload": 4, "dense": 1, "ring_bits": 64},
    "slots-100": {"n_items": 300, "max_items": 8, "bins": 12, "width": 64, "payload": 64, "dense": 0, "ring_bits": 64},
    "slots-301": {"n_items": 903, "max_items": 9, "bins": 12, "width": 64, "payload": 65, "dense": 2, "ring_bits": 64},
    "paper": {"n_items": 75, "max_items": 3, "encoding": "paper", "width": 4, "payload": 5, "dense": 2},
    "whole-keys": {"n_items": 50, "max_items": 4, "bins": 8, "width": 2, "payload": 3, "dense": 2, "whole_keys": True},
}


def fixed(name: str) -> Callable[[int], bytes]:
    """A stand-in for the operating system's generator: SHAKE-128 of a name and a counter."""
    calls = 0

    def token_bytes(n: int) -> bytes:
        nonlocal calls
        calls += 1
        return hashlib.shake_128(f"{name} {calls}".encode()).digest(n)

    return token_bytes


def words(name: str, count: int) -> list[int]:
    """Signed 32-bit numbers: SHAKE-256 of a name, little-endian."""
    stream = hashlib.shake_256(name.encode()).digest(4 * count)
    return [int.from_bytes(stream[i : i + 4], "little", signed=True) for i in range(0, 4 * count, 4)]


def case(name: str) -> dict[str, Any]:
    """One client's round."""
    options = CASES[name]
    p = Parameters(limit=1 << 20, max_clients=3, min_clients=1, code_seed=len(name), **options)
    table = np.array(words(f"table {name}", p.n_items * p.width), dtype=np.int64).reshape(p.n_items, p.width)
    round_ = Round.of(p, hashlib.sha256(name.encode()).digest()[:16], p.n_items, table)
    private = [X25519PrivateKey.from_private_bytes(bytes([party + 1]) * 32) for party in (0, 1)]
    servers = [Server(party, round_, table, key) for party, key in enumerate(private)]
    items = np.unique(np.array(words(f"items {name}", p.max_items - 1)) % p.n_items)
    keys = (private[0].public_key().public_bytes_raw(), private[1].public_key().public_bytes_raw())
    with mock.patch("secrets.token_bytes", fixed(name)):
        client = Client(round_, keys, hashlib.sha256(b"client").digest()[:16])
        requests = client.request(items)
    channels = [Channel.from_client(key, ephemeral_of(sent)) for key, sent in zip(private, requests, strict=True)]
    deliver(servers, requests)
    answers = [server.answer([client.client_id])[client.client_id] for server in servers]
    client.rows((answers[0], answers[1]))
    rows = np.array(words(f"rows {name}", len(client.placed) * p.payload), dtype=np.int64) % (2 * p.limit + 1) - p.limit
    rows = rows.reshape(len(client.placed), p.payload)
    dense = np.array(words(f"dense {name}", p.dense), dtype=np.int64) << 20
    updates = client.update(rows, dense)
    deliver(servers, updates)
    partials = [server.close([client.client_id]) for server in servers]
    opened = {
        kind: [channel.open(message).hex() for channel, message in zip(channels, messages, strict=True)]
        for kind, messages in (("request", requests), ("response", answers), ("update", updates))
    }
    return {
        "parameters": {"trees": p.trees, "hashes": p.hashes, "slots": p.slots, "depth": p.depth, "ring": p.ring_bits}
        | {"n_items": p.n_items, "width": p.width, "payload": p.payload, "dense": p.dense}
        | {"encoding": p.encoding, "whole_keys": p.whole_keys, "code_seed": p.code_seed},
        "round": round_.to_bytes().hex(),
        "digest": round_.digest.hex(),
        "client": client.client_id.hex(),
        "nonce": requests[0][56:72].hex(),
        "items": items[client.placed].tolist(),
        "rows": [" ".join(map(str, row)) for row in rows.tolist()],
        "dense": dense.tolist(),
        "contents": opened,
        "partials": [
            {part: hashlib.sha256(getattr(partial, part).tobytes()).hexdigest() for part in ("rows", "dense")}
            for partial in partials
        ],
    }


def deliver(servers: list[Server], messages: tuple[bytes, bytes]) -> None:
    """Bring a client's messages to both servers."""
    forward = servers[0].receive(messages[0])
    servers[1].receive(messages[1])
    if forward is not None:
        servers[1].receive_forward(forward)


def sealing() -> dict[str, Any]:
    """A message of each kind under fixed keys."""
    server, client = (X25519PrivateKey.from_private_bytes(bytes(range(start, start + 32))) for start in (0, 32))
    public, ephemeral = server.public_key().public_bytes_raw(), client.public_key().public_bytes_raw()
    channel = Channel(client.exchange(server.public_key()), ephemeral, public)
    content = bytes(range(100, 141))
    headers = [
        Header(kind, party, 77, bytes(range(32)), bytes(range(16)), bytes(range(16, 32)))
        for kind in (Kind.REQUEST, Kind.UPDATE, Kind.RESPONSE)
        for party in (0, 1)
    ]
    return {
        "server_private": bytes(range(32)).hex(),
        "client_private": bytes(range(32, 64)).hex(),
        "content": content.hex(),
        "messages": {f"{h.kind.name} {h.party}": channel.seal(h, content).hex() for h in headers},
    }


def everything() -> dict[str, dict[str, Any]]:
    """Name and contents of every file."""
    return {name: case(name) for name in CASES} | {"sealing": sealing()}


if __name__ == "__main__":
    for name, made in everything().items():
        (HERE / f"{name}.json").write_text(json.dumps(made, indent=1) + "\n")
