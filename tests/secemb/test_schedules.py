"""Rounds in any order, with clients that stop anywhere and messages that are bad in every way.

Two laws. The opened sum is the plain sum over exactly the accepted clients. A message that is refused changes
nothing: not the servers' state, and so not the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.client import Client
from fedrec_unlearn.secemb.local import LocalPair
from fedrec_unlearn.secemb.server import Partial, Server, combine
from fedrec_unlearn.secemb.wire import HEADER_BYTES, Kind, Replayed, header_of

Make = Callable[..., Any]


def state(server: Server) -> Any:
    """Everything a server has of its clients, to be compared."""
    return {
        client: (
            entry.nonce,
            None if entry.channel is None else (entry.channel._shared, entry.channel.ephemeral),
            entry.seed,
            entry.share,
            dict(entry.public),
            dict(entry.expected),
            dict(entry.seen),
        )
        for client, entry in server._inbox.entries.items()
    }


def take(server: Server, message: bytes) -> bytes | None:
    """Give a server a message at the door its kind belongs to."""
    if len(message) > 1 and message[1] in (Kind.FORWARD_REQUEST, Kind.FORWARD_UPDATE):
        server.receive_forward(message)
        return None
    return server.receive(message)


def refused(server: Server, message: bytes, error: type[TransportError] = TransportError) -> None:
    before = state(server)
    with pytest.raises(error):
        take(server, message)
    assert state(server) == before


class Script:
    """A round in which every message is on its way until it is delivered."""

    def __init__(self, play: Any, held: list[np.ndarray], whole: bool) -> None:
        self.play, self.whole = play, whole
        self.servers: tuple[Server, Server] = play.servers
        self.held, self.values = held, []
        self.underway: list[tuple[int, bytes]] = []
        self.delivered: list[tuple[int, bytes]] = []
        self.waiting: dict[bytes, tuple[Client, int]] = {}
        rng = np.random.default_rng(5)
        p = play.round.parameters
        for number, items in enumerate(held):
            client = play.client()
            self.underway += enumerate(client.request(items))
            self.waiting[client.client_id] = client, number
            rows = rng.integers(-p.limit, p.limit, (len(items), p.payload), endpoint=True)
            self.values.append((rows, rng.integers(-9, 9, p.dense)))

    def deliver(self, place: int) -> None:
        party, message = self.underway.pop(place)
        forward = take(self.servers[party], message)
        assert (forward is not None) == (party == 0 and not self.whole)
        self.delivered.append((party, message))
        if forward is not None:
            self.underway.append((1, forward))
        self.serve()

    def serve(self) -> None:
        """Clients whose request both servers have get their rows and send their update."""
        ready = self.servers[0].requests & self.servers[1].requests & self.waiting.keys()
        for client_id in sorted(ready):
            client, number = self.waiting.pop(client_id)
            zero, one = (server.answer([client_id])[client_id] for server in self.servers)
            items = self.held[number]
            np.testing.assert_array_equal(client.rows((zero, one)), self.play.table[items[client.placed]])
            rows, dense = self.values[number]
            self.underway += enumerate(client.update(rows[client.placed], dense))

    def close_and_compare(self) -> None:
        zero, one = self.servers
        p = self.play.round.parameters
        accepted = zero.received & one.received
        if len(accepted) < p.min_clients:
            with pytest.raises(TransportError, match="at least"):
                zero.close(accepted)
            return
        shares = [
            Partial.from_bytes(server.close(accepted).to_bytes(), self.play.round) for server in reversed(self.servers)
        ]
        total = combine(*shares)
        assert set(total.accepted) == accepted
        for client, items, (rows, dense) in zip(self.play.clients, self.held, self.values, strict=True):
            if client.client_id in accepted:
                self.play.count(client, items, rows[client.placed], dense)
        self.play.check(total)


def damage(message: bytes, how: str, place: int) -> bytes:
    """A message that differs from one that was sent."""
    if how == "flip":
        changed = bytearray(message)
        changed[place // 8 % len(message)] ^= 1 << place % 8
        return bytes(changed)
    if how == "shorten":
        return message[: place % len(message)]
    if how == "extend":
        return message + bytes(1 + place % 40)
    if how == "rename":  # as another client's
        return message[:40] + bytes([message[40] ^ 1]) + message[41:]
    if how == "rekind":
        return message[:1] + bytes([1 + (message[1] + place % 5) % 6]) + message[2:]
    assert how == "cut in two"
    return message[: HEADER_BYTES + 1] + message[HEADER_BYTES + 2 :] + b"\0"


HOW = ("flip", "shorten", "extend", "rename", "rekind", "cut in two")


@given(
    data=st.data(),
    whole=st.booleans(),
    ring_bits=st.sampled_from([32, 64]),
    encoding=st.sampled_from(["binned", "paper"]),
)
@settings(max_examples=60, deadline=None)
def test_any_schedule_sums_exactly_the_accepted_clients(
    data: st.DataObject, whole: bool, ring_bits: int, encoding: str, make_round: Make
) -> None:
    play = make_round(whole_keys=whole, ring_bits=ring_bits, encoding=encoding, bins=5 if encoding == "paper" else 12)
    count = data.draw(st.integers(2, 4), "clients")
    held = [
        np.array(data.draw(st.lists(st.integers(0, 60), max_size=5, unique=True)), dtype=np.int64) for _ in range(count)
    ]
    script = Script(play, held, whole)
    other = make_round(number=4, whole_keys=whole)
    foreign = other.client(0).request(np.array([1]))
    lost = data.draw(st.integers(0, 3), "messages lost")
    while script.underway:
        what = data.draw(st.sampled_from(["deliver", "deliver", "deliver", "lose", "replay", "swap", "foreign", *HOW]))
        place = data.draw(st.integers(0, len(script.underway) - 1))
        party, message = script.underway[place]
        if what == "deliver":
            script.deliver(place)
        elif what == "lose" and lost:
            lost -= 1
            script.underway.pop(place)
        elif what == "replay" and script.delivered:
            party, message = script.delivered[place % len(script.delivered)]
            refused(script.servers[party], message, Replayed)
        elif what == "swap":
            refused(script.servers[1 - party], message)
        elif what == "foreign":
            refused(script.servers[party], foreign[party])
        elif what in HOW:
            sent = script.delivered + [
                # what server 0 forwards is known to be right only once the client's own message is there
                (to, m)
                for to, m in script.underway
                if m[1] not in (Kind.FORWARD_REQUEST, Kind.FORWARD_UPDATE)
            ]
            party, message = sent[place % len(sent)]
            bad = damage(message, how=what, place=data.draw(st.integers(0, 1 << 20)))
            if can_be_told(script.servers[party], bad):
                refused(script.servers[party], bad)
    script.close_and_compare()


def can_be_told(server: Server, message: bytes) -> bool:
    """Whether a bad message must be refused at once: of a forwarded one only the client's own message tells."""
    if message[1:2] not in (b"\3", b"\4"):
        return True
    entry = server._inbox.entries.get(message[40:56])
    return entry is not None and Kind(message[1] - 2) in entry.expected


@pytest.mark.parametrize("whole", [False, True], ids=["forwarded", "whole"])
def test_client_that_stops_at_any_step_is_left_out_and_harms_nobody(whole: bool, make_round: Make) -> None:
    # the last one's messages are delivered up to each step in turn: two for each phase, and what is forwarded
    steps = 4 if whole else 6
    for stop in range(steps + 1):
        play = make_round(whole_keys=whole)
        script = Script(play, [np.array([3, 8]), np.array([8, 60]), np.array([8, 9, 10])], whole)
        last = play.clients[-1].client_id
        budget = stop
        while script.underway:
            _, message = script.underway[0]
            if header_of(message).client == last:
                if not budget:
                    script.underway.pop(0)
                    continue
                budget -= 1
            script.deliver(0)
        assert (last in play.servers[0].received & play.servers[1].received) == (stop == steps)
        script.close_and_compare()
        assert play.rows[8].any()


def test_every_bad_form_of_every_message_is_refused_and_the_sum_is_that_of_a_round_without_them(
    make_round: Make,
) -> None:
    for whole in (False, True):
        sums = []
        for attacked in (False, True):
            play = make_round(whole_keys=whole)
            script = Script(play, [np.array([3, 8]), np.array([8, 60])], whole)
            while script.underway:
                party, message = script.underway[0]
                script.deliver(0)
                if not attacked:
                    continue
                refused(script.servers[party], message, Replayed)
                refused(script.servers[1 - party], message)
                for how in HOW:
                    for place in (0, 9, 17, 30, 40, 70, 300, 470, 575, 580, 700, 830, 8 * len(message) - 1):
                        bad = damage(message, how, place)
                        if can_be_told(script.servers[party], bad):
                            refused(script.servers[party], bad)
            script.close_and_compare()
            sums.append(play.rows)
        np.testing.assert_array_equal(*sums)


def test_second_session_and_second_message_of_a_client_are_refused(make_round: Make) -> None:
    play = make_round()
    zero, one = play.servers
    first, second = play.client(0), play.client(0)
    messages, others = first.request(np.array([5])), second.request(np.array([6]))
    forward = zero.receive(messages[0])
    assert forward is not None
    for server, message in zip((zero, one), others, strict=True):
        if server is one:
            one.receive(messages[1])
        refused(server, message)
    one.receive_forward(forward)
    with pytest.raises(TransportError, match="make a new Client"):
        first.request(np.array([5]))
    with pytest.raises(TransportError, match="make a new Client"):
        first.update(np.zeros((1, 4), np.int64), np.zeros(2, np.int64))
    answers = tuple(server.answer([first.client_id])[first.client_id] for server in (zero, one))
    first.rows(answers)
    updates = first.update(np.ones((1, 4), np.int64), np.zeros(2, np.int64))
    with pytest.raises(TransportError, match="make a new Client"):
        first.update(np.zeros((1, 4), np.int64), np.zeros(2, np.int64))
    # final correction words for another payload, sealed by the client itself
    header = header_of(updates[0])
    content = first._channels[0].open(updates[0])
    zero.receive(updates[0])
    again = first._channels[0].seal(header, bytes(len(content)))
    refused(zero, again)


def test_answers_are_for_the_client_that_asked_and_can_be_had_again(make_round: Make) -> None:
    play = make_round()
    held = [np.array([1, 2]), np.array([2, 3])]
    answers = play.ask(held)
    again = [
        tuple(server.answer([client.client_id])[client.client_id] for server in play.servers) for client in play.clients
    ]
    assert again == answers
    client, (zero, one) = play.clients[0], answers[0]
    for bad in (
        answers[1],
        (one, zero),
        (zero, zero),
        (zero, answers[1][1]),
        (zero[:-1], one),
        (zero, one + b"\0"),
        (zero, one[:100] + bytes([one[100] ^ 4]) + one[101:]),
        (zero[:40] + answers[1][0][40:72] + zero[72:], one),
    ):
        with pytest.raises(TransportError):
            client.rows(bad)
    # none of them ends the session
    np.testing.assert_array_equal(client.rows((zero, one)), play.table[held[0]])


def test_round_is_closed_once_with_one_set_of_enough_clients(make_round: Make) -> None:
    play = make_round(min_clients=3)
    script = Script(play, [np.array([3]), np.array([4]), np.array([5]), np.array([6])], False)
    zero, one = play.servers
    late: list[tuple[int, bytes]] = []
    while script.underway:
        if script.underway[0][1][40:56] == play.clients[3].client_id and script.underway[0][1][1] != Kind.REQUEST:
            late.append(script.underway.pop(0))
        else:
            script.deliver(0)
    three = [client.client_id for client in play.clients[:3]]
    for bad, why in (
        (three[:2], "at least 3 distinct"),
        ([*three[:2], three[0]], "at least 3 distinct"),
        ([], "at least 3 distinct"),
        ([*three, play.clients[3].client_id], "no complete update of 1"),
        ([*three, b"nobody's id, 16b"], "no complete update of 1"),
    ):
        before = state(zero)
        with pytest.raises(TransportError, match=why):
            zero.close(bad)
        assert state(zero) == before
    partial = zero.close(three[::-1])
    assert zero.close(frozenset(three)) is partial
    assert zero.received == frozenset(three)
    with pytest.raises(TransportError, match="closed with other clients"):
        zero.close(three[:2])
    for party, message in late:
        if party == 0:
            with pytest.raises(TransportError, match="is closed"):
                zero.receive(message)
    with pytest.raises(TransportError, match="is closed"):
        zero.answer(three)
    with pytest.raises(TransportError, match="different clients"):
        combine(partial, with_other_clients(one.close(three)))


def with_other_clients(partial: Partial) -> Partial:
    return Partial(partial.party, partial.round, (*partial.accepted[:2], b"\xff" * 16), partial.rows, partial.dense)


def test_shares_of_different_sums_are_not_combined(make_round: Make, complete: Make) -> None:
    shares = []
    for number in (3, 4):
        play = make_round(number=number)
        script = Script(play, [np.array([3]), np.array([4])], False)
        while script.underway:
            script.deliver(0)
        accepted = play.servers[0].received
        shares.append([server.close(accepted) for server in play.servers])
    with pytest.raises(TransportError, match="different rounds"):
        combine(shares[0][0], shares[1][1])
    with pytest.raises(TransportError, match="both shares come from server 1"):
        combine(shares[0][1], shares[1][1])
    with pytest.raises(TransportError, match="belongs to round 3"):
        Partial.from_bytes(shares[0][0].to_bytes(), play.round)


def test_no_more_clients_than_the_overflow_bound_was_checked_for(make_round: Make) -> None:
    play = make_round(max_clients=2)
    for number in range(2):
        client = play.client(number)
        zero, _ = client.request(np.array([number]))
        play.servers[0].receive(zero)
    zero, _ = play.client(2).request(np.array([2]))
    refused(play.servers[0], zero)
    with pytest.raises(TransportError, match="has its 2 clients"):
        play.servers[0].receive(zero)


@pytest.mark.parametrize("again", [False, True], ids=["once", "right ones came before too"])
@pytest.mark.parametrize("kind", [Kind.FORWARD_REQUEST, Kind.FORWARD_UPDATE])
@pytest.mark.parametrize("place", [HEADER_BYTES, HEADER_BYTES + 100, 60], ids=["words", "more words", "nonce"])
def test_tampered_words_that_come_before_the_clients_message_give_way_to_it(
    place: int, kind: Kind, again: bool, make_round: Make
) -> None:
    play = make_round()
    script = Script(play, [np.array([3]), np.array([4]), np.array([5])], False)
    victim, own_kind = play.clients[0].client_id, Kind(kind - 2)
    _, one = play.servers
    attacked = False
    while script.underway:
        party, message = script.underway[0]
        if attacked or (party, message[1], message[40:56]) != (0, own_kind, victim):
            script.deliver(0)
            continue
        attacked = True
        script.deliver(0)
        _, forward = script.underway.pop()
        own = next(m for to, m in script.underway if to == 1 and m[40:56] == victim)
        script.underway = [(to, m) for to, m in script.underway if m[40:56] != victim]
        bad = forward[:place] + bytes([forward[place] ^ 1]) + forward[place + 1 :]
        if (kind, place) == (Kind.FORWARD_UPDATE, 60):  # of a session that is not the client's
            refused(one, bad)
        else:
            take(one, bad)
            if again:
                refused(one, forward)
        take(one, own)
        refused(one, bad)
        assert victim not in one._inbox.complete(own_kind)
        take(one, forward)
        script.serve()
    assert attacked
    assert victim in one.received
    script.close_and_compare()


def test_clients_that_came_to_server_one_alone_take_nobodys_place(make_round: Make) -> None:
    play = make_round(max_clients=2)
    zero, one = play.servers
    pairs = [play.client(number).request(np.array([number])) for number in range(4)]
    forwards = [zero.receive(pairs[number][0]) for number in (0, 1)]
    for number in (2, 3, 0, 1):
        one.receive(pairs[number][1])
    for forward in forwards:
        assert forward is not None
        one.receive_forward(forward)
    assert one.requests == {client.client_id for client in play.clients[:2]}
    refused(one, play.client(4).request(np.array([4]))[1])


def test_restart_with_the_same_messages_gives_the_same_share(make_round: Make) -> None:
    play = make_round()
    script = Script(play, [np.array([3, 8]), np.array([8, 60])], False)
    while script.underway:
        script.deliver(len(script.underway) // 2)
    again = tuple(Server(party, play.round, play.table, key) for party, key in enumerate(play.pair._private))
    for party, message in script.delivered:
        take(again[party], message)
    for before, after in zip(play.servers, again, strict=True):
        assert state(before) == state(after)
        accepted = before.received
        assert before.close(accepted).to_bytes() == after.close(accepted).to_bytes()


def test_local_pair_can_be_closed_again_after_a_failure(make_round: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    play = make_round()
    script = Script(play, [np.array([3, 8]), np.array([8, 60])], False)
    while script.underway:
        script.deliver(0)
    one = play.servers[1]
    with monkeypatch.context() as patched:
        patched.setattr(one._evaluator, "aggregate", lambda *_: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(MemoryError):
            play.pair.close()
    total = play.pair.close()
    assert total.clients == 2
    with pytest.raises(TransportError, match="no round is open"):
        play.pair.close()


@pytest.mark.parametrize("party", [0, 1])
def test_local_pair_leaves_out_whom_one_server_alone_has(party: int, make_round: Make) -> None:
    play = make_round(whole_keys=True)
    script = Script(play, [np.array([3, 8]), np.array([8, 60]), np.array([8])], True)
    last = play.clients[2].client_id
    while script.underway:
        to, message = script.underway[0]
        if (to, message[1], message[40:56]) == (1 - party, Kind.UPDATE, last):
            script.underway.pop(0)
        else:
            script.deliver(0)
    assert last in play.servers[party].received
    assert set(play.pair.close().accepted) == {client.client_id for client in play.clients[:2]}


def test_client_with_one_key_twice_or_a_wrong_identifier_is_refused(make_round: Make) -> None:
    play = make_round()
    key = X25519PrivateKey.generate().public_key().public_bytes_raw()
    with pytest.raises(TransportError, match="two servers"):
        Client(play.round, (key, key), bytes(16))
    with pytest.raises(TransportError, match="two servers"):
        Client(play.round, (*play.pair.keys, key), bytes(16))
    with pytest.raises(TransportError, match="16 bytes"):
        Client(play.round, play.pair.keys, bytes(15))


@pytest.mark.parametrize(
    ("items", "why"),
    [
        (np.arange(6), "at most 5 items"),
        (np.array([1, 1]), "distinct"),
        (np.array([-1]), "distinct and lie in 0 .. 60"),
        (np.array([61]), "distinct and lie in 0 .. 60"),
        (np.zeros((1, 1), np.int64), "at most 5 items"),
    ],
)
def test_items_that_cannot_be_asked_for_are_refused(items: np.ndarray, why: str, make_round: Make) -> None:
    with pytest.raises(TransportError, match=why):
        make_round().client().request(items)


def test_update_of_another_shape_or_type_is_refused_and_may_be_sent_right(make_round: Make) -> None:
    play = make_round()
    (answer,) = play.ask([np.array([3, 8])])
    client = play.clients[0]
    client.rows(answer)
    right = np.zeros((2, 4), np.int64), np.zeros(2, np.int64)
    for rows, dense in (
        (right[0][:1], right[1]),
        (right[0].astype(np.float64), right[1]),
        (right[0], right[1][:1]),
        (right[0], right[1].astype(np.int32)),
    ):
        with pytest.raises(TransportError, match="int64"):
            client.update(rows, dense)
    play.pair.update([client.update(*right)])


def test_two_rounds_of_one_pair_do_not_mix(make_round: Make) -> None:
    play = make_round()
    old = play.client().request(np.array([3]))
    assert isinstance(play.pair, LocalPair)
    later = make_round(number=4)
    play.pair.open(later.round, later.table)
    for server, message in zip(play.pair.servers, old, strict=True):
        refused(server, message)
