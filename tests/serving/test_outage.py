"""Servers that are killed, stopped or away while clients send: nothing is lost, nothing counted twice."""

from __future__ import annotations

import base64
import signal
import threading
import time

import pytest

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.client import forwarded_bytes
from fedrec_unlearn.serving.bodies import pack_open
from fedrec_unlearn.serving.remote import RemotePair
from fedrec_unlearn.serving.run import Settings, start


def _wait_until(condition, seconds=15.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_both_servers_are_killed_in_mid_round_and_the_sum_is_exact(certs, spawn, new_trial, tmp_path, call):
    one = spawn(1)
    zero = spawn(0, peer=one.url)
    trial = new_trial(12)
    with RemotePair((zero.url, one.url), certs, patience=30) as pair:
        pair.open(trial.round, trial.table)
        requests = trial.requests()
        answers = pair.request(requests[:6])
        one.child.kill()  # SIGKILL
        assert one.child.wait() == -signal.SIGKILL

        late: list = []
        asking = threading.Thread(target=lambda: late.extend(pair.request(requests[6:])))
        asking.start()
        # server 0 has what it cannot forward: only its disk knows of it once it is killed too
        _wait_until(lambda: call("client", "GET", f"{zero.url}/health").json()["to_forward"] == 6)
        zero.child.kill()
        assert zero.child.wait() == -signal.SIGKILL
        zero = spawn(0, port=zero.port, peer=one.url)
        one = spawn(1, port=one.port)
        asking.join()
        assert len(late) == 6

        updates = trial.updates([*answers, *late])
        pair.update(updates[:5])
        one.child.kill()
        one.child.wait()
        one = spawn(1, port=one.port)
        pair.update(updates)  # five of them again
        assert pair.bytes_between == 12 * forwarded_bytes(trial.round)
        zero.child.kill()
        zero.child.wait()
        zero = spawn(0, port=zero.port, peer=one.url)
        trial.check(pair.close())

        # closed is closed, also for those that were killed afterwards
        one.child.kill()
        one.child.wait()
        one = spawn(1, port=one.port)
        assert call("client", "GET", f"{one.url}/health").json()["state"] == "closed"
    logs = [(tmp_path / f"log-{party}").read_text() for party in (0, 1)]
    assert "took up round 1 with" in logs[0]
    assert "took up round 1 with" in logs[1]
    _holds_no_secret("".join(logs), trial, [*requests, *updates], certs)


def _holds_no_secret(log, trial, messages, certs):
    """Neither raw, nor as a number, in hexadecimal, base64 or as Python shows bytes."""
    assert len(log.splitlines()) > 50
    assert trial.clients[3].client_id[:4].hex() in log
    secrets = [seed for client in trial.clients for seed in client._seeds]
    secrets += [part for message in messages for part in (message[0][-16:], message[1][-16:], message[0][104:120])]
    secrets += [(certs / f"server-{party}" / "sealing.key").read_bytes() for party in (0, 1)]
    secrets += [row.astype("<i8").tobytes() for row in trial.table]
    secrets += [client.client_id for client in trial.clients]  # shortened there
    for secret in secrets:
        forms = (secret.decode("latin1"), secret.hex(), base64.b64encode(secret).decode()[:-2], repr(secret)[2:-1])
        assert not any(form in log for form in forms)
    numbers = {str(number) for number in (*trial.table.ravel(), *(n for rows in trial.rows for n in rows.ravel()))}
    assert not numbers & set(log.replace(":", " ").split())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_server_in_order_and_the_next_one_goes_on(certs, spawn, new_trial, number, tmp_path):
    one = spawn(1)
    zero = spawn(0, peer=one.url)
    trial = new_trial(3)
    with RemotePair((zero.url, one.url), certs, patience=30) as pair:
        pair.open(trial.round, trial.table)
        answers = pair.request(trial.requests())
        zero.child.send_signal(number)
        assert zero.child.wait(timeout=15) == 0
        assert zero.child.stdout.read() == "party 0 has stopped\n"
        zero = spawn(0, port=zero.port, peer=one.url)
        pair.update(trial.updates(answers))
        trial.check(pair.close())


@pytest.fixture
def pieces(certs, tmp_path):
    """Starts one server in a thread, at a port of choice."""
    for name in ("httpx", "starlette", "uvicorn"):
        pytest.importorskip(name)
    from fedrec_unlearn.serving.reading import Limits

    running = []

    def make(party, port=0, peer=None):
        limits = Limits(forward_seconds=0.2, answer_seconds=2.0)
        running.append(start(party, Settings(certs, tmp_path / f"spool-{party}", port=port, peer=peer, limits=limits)))
        return running[-1]

    yield make
    for server in running:
        server.stop()


def test_updates_that_arrive_while_server_1_is_away_are_kept_and_forwarded_later(certs, pieces, new_trial, call):
    one = pieces(1)
    zero = pieces(0, peer=one.url)
    port = int(one.url.rpartition(":")[2])
    trial = new_trial(4)
    with RemotePair((zero.url, one.url), certs, patience=10) as pair:
        pair.open(trial.round, trial.table)
        updates = trial.updates(pair.request(trial.requests()))
        one.stop()
        for for_zero, _ in updates:
            answer = call("client", "POST", f"{zero.url}/v1/rounds/1/update", for_zero)
            assert answer.status_code == 202
            assert answer.json() == {"kept": True, "forwarded": False}
        health = call("client", "GET", f"{zero.url}/health").json()
        assert health["to_forward"] == 4
        assert "server 1 at" in health["trouble"]
        one = pieces(1, port=port)
        for _, for_one in updates:
            assert call("client", "POST", f"{one.url}/v1/rounds/1/update", for_one).status_code == 200
        trial.check(pair.close())


def test_closing_waits_for_what_server_0_still_has_to_forward(certs, pieces, new_trial, call, monkeypatch):
    from fedrec_unlearn.serving.forwarder import Forwarder

    one = pieces(1)
    zero = pieces(0, peer=one.url)
    trial = new_trial(3)
    real = Forwarder._send

    async def held(self, http, messages):
        return "server 1 is not reached"

    with RemotePair((zero.url, one.url), certs, patience=1) as pair:
        pair.open(trial.round, trial.table)
        updates = trial.updates(pair.request(trial.requests()))
        monkeypatch.setattr(Forwarder, "_send", held)
        pair.update(updates)
        with pytest.raises(TransportError, match="server 0 has 3 messages that server 1 has not taken"):
            pair.close()
        monkeypatch.setattr(Forwarder, "_send", real)
        pair._patience = 10
        trial.check(pair.close())


def test_a_server_that_stays_away_is_named_with_the_remedy(certs, pieces, new_trial):
    one = pieces(1)
    zero = pieces(0, peer=one.url)
    trial = new_trial(2)
    with RemotePair((zero.url, one.url), certs, patience=0.5) as pair:
        pair.open(trial.round, trial.table)
        zero.stop()
        with pytest.raises(TransportError, match=r"server 0 at https://127.* did not answer .*fedrec serve --party 0"):
            pair.request(trial.requests())
        zero = pieces(0, port=int(zero.url.rpartition(":")[2]), peer=one.url)
        fresh = new_trial(2, 2)
        pair.open(fresh.round, fresh.table)
        pair.update(fresh.updates(pair.request(fresh.requests())))
        fresh.check(pair.close())


def test_what_waits_for_an_abandoned_round_does_not_hold_up_the_next(certs, pieces, new_trial, call):
    one = pieces(1)
    zero = pieces(0, peer=one.url)
    given_up, trial = new_trial(3, 1), new_trial(3, 2)
    body = pack_open(given_up.round.to_bytes(), given_up.table.astype("<i8").tobytes())
    call("coordinator", "POST", f"{zero.url}/v1/rounds", body)  # never opened at server 1
    for for_zero, _ in given_up.requests():
        assert call("client", "POST", f"{zero.url}/v1/rounds/1/request", for_zero).status_code == 200
    assert call("client", "GET", f"{zero.url}/health").json()["to_forward"] == 3
    with RemotePair((zero.url, one.url), certs, patience=10) as pair:
        pair.open(trial.round, trial.table)
        assert call("client", "GET", f"{zero.url}/health").json()["to_forward"] == 0
        pair.update(trial.updates(pair.request(trial.requests())))
        trial.check(pair.close())


def test_a_restarted_server_0_forwards_what_it_had_not_without_being_asked(certs, pieces, new_trial, call):
    one = pieces(1)
    zero = pieces(0, peer=one.url)
    ports = [int(server.url.rpartition(":")[2]) for server in (zero, one)]
    trial = new_trial(3)
    with RemotePair((zero.url, one.url), certs, patience=10) as pair:
        pair.open(trial.round, trial.table)
    requests = trial.requests()
    one.stop()
    for for_zero, _ in requests:
        assert call("client", "POST", f"{zero.url}/v1/rounds/1/request", for_zero).status_code == 200
    zero.stop()
    one = pieces(1, port=ports[1])
    pieces(0, port=ports[0], peer=one.url)
    for _, for_one in requests:
        assert call("client", "POST", f"{one.url}/v1/rounds/1/request", for_one).status_code == 200


def test_a_client_that_comes_before_server_0_has_passed_its_part_on_is_served_in_the_end(
    certs, start_pair, new_trial, call
):
    zero, one = start_pair(answer_seconds=0.1)
    trial = new_trial(2)
    with RemotePair((zero.url, one.url), certs, patience=10) as pair:
        pair.open(trial.round, trial.table)
        (for_zero, for_one), _ = trial.requests()
        early = pair._pools[1].submit(pair._clients[1].post, "/v1/rounds/1/request", for_one)
        time.sleep(0.4)  # it is told to come again several times
        assert not early.done()
        answer = pair._clients[0].post("/v1/rounds/1/request", for_zero)
        rows = trial.clients[0].rows((answer, early.result()))
    assert (rows == trial.table[trial.items[0][trial.clients[0].placed]]).all()


def test_who_waits_for_an_answer_is_told_when_the_round_is_given_up(certs, start_pair, new_trial, call):
    zero, one = start_pair()
    trial, later = new_trial(2, 1), new_trial(2, 2)
    with RemotePair((zero.url, one.url), certs, patience=10) as pair:
        pair.open(trial.round, trial.table)
        waiting = pair._pools[1].submit(
            call, "client", "POST", f"{one.url}/v1/rounds/1/request", trial.requests()[0][1]
        )
        time.sleep(0.3)
        pair.open(later.round, later.table)
        assert waiting.result(timeout=10).status_code == 409


def test_an_idle_connection_does_not_hold_up_a_stop(pieces, call, caplog):
    one = pieces(1)
    assert call("client", "GET", f"{one.url}/health").status_code == 200
    one.stop()
    assert "exceeded" not in caplog.text
