"""The routes of one server: roles, malformed and oversized bodies, repeats, and what answers tell."""

from __future__ import annotations

import re
import socket
import time
from dataclasses import replace

import pytest

from fedrec_unlearn.serving.bodies import pack_close, pack_messages, pack_open
from fedrec_unlearn.serving.identity import ROLES, client_context
from fedrec_unlearn.serving.keeper import Keeper
from fedrec_unlearn.serving.remote import RemotePair


def _open_body(trial):
    return pack_open(trial.round.to_bytes(), trial.table.astype("<i8").tobytes())


ROUTES = {
    ("POST", "/v1/rounds"): {"coordinator"},
    ("POST", "/v1/rounds/1/request"): {"client"},
    ("POST", "/v1/rounds/1/update"): {"client"},
    ("POST", "/v1/rounds/1/forward"): {"server-0"},
    ("GET", "/v1/rounds/1/received"): {"coordinator"},
    ("POST", "/v1/rounds/1/close"): {"coordinator"},
    ("GET", "/v1/key"): set(ROLES),
    ("GET", "/health"): set(ROLES),
}


def test_every_wrong_role_is_refused_on_every_route(start_pair, new_trial, call):
    zero, one = start_pair()
    for server in (zero, one):
        assert call("coordinator", "POST", f"{server.url}/v1/rounds", _open_body(new_trial(2))).status_code == 200
        for (method, path), allowed in ROUTES.items():
            if server is zero and path.endswith("/forward"):
                assert call("server-0", method, server.url + path, b"").status_code == 404
                continue
            # server 1's certificate is not one to call with: the handshake ends it
            for role in set(ROLES) - {"server-1"}:
                answer = call(role, method, server.url + path, b"" if method == "POST" else None)
                assert (answer.status_code == 403) == (role not in allowed), (role, path, answer.status_code)
                if role not in allowed:
                    assert re.fullmatch(rf"role {role} may not do this; it takes [a-z0-9 -]+", answer.json()["error"])


def test_a_key_and_the_state_are_told(certs, start_pair, new_trial, call):
    for party, server in enumerate(start_pair()):
        told = call("client", "GET", f"{server.url}/v1/key").json()
        assert told == {"party": party, "key": (certs / f"sealing-{party}.pub").read_bytes().hex()}
        assert call("client", "GET", f"{server.url}/health").json()["state"] == "idle"
        call("coordinator", "POST", f"{server.url}/v1/rounds", _open_body(new_trial(2)))
        health = call("client", "GET", f"{server.url}/health").json()
        assert (health["state"], health["round"], health["to_forward"]) == ("open", 1, 0)


def test_a_repeated_message_is_answered_like_the_first_and_another_one_is_a_conflict(start_pair, new_trial, call):
    zero, one = start_pair()
    trial, rival = new_trial(2), new_trial(2)
    for server in (zero, one):
        call("coordinator", "POST", f"{server.url}/v1/rounds", _open_body(trial))

    def send(phase, messages):
        return [
            call("client", "POST", f"{server.url}/v1/rounds/1/{phase}", message)
            for server, message in zip((zero, one), messages, strict=True)
        ]

    requests = trial.requests()
    first = [send("request", messages) for messages in requests]
    assert [answer.content for answer in send("request", requests[0])] == [answer.content for answer in first[0]]
    updates = trial.updates([tuple(answer.content for answer in answers) for answers in first])
    for _ in range(2):
        for answer in send("update", updates[0]):
            assert answer.status_code == 200
            assert answer.json() == {"kept": True, "forwarded": True}
    for answer in send("request", rival.requests()[0]):
        assert answer.status_code == 409
        assert "another message of this kind and client was accepted before" in answer.json()["error"]
    state = call("coordinator", "GET", f"{one.url}/v1/rounds/1/received").json()
    assert state["clients"] == [trial.clients[0].client_id.hex()]


def test_malformed_bodies_are_refused_and_change_nothing(start_pair, new_trial, call):
    zero, one = start_pair()
    trial = new_trial(2)
    (for_zero, for_one), _ = trial.requests()
    description, table = trial.round.to_bytes(), trial.table.astype("<i8").tobytes()
    for body in (b"", b"\xff\xff\xff\xff", pack_open(description, table)[:90], pack_open(description[:-1], table)):
        assert call("coordinator", "POST", f"{zero.url}/v1/rounds", body).status_code == 400, body[:8]
    assert call("coordinator", "POST", f"{zero.url}/v1/rounds", pack_open(description, table[8:])).status_code == 400
    wrong = pack_open(description, bytes(len(table)))
    assert call("coordinator", "POST", f"{zero.url}/v1/rounds", wrong).status_code == 400
    for server in (zero, one):
        call("coordinator", "POST", f"{server.url}/v1/rounds", _open_body(trial))
    flipped = bytes([*for_zero[:-1], for_zero[-1] ^ 1])
    for body in (b"", for_zero[:50], for_zero[:-1], flipped, b"\x09" + for_zero[1:], for_one.ljust(len(for_zero))):
        answer = call("client", "POST", f"{zero.url}/v1/rounds/1/request", body)
        assert answer.status_code == 400
        assert answer.json()["error"]
    for body in (b"", b"\x05", pack_messages([for_one]), pack_messages([b"x"] * 65), b"\x10\x00\x00\x00abc"):
        assert call("server-0", "POST", f"{one.url}/v1/rounds/1/forward", body).status_code == 400
    for body in (b"", trial.round.digest[:-1], trial.round.digest + b"odd", trial.round.digest + bytes(32)):
        assert call("coordinator", "POST", f"{zero.url}/v1/rounds/1/close", body).status_code == 400
    assert call("client", "POST", f"{zero.url}/v1/rounds/1/request", for_zero).status_code == 200


def test_an_unknown_round_is_not_found_and_a_closed_one_is_a_conflict(certs, start_pair, new_trial, call):
    zero, one = start_pair()
    trial = new_trial(3)
    requests = trial.requests()
    answer = call("client", "POST", f"{zero.url}/v1/rounds/1/request", requests[0][0])
    assert (answer.status_code, "round 1 is not open here" in answer.json()["error"]) == (404, True)
    with RemotePair((zero.url, one.url), certs, patience=10) as pair:
        pair.open(trial.round, trial.table)
        updates = trial.updates(pair.request(requests))
        pair.update(updates[:2])
        pair.close()
    for phase, body in (("request", requests[0][0]), ("update", updates[2][0])):
        assert call("client", "POST", f"{zero.url}/v1/rounds/1/{phase}", body).status_code == 409
        assert call("client", "POST", f"{zero.url}/v1/rounds/2/{phase}", body).status_code == 404
    other = pack_close(replace(trial.round, run=b"x" * 16).digest, [client.client_id for client in trial.clients])
    assert call("coordinator", "POST", f"{zero.url}/v1/rounds/1/close", other).status_code == 404
    three = pack_close(trial.round.digest, [client.client_id for client in trial.clients])
    assert call("coordinator", "POST", f"{zero.url}/v1/rounds/1/close", three).status_code == 409
    assert call("client", "GET", f"{zero.url}/nothing").json()["error"].startswith("Not Found")
    assert call("client", "GET", f"{zero.url}/v1/rounds").status_code == 405


def _raw(certs, url, role, head):
    """Send only the head of a request, and read what comes back until the server ends it."""
    host, port = url.removeprefix("https://").split(":")
    with (
        socket.create_connection((host, int(port)), timeout=5) as plain,
        client_context(certs, role).wrap_socket(plain, server_hostname=host) as line,
    ):
        line.sendall(head)
        answer = b""
        while part := line.recv(1 << 16):
            answer += part
    return answer


@pytest.mark.parametrize(
    ("phase", "role", "length"),
    [("request", "client", 1 << 40), ("update", "client", 3000), ("close", "coordinator", 32 + 41 * 16)],
)
def test_a_body_that_is_too_long_is_refused_before_a_byte_of_it_is_read(
    certs, start_pair, new_trial, call, phase, role, length
):
    zero, _ = start_pair()
    call("coordinator", "POST", f"{zero.url}/v1/rounds", _open_body(new_trial(2)))
    head = f"POST /v1/rounds/1/{phase} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
    answer = _raw(certs, zero.url, role, head.encode())
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert f"body of {length} bytes; in this round it has at most".encode() in answer


def test_a_table_that_is_too_long_for_its_round_is_refused_once_the_round_is_read(certs, start_pair, new_trial):
    zero, _ = start_pair()
    body = _open_body(new_trial(2))
    head = f"POST /v1/rounds HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body) + 8}\r\n\r\n".encode()
    assert _raw(certs, zero.url, "coordinator", head + body[:400]).startswith(b"HTTP/1.1 413 ")


def test_a_body_without_a_length_and_one_that_does_not_come_are_refused(certs, start_pair, new_trial, call):
    zero, _ = start_pair(body_seconds=0.2)
    call("coordinator", "POST", f"{zero.url}/v1/rounds", _open_body(new_trial(2)))
    head = b"POST /v1/rounds/1/request HTTP/1.1\r\nHost: x\r\n"
    assert _raw(certs, zero.url, "client", head + b"Transfer-Encoding: chunked\r\n\r\n").startswith(b"HTTP/1.1 411 ")
    assert _raw(certs, zero.url, "client", head + b"Content-Length: 100\r\n\r\nabc").startswith(b"HTTP/1.1 408 ")


def test_statuses_and_sizes_do_not_depend_on_what_a_client_holds(certs, start_pair, new_trial, call):
    zero, one = start_pair()
    trial = new_trial(20)
    assert len({len(items) for items in trial.items}) > 3
    for server in (zero, one):
        call("coordinator", "POST", f"{server.url}/v1/rounds", _open_body(trial))
    shapes, answers = [set(), set()], []
    for pair in trial.requests():
        answers.append([])
        for party, server in enumerate((zero, one)):
            answer = call("client", "POST", f"{server.url}/v1/rounds/1/request", pair[party])
            shapes[party].add((answer.status_code, len(answer.content), tuple(sorted(answer.headers))))
            answers[-1].append(answer.content)
    for pair in trial.updates(answers):
        for party, server in enumerate((zero, one)):
            answer = call("client", "POST", f"{server.url}/v1/rounds/1/update", pair[party])
            shapes[party].add((answer.status_code, answer.content))
    assert [len(shape) for shape in shapes] == [2, 2]


def test_server_1_asks_a_client_to_come_again_if_server_0_has_not_passed_its_part_on(start_pair, new_trial, call):
    zero, one = start_pair(answer_seconds=0.2)
    trial = new_trial(2)
    for server in (zero, one):
        call("coordinator", "POST", f"{server.url}/v1/rounds", _open_body(trial))
    (for_zero, for_one), _ = trial.requests()
    answer = call("client", "POST", f"{one.url}/v1/rounds/1/request", for_one)
    assert (answer.status_code, "send the same message again" in answer.json()["error"]) == (503, True)
    assert call("client", "POST", f"{zero.url}/v1/rounds/1/request", for_zero).status_code == 200
    again = call("client", "POST", f"{one.url}/v1/rounds/1/request", for_one)
    assert again.status_code == 200
    trial.clients[0].rows((call("client", "POST", f"{zero.url}/v1/rounds/1/request", for_zero).content, again.content))


def test_the_state_is_told_while_the_server_computes(certs, start_pair, new_trial, call, monkeypatch):
    zero, one = start_pair()
    trial = new_trial(2)
    real = Keeper.close

    def slow(self, digest, accepted):
        time.sleep(1.0)
        return real(self, digest, accepted)

    with RemotePair((zero.url, one.url), certs, patience=10) as pair:
        pair.open(trial.round, trial.table)
        pair.update(trial.updates(pair.request(trial.requests())))
        monkeypatch.setattr(Keeper, "close", slow)
        closing = pair._pools[0].submit(pair.close)
        time.sleep(0.3)
        for server in (zero, one):
            assert call("client", "GET", f"{server.url}/health").json()["state"] == "open"
        assert not closing.done()
        trial.check(closing.result())


def test_a_defect_is_told_without_what_it_was_about(start_pair, new_trial, call, monkeypatch, caplog):
    zero, _ = start_pair()
    call("coordinator", "POST", f"{zero.url}/v1/rounds", _open_body(new_trial(2)))
    monkeypatch.setattr(Keeper, "received", lambda self: (_ for _ in ()).throw(ValueError("the seed is 42")))
    answer = call("coordinator", "GET", f"{zero.url}/v1/rounds/1/received")
    assert (answer.status_code, answer.json()) == (500, {"error": "internal error; see the server's log"})
    assert "ValueError" in caplog.text
    assert "the seed" not in caplog.text


def test_a_message_on_the_route_of_another_kind_is_refused(certs, start_pair, new_trial, call):
    zero, one = start_pair()
    trial = new_trial(2)
    with RemotePair((zero.url, one.url), certs, patience=10) as pair:
        pair.open(trial.round, trial.table)
        updates = trial.updates(pair.request(trial.requests()))
    answer = call("client", "POST", f"{one.url}/v1/rounds/1/request", updates[0][1])
    assert (answer.status_code, answer.json()["error"]) == (
        400,
        "this is of kind UPDATE, not REQUEST; send it to its own route",
    )
    assert call("client", "POST", f"{one.url}/v1/rounds/1/update", updates[0][1]).json()["kept"]
