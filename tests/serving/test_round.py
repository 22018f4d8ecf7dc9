"""Whole rounds over two servers, as training sees them."""

from __future__ import annotations

import inspect

import pytest

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.client import forwarded_bytes
from fedrec_unlearn.secemb.local import LocalPair
from fedrec_unlearn.secemb.pair import Pair
from fedrec_unlearn.serving.bodies import pack_close
from fedrec_unlearn.serving.remote import RemotePair


def test_rows_and_sums_are_exact_over_several_rounds(certs, start_pair, new_trial):
    zero, one = start_pair()
    with RemotePair((zero.url, one.url), certs, patience=10) as pair:
        for number, clients in ((1, 12), (2, 40), (5, 2)):
            trial = new_trial(clients, number)
            pair.open(trial.round, trial.table)
            pair.update(trial.updates(pair.request(trial.requests())))
            trial.check(pair.close())


@pytest.mark.parametrize("changes", [{"whole_keys": True}, {"encoding": "paper", "bins": 0}, {"ring_bits": 64}])
def test_every_form_of_messages_is_carried(certs, start_pair, new_trial, changes):
    zero, one = start_pair()
    with RemotePair((zero.url, one.url), certs, patience=10) as pair:
        trial = new_trial(3, **changes)
        pair.open(trial.round, trial.table)
        pair.update(trial.updates(pair.request(trial.requests())))
        assert pair.bytes_between == 3 * forwarded_bytes(trial.round)
        trial.check(pair.close())
        assert pair.bytes_between == 3 * forwarded_bytes(trial.round)


def test_it_fits_where_the_pair_in_this_process_fits():
    for name in ("open", "request", "update", "close"):
        theirs, mine = (inspect.signature(getattr(kind, name)).parameters for kind in (Pair, RemotePair))
        assert list(theirs) == list(mine) == list(inspect.signature(getattr(LocalPair, name)).parameters)
    assert isinstance(inspect.getattr_static(RemotePair, "bytes_between"), property)


def test_a_round_may_be_opened_again_while_it_is_open_and_given_up_for_another(certs, start_pair, new_trial):
    zero, one = start_pair()
    with RemotePair((zero.url, one.url), certs, patience=10) as pair:
        trial = new_trial(3)
        pair.open(trial.round, trial.table)
        answers = pair.request(trial.requests())
        pair.open(trial.round, trial.table)
        pair.update(trial.updates(answers))
        other = new_trial(3, 0, run=b"another run's id")
        pair.open(other.round, other.table)
        pair.update(other.updates(pair.request(other.requests())))
        other.check(pair.close())
        with pytest.raises(TransportError, match=r"server [01] at .* refuses /v1/rounds \(409\): round 1 of this run"):
            pair.open(trial.round, trial.table)


def test_a_client_that_vanishes_at_any_step_is_in_no_sum(certs, start_pair, new_trial):
    zero, one = start_pair()
    with RemotePair((zero.url, one.url), certs, patience=10) as pair:
        trial = new_trial(8)
        pair.open(trial.round, trial.table)
        updates = trial.updates(pair.request(trial.requests()))
        pair.update(updates[:5])
        # 5 sends its update to server 0 alone, 6 to server 1 alone, 7 sends none
        for party, member in ((0, 5), (1, 6)):
            pair._clients[party].post("/v1/rounds/1/update", updates[member][party])
        states = [pair._control[party].get("/v1/rounds/1/received")["clients"] for party in (0, 1)]
        ids = [client.client_id.hex() for client in trial.clients]
        assert states == [ids[:6], ids[:5]]
        trial.check(pair.close(), [0, 1, 2, 3, 4])


def test_too_few_clients_are_refused_and_closing_works_once_there_are_more(certs, start_pair, new_trial):
    zero, one = start_pair()
    with RemotePair((zero.url, one.url), certs, patience=10) as pair:
        trial = new_trial(3)
        pair.open(trial.round, trial.table)
        updates = trial.updates(pair.request(trial.requests()))
        pair.update(updates[:1])
        with pytest.raises(TransportError, match="at least 2 distinct clients, not 1"):
            pair.close()
        pair.update(updates[1:])
        trial.check(pair.close())


def test_a_round_that_one_server_has_closed_is_closed_at_the_other_with_the_same_clients(
    certs, start_pair, new_trial, call
):
    zero, one = start_pair()
    with RemotePair((zero.url, one.url), certs, patience=10) as pair:
        trial = new_trial(4)
        pair.open(trial.round, trial.table)
        updates = trial.updates(pair.request(trial.requests()))
        pair.update(updates)
        some = [client.client_id for client in trial.clients[:3]]
        body = pack_close(trial.round.digest, some)
        assert call("coordinator", "POST", f"{one.url}/v1/rounds/1/close", body).status_code == 200
        trial.check(pair.close(), [0, 1, 2])


def test_nothing_works_before_a_round_is_open(certs, start_pair, new_trial):
    zero, one = start_pair()
    with RemotePair((zero.url, one.url), certs, patience=10) as pair:
        for use in (lambda: pair.request(new_trial(2).requests()), pair.close):
            with pytest.raises(TransportError, match="no round is open"):
                use()
