"""What a client and a server compute in a round, in CPU milliseconds per client, and the bytes that really pass.

Times are medians of `time.process_time`. A server's are those of `Server.answer` and `Server.close`, so its own work
alone: no transport, no waiting. A client's keys are timed apart from the sealing of its messages.
"""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrec_unlearn.bench.secemb.machine import timed
from fedrec_unlearn.bench.secemb.play import Play
from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.batch_code import code_of
from fedrec_unlearn.secemb.client import Client, Messages
from fedrec_unlearn.secemb.dpf import Converter, Labels, make_trees
from fedrec_unlearn.secemb.local import LocalPair
from fedrec_unlearn.secemb.matching import match
from fedrec_unlearn.secemb.parameters import ID_BYTES, IntArray, Parameters, Round
from fedrec_unlearn.secemb.prg import Blocks, Hashes
from fedrec_unlearn.secemb.server import Server, combine
from fedrec_unlearn.secemb.wire import SEED_BYTES

T = TypeVar("T")

_MILLI = 1000.0


def round_parameters(
    n_items: int,
    max_items: int,
    clients: int,
    width: int,
    ring_bits: int,
    dense: int,
    encoding: str = "binned",
    whole_keys: bool = False,
) -> Parameters:
    """Parameters of a round with the largest numbers its ring has room for."""
    return Parameters(
        n_items=n_items,
        width=width,
        payload=width,
        dense=dense,
        max_items=min(max_items, n_items),
        limit=min(((1 << (ring_bits - 1)) - 1) // clients, 1 << 42),
        max_clients=clients,
        min_clients=1,
        encoding="paper" if encoding == "paper" else "binned",
        ring_bits=64 if ring_bits == 64 else 32,
        whole_keys=whole_keys,
    )


def client_costs(parameters: Mapping[str, Any], repeats: int, fraction_bits: int) -> dict[str, Any]:
    """Bytes of a client's round and milliseconds of its work, through both servers in this process.

    Args:
        parameters: of `round_parameters`, without whole_keys.
        repeats: clients that are timed.
        fraction_bits: of the fixed point.

    Returns:
        `bytes`: a client's messages by kind as they were really made, with correction words sent once and with whole
        keys; `milliseconds`: `keys` (matching, trees, final correction words), `request`, `rows` and `update`, the
        three calls with sealing, and `session`, the key agreement before them.

    Raises:
        TransportError: messages of clients that hold more or less differ in size, or something is not exact.
    """
    sizes = {
        name: _sizes(round_parameters(**parameters, clients=2, whole_keys=name == "whole"), fraction_bits)
        for name in ("once", "whole")
    }
    play = Play.of(round_parameters(**parameters, clients=repeats + 1), repeats + 1, fraction_bits)
    p = play.round.parameters
    pair = LocalPair()
    pair.open(play.round, play.table)
    spent: dict[str, list[float]] = {name: [] for name in ("session", "keys", "request", "rows", "update")}

    def spend(name: str, work: Callable[[], T]) -> T:
        result, took = timed(work)
        spent[name].append(took.cpu)
        return result

    sessions, requests = [], []
    for items, rows in zip(play.items, play.rows, strict=True):
        session = spend("session", lambda: Client(play.round, pair.keys, secrets.token_bytes(ID_BYTES)))
        spend("keys", partial(_keys, play.round, items, rows))
        requests.append(spend("request", partial(session.request, items)))
        sessions.append(session)
    # servers take seconds a client under the paper's encoding
    served = sessions[:3] if p.encoding == "paper" else sessions
    received = []
    for session, answer in zip(served, pair.request(requests[: len(served)]), strict=True):
        received.append(spend("rows", partial(session.rows, answer)))
    play.check_rows(served, received)
    for client, session in enumerate(served):
        spend("update", partial(session.update, play.rows[client][session.placed], play.dense[client]))
    return {
        "trees": p.trees,
        "slots": p.slots,
        "depth": p.depth,
        "bytes": sizes,
        # the first one pays for what is made once
        "milliseconds": {name: _MILLI * statistics.median(values[1:]) for name, values in spent.items()},
    }


def _sizes(parameters: Parameters, fraction_bits: int) -> dict[str, int]:
    """Bytes of a client's messages in a round of two, of which the second holds a single item."""
    play = Play.of(parameters, 2, fraction_bits)
    play.items[1], play.rows[1] = play.items[1][:1], play.rows[1][:1]
    pair = LocalPair()
    pair.open(play.round, play.table)
    sessions = play.sessions(pair.keys)
    requests = [session.request(items) for session, items in zip(sessions, play.items, strict=True)]
    answers = pair.request(requests)
    play.check_rows(sessions, [session.rows(answer) for session, answer in zip(sessions, answers, strict=True)])
    updates = play.updates(sessions)
    pair.update(updates)
    forwarded = pair.bytes_between
    if parameters.encoding != "paper":  # whose sums take minutes at the largest sizes; `server_costs` checks them
        play.check_sum(sessions, pair.close())
    kinds = {"request": requests, "response": answers, "update": updates}
    per_client = [{kind: _length(messages[client]) for kind, messages in kinds.items()} for client in (0, 1)]
    if per_client[0] != per_client[1]:
        raise TransportError(f"secemb: sizes depend on the items held: {per_client[0]} and {per_client[1]}")
    own = per_client[0]
    return {
        **own,
        "upload": own["request"] + own["update"],
        "download": own["response"],
        "forwarded": forwarded // 2,
    }


def _length(messages: Messages) -> int:
    return len(messages[0]) + len(messages[1])


def _keys(round_: Round, items: IntArray, rows: IntArray) -> None:
    """What `Client` computes for an item's keys and final correction words, without packing, sealing and checks."""
    p = round_.parameters
    hashes = Hashes(round_.digest, bytes(ID_BYTES), secrets.token_bytes(ID_BYTES), p.passes)
    seeds = secrets.token_bytes(SEED_BYTES), secrets.token_bytes(SEED_BYTES)
    code = code_of(p)
    trees = match(code, items)
    placed = np.flatnonzero(trees >= 0)
    points = np.frombuffer(secrets.token_bytes(8 * p.trees), dtype="<u8").astype(np.int64) % p.slots
    points[trees[placed]] = code.leaves(items[placed], trees[placed])
    roots = [Labels(*hashes.root_labels(seed, p.trees, party)) for party, seed in enumerate(seeds)]
    _, leaves = make_trees(hashes, (roots[0], roots[1]), points, p.depth)
    finals = np.zeros((p.trees, p.payload), dtype=p.word)
    finals[trees[placed]] = rows[placed].astype(p.word)
    converter = Converter(p.payload, p.word, Blocks(p.trees))
    first, second = (converter.values(hashes.convert, labels) for labels in leaves)
    finals += second - first
    np.where(leaves[1].control.astype(bool)[:, None], np.negative(finals), finals)


def server_costs(parameters: Mapping[str, Any], clients: int, repeats: int, fraction_bits: int) -> dict[str, Any]:
    """Milliseconds a server spends on a client, serving a batch.

    Args:
        parameters: of `round_parameters`.
        clients: in the batch.
        repeats: batches on each server, all of them compared with plain integers.
        fraction_bits: of the fixed point.

    Returns:
        `milliseconds` per client, medians over both servers: `receive` (opening and checking both messages),
        `retrieve` (`Server.answer`) and `aggregate` (`Server.close`).

    Raises:
        TransportError: rows or the sum are not exact.
    """
    play = Play.of(round_parameters(**parameters, clients=clients), clients, fraction_bits)
    private = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    keys = private[0].public_key().public_bytes_raw(), private[1].public_key().public_bytes_raw()
    sessions = play.sessions(keys)
    requests = [session.request(items) for session, items in zip(sessions, play.items, strict=True)]
    names = [session.client_id for session in sessions]
    updates: list[Messages] = []
    spent: dict[str, list[float]] = {"receive": [], "retrieve": [], "aggregate": []}
    first: list[dict[bytes, bytes]] = []
    for _ in range(repeats):
        servers = [Server(party, play.round, play.table, key) for party, key in enumerate(private)]
        received = _deliver(servers, requests)
        answers = []
        for server in servers:
            answer, took = timed(partial(server.answer, names))
            answers.append(answer)
            spent["retrieve"].append(took.cpu)
        if not first:
            first = answers
            rows = [s.rows((answers[0][n], answers[1][n])) for s, n in zip(sessions, names, strict=True)]
            play.check_rows(sessions, rows)
            updates = play.updates(sessions)
        elif answers != first:
            raise TransportError("secemb: the same requests were answered with other bytes")
        spent["receive"] += [a + b for a, b in zip(received, _deliver(servers, updates), strict=True)]
        partials = []
        for server in servers:
            share, took = timed(partial(server.close, names))
            partials.append(share)
            spent["aggregate"].append(took.cpu)
        play.check_sum(sessions, combine(partials[0], partials[1]))
    return {
        "clients": clients,
        "repeats": repeats,
        "milliseconds": {name: _MILLI * statistics.median(values) / clients for name, values in spent.items()},
    }


def _deliver(servers: Sequence[Server], messages: Sequence[Messages]) -> list[float]:
    """CPU seconds each server takes to receive a batch of messages and what is forwarded."""
    zero, one = servers
    forwards, took_zero = timed(lambda: [zero.receive(for_zero) for for_zero, _ in messages])

    def at_one() -> None:
        for (_, for_one), forward in zip(messages, forwards, strict=True):
            one.receive(for_one)
            if forward is not None:
                one.receive_forward(forward)

    return [took_zero.cpu, timed(at_one)[1].cpu]
