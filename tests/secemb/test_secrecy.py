"""Where secrets come from, who has them, and that no repr, message of an error or amount of work tells them."""

from __future__ import annotations

import ast
import base64
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

import fedrec_unlearn.secemb
from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.batch_code import Code, code_of
from fedrec_unlearn.secemb.client import Client
from fedrec_unlearn.secemb.dense import mask
from fedrec_unlearn.secemb.evaluation import Key
from fedrec_unlearn.secemb.noise import add_noise
from fedrec_unlearn.secemb.prg import Blocks, Hash, Hashes, Purpose, derive
from fedrec_unlearn.secemb.sealing import Channel, ephemeral_of
from fedrec_unlearn.secemb.server import Partial, combine
from fedrec_unlearn.secemb.wire import header_of

PACKAGE = Path(fedrec_unlearn.secemb.__file__).parent
MODULES = sorted(PACKAGE.glob("*.py"))
Make = Callable[..., Any]


def test_package_needs_numpy_and_cryptography_alone() -> None:
    names = [f"fedrec_unlearn.secemb.{path.stem}" for path in MODULES if path.stem != "__init__"]
    program = f"import sys, {', '.join(names)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"numpy", "cryptography", "fedrec_unlearn"} <= loaded
    assert not loaded & {"torch", "scipy", "pandas", "sklearn", "yaml", "rich", "matplotlib", "flwr", "recbole"}
    ours = {name for name in done.stdout.split() if name.startswith("fedrec_unlearn.")}
    assert ours - {"fedrec_unlearn.errors", "fedrec_unlearn.seeds", "fedrec_unlearn.secemb", *names} == set()


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and node.attr == "random":
            yield "numpy.random"


def test_no_generator_but_the_operating_systems_is_within_reach() -> None:
    assert len(MODULES) > 12
    for path in MODULES:
        for name in imported(ast.parse(path.read_text())):
            assert name.split(".")[0] not in {"random", "torch", "pickle", "marshal", "shelve", "logging"}, path
            assert not name.startswith("numpy.random"), path
            # of the package's own streams only the public permutations', and their keys are not secret
            if name.startswith("fedrec_unlearn.seeds"):
                assert path.stem == "batch_code"
    assert "numpy.random" in set(imported(ast.parse("import numpy as np\nnp.random.normal()")))


def test_every_secret_of_a_client_is_drawn_from_the_operating_system(
    make_round: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = make_round()
    trees = play.round.parameters.trees
    asked: list[int] = []

    def zeros(n: int) -> bytes:
        asked.append(n)
        return bytes(n)

    monkeypatch.setattr("secrets.token_bytes", zeros)
    client = play.client()
    first = client.request(np.array([3]))
    assert asked == [16, 16, 16, 8 * trees]  # nonce, both seeds, where dummies point
    # with a generator that always says the same only the channels' keys differ, which the library draws
    again = Client(play.round, play.pair.keys, client.client_id)
    second = again.request(np.array([3]))
    opened = [
        [Channel.from_client(key, ephemeral_of(m)).open(m) for key, m in zip(play.pair._private, pair, strict=True)]
        for pair in (first, second)
    ]
    assert opened[0] == opened[1]
    assert first[0] != second[0]
    monkeypatch.undo()
    third = Client(play.round, play.pair.keys, client.client_id).request(np.array([3]))
    fresh = Channel.from_client(play.pair._private[0], ephemeral_of(third[0])).open(third[0])
    assert fresh != opened[0][0]


def test_noise_is_drawn_from_the_operating_system(make_round: Make, complete: Make) -> None:
    assert inspect.signature(add_noise).parameters["source"].default is os.urandom
    calls = [
        node
        for node in ast.walk(ast.parse((PACKAGE / "server.py").read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "add_noise"
    ]
    assert [(len(call.args), call.keywords) for call in calls] == [(2, [])] * 2  # rows, dense; no other source
    noisy = [complete(make_round(noise=3.0), [np.array([3]), np.array([4])]).rows for _ in range(2)]
    assert (noisy[0] != noisy[1]).mean() > 0.5


def test_keys_for_every_purpose_number_client_round_and_nonce_are_different() -> None:
    purposes: tuple[Purpose, ...] = ("left", "right", "convert", "roots", "masks")
    base: dict[str, Any] = {"digest": bytes(32), "client": bytes(16), "nonce": bytes(16)}
    others = [base | {name: b"\1" * len(value)} for name, value in base.items()]
    made = [
        derive(purpose, **bound, number=number)
        for purpose in purposes
        for bound in (base, *others)
        for number in (0, 1, 256)
    ] + [derive("masks", **base, secret=b"\1" * 16), derive("masks", **base, secret=b"\2" * 16)]
    assert len(set(made)) == len(made)
    assert len({key[:16] for key in made}) == len(made)


def test_the_hash_does_not_repeat_over_purposes_passes_and_sessions() -> None:
    outputs = []
    for nonce in (bytes(16), b"\1" + bytes(15)):
        hashes = Hashes(bytes(32), bytes(16), nonce, 3)
        for hash_ in (hashes.left, hashes.right, hashes.roots, *hashes.convert):
            blocks = Blocks(1)
            blocks.load(np.array([5], np.uint64), np.array([9], np.uint64))
            outputs.append(hash_(blocks, 1).tobytes())
    assert len(set(outputs)) == 12


def test_neither_server_can_open_what_is_sealed_to_the_other(make_round: Make) -> None:
    play = make_round()
    client = play.client()
    messages = client.request(np.array([3]))
    for own, other in ((0, 1), (1, 0)):
        channel = Channel.from_client(play.pair._private[own], ephemeral_of(messages[other]))
        with pytest.raises(TransportError, match="not sealed for this server"):
            channel.open(messages[other])
    zero, one = play.servers
    forward = zero.receive(messages[0])
    one.receive(messages[1])
    seeds = client._seeds
    assert seeds[0] != seeds[1]
    # server 0 passes correction words on and never its seed; server 1's seed does not come to it
    assert seeds[0] not in forward
    assert (zero._inbox.entries[client.client_id].seed, one._inbox.entries[client.client_id].seed) == seeds


def test_permutations_follow_from_public_parameters_alone(make_round: Make) -> None:
    play = make_round()
    p = play.round.parameters
    before = code_of(p)
    kept = before.bin_of.copy(), before.slot_of.copy()
    for number in range(3):
        play.client(number).request(np.arange(5) + 20 * number)
    fresh = Code(p)
    for code in (before, fresh):
        np.testing.assert_array_equal(code.bin_of, kept[0])
        np.testing.assert_array_equal(code.slot_of, kept[1])
    other = Code(make_round(code_seed=1).round.parameters)
    assert (other.bin_of != kept[0]).any()


def test_servers_do_the_same_work_in_the_same_order_for_every_client(
    make_round: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = []
    for items, reach in (([], 0), ([3], 7), ([60, 0, 1, 2, 5], 1000)):
        play = make_round(min_clients=1)
        client = play.client()
        requests = client.request(np.array(items, dtype=np.int64))
        work: list[tuple[Any, ...]] = []
        hashed = Hash.__call__

        def counted(self: Hash, blocks: Blocks, n: int, into: Any = work, plain: Any = hashed) -> Any:
            into.append(("hash", n))
            return plain(self, blocks, n)

        with monkeypatch.context() as patched:
            patched.setattr(Hash, "__call__", counted)
            (answers,) = play.pair.request([requests])
        rows = client.rows(answers)
        updates = client.update(np.full((len(rows), 4), reach), np.full(2, reach))
        with monkeypatch.context() as patched:
            patched.setattr(Hash, "__call__", counted)
            play.pair.update([updates])
            play.pair.close()
        works.append(work)
    assert len(works[0]) > 20
    assert works[0] == works[1] == works[2]


def test_sum_shows_a_row_that_one_client_touched_and_noise_covers_every_row(make_round: Make, complete: Make) -> None:
    held = [np.array([3, 8]), np.array([8, 60])]
    bare = complete(make_round(), held)
    assert set(np.flatnonzero(bare.rows.any(axis=1))) == {
        3,
        8,
        60,
    }  # told in the package's docs: a sum is not anonymous
    noised = complete(make_round(noise=50.0), held)
    # untouched rows get as much noise as all others
    untouched = np.setdiff1d(np.arange(61), [3, 8, 60])
    assert (noised.rows[untouched] != 0).mean() > 0.95
    assert (noised.dense - bare.dense).any()


def test_each_servers_share_alone_is_noise(make_round: Make) -> None:
    # of 61 rows two are touched; one share must not show which, nor the other share add up to anything but the sum
    play = make_round()
    answers = play.ask([np.array([3]), np.array([8])])
    updates = []
    for client, responses in zip(play.clients, answers, strict=True):
        client.rows(responses)
        updates.append(client.update(np.full((1, 4), 1000), np.array([5, 6])))
    play.pair.update(updates)
    accepted = play.servers[0].received
    shares = [server.close(accepted) for server in play.servers]
    for share in shares:
        assert (share.rows != 0).all()
        assert len(np.unique(share.rows)) == share.rows.size
        bits = np.unpackbits(share.rows.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / len(bits) ** 0.5
    total = combine(*shares)
    assert np.count_nonzero(total.rows) == 8


def encodings(secret: bytes) -> list[str]:
    """How bytes look when they are printed."""
    numbers = [str(int.from_bytes(secret[i : i + 8], order)) for i in range(0, len(secret), 8) for order in ORDERS]
    return [
        repr(secret)[2:-1],
        secret.hex(),
        secret.hex(" "),
        base64.b64encode(secret).decode(),
        base64.urlsafe_b64encode(secret).decode(),
        str(list(secret))[1:-1],
        *numbers,
    ]


ORDERS: tuple[Any, ...] = ("little", "big")


def leaks(text: str, secrets: list[bytes]) -> list[bytes]:
    """Secrets of which the text shows the whole or a half."""
    halves = chain.from_iterable((secret, secret[: len(secret) // 2], secret[len(secret) // 2 :]) for secret in secrets)
    return [secret for secret in halves if len(secret) >= 8 and any(form in text for form in encodings(secret))]


class Whole:
    """A round with one client half-way and one done, and everything in it that is secret."""

    def __init__(self, make_round: Make) -> None:
        self.play = play = make_round()
        self.held = [np.array([3, 8]), np.array([8, 60])]
        self.answers = play.ask(self.held)
        self.requests_of_third = play.client(2).request(np.array([1]))
        first = play.clients[0]
        self.rows = first.rows(self.answers[0])
        self.updates = first.update(np.full((2, 4), 987654321), np.full(2, 1234567890123))
        zero, one = play.servers
        self.forward = zero.receive(self.updates[0])
        one.receive(self.updates[1])
        one.receive_forward(self.forward)
        self.secrets = [private.private_bytes_raw() for private in play.pair._private]
        for client in play.clients:
            self.secrets += [*client._seeds, *(channel._shared for channel in client._channels)]
            self.secrets += [
                np.array([lo, hi], dtype="<u8").tobytes()
                for labels in client._leaves or ()
                for lo, hi in zip(*labels, strict=True)
            ]
            for party, seed in enumerate(client._seeds):
                hashes = Hashes(play.round.digest, client.client_id, client._nonce, 1)
                lo, hi = hashes.root_labels(seed, play.round.parameters.trees, party)
                self.secrets += [np.array(pair, dtype="<u8").tobytes() for pair in zip(lo, hi, strict=True)]
            self.secrets.append(mask(play.round.digest, client.client_id, client._nonce, client._seeds[0], 2).tobytes())
        self.secrets.append(one._inbox.entries[first.client_id].share)
        self.secrets.append(np.array([987654321, 1234567890123]).tobytes())


def test_no_repr_tells_a_secret(make_round: Make) -> None:
    whole = Whole(make_round)
    play = whole.play
    zero, _ = play.servers
    key = zero._key(play.clients[0].client_id)
    assert isinstance(key, Key)
    shown: list[Any] = [
        play.pair,
        *play.clients,
        *(channel for client in play.clients for channel in client._channels),
        *(labels for client in play.clients for labels in client._leaves or ()),
        *(client._hashes for client in play.clients),
        *(server for server in play.servers),
        *(server._inbox for server in play.servers),
        *(server._evaluator for server in play.servers),
        *(entry for server in play.servers for entry in server._inbox.entries.values()),
        key,
        key.roots,
        play.round,
        {"locals": [key, *play.clients]},
    ]
    assert len(shown) > 20
    for thing in shown:
        for text in (repr(thing), str(thing), f"{thing}", f"{thing!a}"):
            assert not leaks(text, whole.secrets), type(thing)
    # what is looked for would be found
    secret = play.clients[0]._seeds[0]
    for text in (
        f"seed {secret!r}",
        secret.hex(),
        str(np.frombuffer(secret, "<u8")),
        base64.b64encode(secret).decode(),
    ):
        assert leaks(text, whole.secrets)
    assert leaks(str(list(key.roots)), whole.secrets)


def test_no_error_tells_a_secret(make_round: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Whole(make_round)
    play = whole.play
    zero, one = play.servers
    first, second, third = play.clients
    stranger = X25519PrivateKey.generate()
    other = make_round(number=4)
    request = whole.requests_of_third[0]
    bits_set_beyond_the_last = third._channels[0].seal(header_of(request), b"\xff" * (len(request) - 72 - 32 - 16))
    calls: list[Callable[[], Any]] = [
        lambda: zero.receive(b""),
        lambda: zero.receive(b"\2" + whole.updates[0][1:]),
        lambda: zero.receive(whole.updates[0]),
        lambda: zero.receive(whole.updates[1]),
        lambda: zero.receive(whole.updates[0][:-1]),
        lambda: zero.receive(whole.updates[0][:-1] + b"\0"),
        lambda: zero.receive(other.client(0).request(np.array([1]))[0]),
        lambda: zero.receive(Client(play.round, play.pair.keys, first.client_id).request(np.array([1]))[0]),
        lambda: zero.receive(request[:-1] + bytes([request[-1] ^ 1])),
        lambda: zero.receive(bits_set_beyond_the_last),
        lambda: zero.receive(request[:72] + bytes(32) + request[104:]),
        lambda: zero.receive(whole.forward),
        lambda: zero.receive_forward(whole.forward),
        lambda: one.receive_forward(whole.forward),
        lambda: one.receive_forward(whole.forward[:-1] + bytes([whole.forward[-1] ^ 1])),
        lambda: one.receive_forward(whole.updates[1]),
        lambda: zero.answer([third.client_id]),
        lambda: zero.close([first.client_id, second.client_id]),
        lambda: zero.close([first.client_id]),
        lambda: second.rows((whole.answers[0][0], whole.answers[1][1])),
        lambda: second.rows((whole.answers[1][1], whole.answers[1][0])),
        lambda: second.rows((whole.answers[1][0][:-1], whole.answers[1][1])),
        lambda: second.rows((whole.answers[1][0][:-1] + b"\0", whole.answers[1][1])),
        lambda: second.update(np.zeros((2, 4), np.int64), np.zeros(2, np.int64)),
        lambda: first.update(np.full((2, 4), 987654321), np.full(2, 1234567890123)),
        lambda: first.request(np.array([3, 8])),
        lambda: third.request(np.array([3, 8])),
        lambda: play.client(5).request(np.array([3, 3, 8])),
        lambda: play.client(6).request(np.array([999])),
        lambda: Client(play.round, (play.pair.keys[0], bytes(32)), bytes(16)),
        lambda: Channel.from_client(stranger, bytes(32)),
        lambda: Channel.from_client(stranger, ephemeral_of(request)).open(request),
    ]
    raised: list[BaseException] = []
    made = TransportError.__init__

    def recorded(self: TransportError, *arguments: Any) -> None:
        raised.append(self)
        made(self, *arguments)

    monkeypatch.setattr(TransportError, "__init__", recorded)
    for number, call in enumerate(calls):
        before = len(raised)
        with pytest.raises(TransportError):
            call()
        assert len(raised) > before, number
    # after the round is closed as well
    second.rows(whole.answers[1])
    play.pair.update([second.update(np.full((2, 4), 987654321), np.full(2, 1234567890123))])
    partials = [server.close([first.client_id, second.client_id]) for server in play.servers]
    for call in (
        lambda: zero.receive(request),
        lambda: zero.close([first.client_id]),
        lambda: combine(partials[0], partials[0]),
        lambda: Partial.from_bytes(partials[0].to_bytes()[:-1], play.round),
        lambda: Partial.from_bytes(partials[0].to_bytes(), other.round),
    ):
        with pytest.raises(TransportError):
            call()
    texts = set()
    for error in raised:
        link: BaseException | None = error
        while link is not None:
            texts |= {str(link), repr(link), repr(link.args)}
            link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    assert len({str(error) for error in raised}) > 22
    for text in texts:
        assert not leaks(text, whole.secrets)
        # nor a number of an update, nor anything long enough to hide one
        assert "987654321" not in text
        assert "1234567890123" not in text
        assert len(text) < 400
