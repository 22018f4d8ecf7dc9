"""A server's round in memory and on disk, without a network: restarts, repeats, closing twice, a full disk."""

from __future__ import annotations

import pytest

from fedrec_unlearn.errors import RunError, TransportError
from fedrec_unlearn.secemb.server import Partial, combine
from fedrec_unlearn.secemb.wire import Kind
from fedrec_unlearn.serving.identity import sealing_key
from fedrec_unlearn.serving.keeper import Keeper
from fedrec_unlearn.serving.log_file import LogFile
from fedrec_unlearn.serving.receipt import Receipt
from fedrec_unlearn.serving.refused import RefusedError
from fedrec_unlearn.serving.spool import Spool


class Party:
    """A server that can be stopped at any moment and started again from its disk."""

    def __init__(self, party, certs, folder):
        self.party, self.certs, self.folder = party, certs, folder
        self.keeper = None
        self.start()

    def start(self):
        key = sealing_key(self.certs, self.party)
        self.spool = Spool(self.folder, self.party, key.public_key().public_bytes_raw())
        self.keeper = Keeper(self.party, key, self.spool)

    def crash(self):
        """Let go of the folder without writing anything, as the end of a process does; then start."""
        self.spool.release()
        self.start()


@pytest.fixture
def parties(certs, tmp_path):
    made = [Party(party, certs, tmp_path / f"spool-{party}") for party in (0, 1)]
    yield made
    for party in made:
        party.spool.release()


def _open(parties, trial):
    for party in parties:
        party.keeper.open(trial.round.to_bytes(), trial.table.astype("<i8").tobytes())


def _deliver(parties, messages, crash=False):
    """Bring messages to both, one by one; with `crash` both servers end after each."""
    for zero, one in messages:
        (receipt,) = parties[0].keeper.receive([zero])
        assert isinstance(receipt, Receipt)
        assert all(isinstance(each, Receipt) for each in parties[1].keeper.receive([one, receipt.forward]))
        parties[0].keeper.acknowledge(parties[0].keeper.round.digest, [receipt.key])
        if crash:
            for party in parties:
                party.crash()


def _answers(parties, trial):
    ids = [client.client_id for client in trial.clients]
    zero, one = (party.keeper.answer(ids) for party in parties)
    return [(zero[client], one[client]) for client in ids]


def _ids(trial, members):
    return frozenset(trial.clients[member].client_id for member in members)


def test_a_crash_after_every_message_changes_nothing(parties, new_trial):
    trial = new_trial(4)
    _open(parties, trial)
    _deliver(parties, trial.requests(), crash=True)
    _deliver(parties, trial.updates(_answers(parties, trial)), crash=True)
    received = [party.keeper.received() for party in parties]
    assert [state.clients for state in received] == [_ids(trial, range(4))] * 2
    partials = [party.keeper.close(trial.round.digest, received[0].clients) for party in parties]
    trial.check(combine(*(Partial.from_bytes(partial, trial.round) for partial in partials)))


def test_the_answer_after_a_crash_is_the_answer_before(parties, new_trial):
    trial = new_trial(3)
    _open(parties, trial)
    _deliver(parties, trial.requests())
    before = _answers(parties, trial)
    for party in parties:
        party.crash()
    assert _answers(parties, trial) == before


def test_a_torn_last_write_loses_only_what_was_not_acknowledged(parties, new_trial, caplog):
    trial = new_trial(3)
    _open(parties, trial)
    _deliver(parties, trial.requests()[:2])
    log = parties[0].spool.current.log
    with log.path.open("ab") as file:
        file.write(b"\x50\x00\x00\x00 torn")
    with caplog.at_level("WARNING", "fedrec_unlearn.serving"):
        parties[0].crash()
    assert "cut 9 bytes" in caplog.text
    assert set(parties[0].keeper.answer(_ids(trial, range(3)))) == _ids(trial, range(2))


def test_a_repeat_is_told_and_not_written_again(parties, new_trial):
    trial = new_trial(2)
    _open(parties, trial)
    requests = trial.requests()
    _deliver(parties, requests)
    for crash in (False, True):
        if crash:
            parties[0].crash()
        size = parties[0].spool.current.log.path.stat().st_size
        (receipt,) = parties[0].keeper.receive([requests[0][0]])
        assert receipt.repeated
        assert receipt.key == (Kind.REQUEST, trial.clients[0].client_id)
        assert parties[0].spool.current.log.path.stat().st_size == size


def test_of_a_batch_the_bad_messages_alone_are_refused(parties, new_trial):
    trial = new_trial(3)
    _open(parties, trial)
    messages = [zero for zero, _ in trial.requests()]
    messages[1] = messages[1][:-1] + bytes([messages[1][-1] ^ 1])
    outcomes = parties[0].keeper.receive(messages)
    assert [isinstance(outcome, Receipt) for outcome in outcomes] == [True, False, True]
    parties[0].crash()
    assert set(parties[0].keeper.answer(_ids(trial, range(3)))) == _ids(trial, [0, 2])


def test_a_second_different_message_of_a_client_is_a_conflict(parties, new_trial):
    first, second = new_trial(2), new_trial(2)
    _open(parties, first)
    parties[0].keeper.receive([zero for zero, _ in first.requests()])
    outcomes = parties[0].keeper.receive([zero for zero, _ in second.requests()])
    assert [outcome.status for outcome in outcomes] == [409, 409]


def test_what_was_not_forwarded_is_found_after_a_crash_and_what_was_is_not(parties, new_trial):
    trial = new_trial(4)
    _open(parties, trial)
    zeros = [zero for zero, _ in trial.requests()]
    receipts = parties[0].keeper.receive(zeros[:3])
    parties[0].keeper.acknowledge(trial.round.digest, [receipts[0].key])
    receipts += parties[0].keeper.receive(zeros[3:])  # with it, the acknowledgement is written
    parties[0].crash()
    assert parties[0].keeper.forwards == {receipt.key: receipt.forward for receipt in receipts[1:]}
    assert parties[0].keeper.forwarded_bytes == len(receipts[0].forward)


def test_an_acknowledgement_that_a_crash_lost_costs_a_repeat_and_is_counted_once(parties, new_trial):
    trial = new_trial(2)
    _open(parties, trial)
    receipts = parties[0].keeper.receive([zero for zero, _ in trial.requests()])
    assert not any(receipt.repeated for receipt in parties[1].keeper.receive([each.forward for each in receipts]))
    keys = [receipt.key for receipt in receipts]
    parties[0].keeper.acknowledge(trial.round.digest, keys)
    parties[0].crash()
    again = list(parties[0].keeper.forwards.values())
    assert all(receipt.repeated for receipt in parties[1].keeper.receive(again))
    parties[0].keeper.acknowledge(trial.round.digest, keys)
    assert parties[0].keeper.forwarded_bytes == sum(map(len, again))


def test_a_server_that_stops_in_order_leaves_nothing_to_forward_again(parties, new_trial):
    trial = new_trial(2)
    _open(parties, trial)
    _deliver(parties, trial.requests())
    parties[0].keeper.flush()
    parties[0].crash()
    assert parties[0].keeper.forwards == {}


@pytest.mark.parametrize("restart", [False, True])
def test_a_round_is_closed_once(parties, new_trial, restart):
    trial = new_trial(4)
    _open(parties, trial)
    _deliver(parties, trial.requests())
    _deliver(parties, trial.updates(_answers(parties, trial)))
    party = parties[0]
    partial = party.keeper.close(trial.round.digest, _ids(trial, [0, 1, 2]))
    if restart:
        party.crash()
    assert party.keeper.close(trial.round.digest, _ids(trial, [0, 1, 2])) == partial
    with pytest.raises(RefusedError, match="its one sum is made") as caught:
        party.keeper.close(trial.round.digest, _ids(trial, range(4)))
    assert caught.value.status == 409
    assert party.keeper.received().closed
    assert party.keeper.received().clients == _ids(trial, [0, 1, 2])
    with pytest.raises(RefusedError, match="was; a round is opened once"):
        party.keeper.open(trial.round.to_bytes(), trial.table.astype("<i8").tobytes())


def test_a_closed_round_receives_nothing(parties, new_trial):
    trial = new_trial(3)
    _open(parties, trial)
    requests = trial.requests()
    _deliver(parties, requests)
    updates = trial.updates(_answers(parties, trial))
    _deliver(parties, updates[:2])
    parties[0].keeper.close(trial.round.digest, _ids(trial, [0, 1]))
    assert [outcome.status for outcome in parties[0].keeper.receive([updates[2][0]])] == [409]


@pytest.mark.parametrize("members", [[0], [0, 1, 3], []])
def test_too_few_or_unknown_clients_are_refused_and_the_round_stays_open(parties, new_trial, members):
    trial = new_trial(4)
    _open(parties, trial)
    _deliver(parties, trial.requests())
    _deliver(parties, trial.updates(_answers(parties, trial))[:3])
    with pytest.raises(RefusedError) as caught:
        parties[0].keeper.close(trial.round.digest, _ids(trial, members))
    assert caught.value.status == 409
    partials = [party.keeper.close(trial.round.digest, _ids(trial, range(3))) for party in parties]
    trial.check(combine(*(Partial.from_bytes(partial, trial.round) for partial in partials)), [0, 1, 2])


def test_noise_is_drawn_once_even_if_the_sum_could_not_be_written_at_first(parties, new_trial, monkeypatch):
    trial = new_trial(3, noise=50.0)
    _open(parties, trial)
    _deliver(parties, trial.requests())
    _deliver(parties, trial.updates(_answers(parties, trial)))
    party, written = parties[1], []
    real = Spool.close_round

    def full(self, accepted, partial):
        written.append(partial)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Spool, "close_round", full)
        with pytest.raises(RefusedError, match="No space left on device; free space and try again") as caught:
            party.keeper.close(trial.round.digest, _ids(trial, range(3)))
    assert caught.value.status == 503
    assert Spool.close_round is real
    with pytest.raises(RefusedError, match="closed with other clients"):
        party.keeper.close(trial.round.digest, _ids(trial, range(2)))
    partial = party.keeper.close(trial.round.digest, _ids(trial, range(3)))
    party.crash()
    assert written == [partial] == [party.keeper.close(trial.round.digest, _ids(trial, range(3)))]


def test_a_full_disk_stops_receiving_and_a_start_goes_on_from_the_disk(parties, new_trial, monkeypatch):
    trial = new_trial(3)
    _open(parties, trial)
    requests = trial.requests()
    party = parties[0]
    party.keeper.receive([requests[0][0]])
    with monkeypatch.context() as patch:
        patch.setattr(LogFile, "append", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(RefusedError, match="No space left") as caught:
            party.keeper.receive([requests[1][0]])
    assert caught.value.status == 503
    with pytest.raises(RefusedError, match="start this server again"):
        party.keeper.receive([requests[2][0]])
    party.crash()
    assert set(party.keeper.answer(_ids(trial, range(3)))) == _ids(trial, [0])
    outcomes = party.keeper.receive([zero for zero, _ in requests])
    assert [outcome.repeated for outcome in outcomes] == [True, False, False]


def test_a_table_that_is_not_the_rounds_is_refused_and_the_round_before_stays(parties, new_trial):
    trial, later = new_trial(2, 1), new_trial(2, 2)
    _open(parties, trial)
    for table in (trial.table.astype("<i8").tobytes(), b"", later.table.astype("<i8").tobytes()[:-8]):
        with pytest.raises(TransportError):
            parties[0].keeper.open(later.round.to_bytes(), table)
    assert parties[0].keeper.round == trial.round
    assert parties[0].keeper.is_open


def test_the_spool_never_holds_a_seed_in_the_clear(parties, new_trial, tmp_path):
    trial = new_trial(3)
    _open(parties, trial)
    _deliver(parties, trial.requests())
    _deliver(parties, trial.updates(_answers(parties, trial)))
    contents = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert trial.clients[0].client_id in contents
    for client in trial.clients:
        assert not any(seed in contents for seed in client._seeds)


def test_a_kept_message_that_cannot_be_taken_up_is_told(parties, new_trial):
    trial = new_trial(2)
    _open(parties, trial)
    requests = trial.requests()
    parties[0].keeper.receive([requests[0][0]])
    parties[0].spool.current.log.append([(1, requests[1][0][:-1])])
    with pytest.raises(RunError, match=r"cannot be taken up again: .*move the round's folder away"):
        parties[0].crash()
