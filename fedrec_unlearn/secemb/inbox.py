"""What a server has of each client in a round: messages checked, opened and kept until they are complete."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.parameters import Round
from fedrec_unlearn.secemb.sealing import Channel, ephemeral_of, sealed_bytes
from fedrec_unlearn.secemb.wire import (
    HASH_BYTES,
    HEADER_BYTES,
    SEED_BYTES,
    Header,
    Kind,
    Replayed,
    check_round,
    content_bytes,
    header_of,
    unpack_corrections,
)

_FORWARDED = {Kind.FORWARD_REQUEST: Kind.REQUEST, Kind.FORWARD_UPDATE: Kind.UPDATE}
_FORWARDS = {kind: forward for forward, kind in _FORWARDED.items()}


@dataclass
class Entry:
    """One client's messages of a round. Its repr tells no content."""

    nonce: bytes
    channel: Channel | None = field(default=None, repr=False)
    seed: bytes = field(default=b"", repr=False)
    share: bytes = field(default=b"", repr=False)
    """Of the dense vector; server 1 alone has one."""
    public: dict[Kind, bytes] = field(default_factory=dict, repr=False)
    """Correction words by the kind of message they belong to."""
    expected: dict[Kind, bytes] = field(default_factory=dict, repr=False)
    """SHA-256 of correction words that server 0 is to forward."""
    seen: dict[Kind, bytes] = field(default_factory=dict, repr=False)
    """SHA-256 of each accepted message."""

    def complete(self, kind: Kind) -> bool:
        """Whether the message and its correction words are there."""
        return kind in self.seen and kind in self.public


class Inbox:
    """Takes a round's messages in; what is refused changes nothing.

    Checks come in this order: length, version, kind, round, server, then what was seen before, then the seal, then
    the contents. Nothing is allocated for a message before its length is known to be right.

    Args:
        party: 0 or 1.
        round_: what messages must belong to.
        private_key: of this server.
    """

    def __init__(self, party: int, round_: Round, private_key: X25519PrivateKey) -> None:
        self.party, self.round = party, round_
        self._private = private_key
        self.entries: dict[bytes, Entry] = {}

    def complete(self, kind: Kind) -> frozenset[bytes]:
        """Clients whose request (and, for UPDATE, update) is complete."""
        kinds = {Kind.REQUEST, kind}
        return frozenset(client for client, entry in self.entries.items() if all(map(entry.complete, kinds)))

    def receive(self, message: bytes) -> bytes | None:
        """Take a client's request or update.

        Returns:
            What server 0 forwards to server 1, or None.

        Raises:
            Replayed: exactly this message was taken before.
            TransportError: it is not a message for this server, round and client's state.
        """
        header = header_of(message)
        if header.kind not in (Kind.REQUEST, Kind.UPDATE):
            raise TransportError(f"secemb: a client does not send a {header.kind.name}")
        self._check(header, len(message), sealed_bytes)
        entry = self._entry(header)
        self._refuse_second(entry, header, message)
        if header.kind is Kind.REQUEST:
            channel = Channel.from_client(self._private, ephemeral_of(message))
        elif entry.channel is None:
            raise TransportError("secemb: an update came from a client whose request did not")
        else:
            channel = entry.channel
        content = channel.open(message)
        secret, content = (
            (content[:SEED_BYTES], content[SEED_BYTES:]) if header.kind is Kind.REQUEST else (b"", content)
        )
        whole = self.party == 0 or self.round.parameters.whole_keys
        size = self._public_bytes(header.kind) if whole else HASH_BYTES
        public, share = content[:size], content[size:]
        if whole:
            self._accept_public(entry, header.kind, public)
        else:
            if header.kind in entry.public and hashlib.sha256(entry.public[header.kind]).digest() != public:
                # what the client authenticated stands; the right words can still come
                del entry.public[header.kind], entry.seen[_FORWARDS[header.kind]]
            entry.expected[header.kind] = public
        if header.kind is Kind.REQUEST:
            entry.channel, entry.seed = channel, secret
        else:
            entry.share = share
        self._keep(entry, header, message)
        if self.party or self.round.parameters.whole_keys:
            return None
        forward = header._replace(kind=_FORWARDS[header.kind], party=1)
        return forward.to_bytes() + public

    def receive_forward(self, message: bytes) -> None:
        """Take correction words from server 0, before or after the client's own message.

        Raises:
            Replayed: exactly this message was taken before.
            TransportError: not for this server and round, or not the words whose hash the client sent.
        """
        header = header_of(message)
        if self.party == 0 or self.round.parameters.whole_keys or header.kind not in _FORWARDED:
            raise TransportError(f"secemb: server {self.party} takes no {header.kind.name} from another server here")
        self._check(header, len(message), lambda kind, content: HEADER_BYTES + content)
        entry = self._entry(header)
        self._refuse_second(entry, header, message)
        kind, public = _FORWARDED[header.kind], message[HEADER_BYTES:]
        if kind in entry.expected and hashlib.sha256(public).digest() != entry.expected[kind]:
            raise TransportError("secemb: the correction words server 0 forwarded are not those of the client")
        self._accept_public(entry, kind, public)
        self._keep(entry, header, message)

    def _check(self, header: Header, length: int, size_of: Callable[[Kind, int], int]) -> None:
        check_round(header, self.round, self.party)
        expected = size_of(header.kind, content_bytes(self.round.parameters, header.kind, self.party))
        if length != expected:
            raise TransportError(
                f"secemb: a {header.kind.name} for server {self.party} has {expected} bytes, not {length}"
            )

    def _entry(self, header: Header) -> Entry:
        """What is there of the client, or an empty entry that is kept only if the message is accepted."""
        entry = self.entries.get(header.client)
        if entry is not None and entry.channel is None and header.kind is Kind.REQUEST and entry.nonce != header.nonce:
            return Entry(header.nonce)  # words of another session were forwarded; the client's own message stands
        if entry is None:
            # those server 0 took and those that came to server 1 first need not be the same
            room = self.round.parameters.max_clients * (2 if self.party else 1)
            if len(self.entries) >= room:
                raise TransportError(
                    f"secemb: round {self.round.number} has its {self.round.parameters.max_clients} clients; "
                    "take part in the next one"
                )
            return Entry(header.nonce)
        if entry.nonce != header.nonce:
            raise TransportError("secemb: the client takes part in this round already, in another session")
        return entry

    def _refuse_second(self, entry: Entry, header: Header, message: bytes) -> None:
        before = entry.seen.get(header.kind)
        if before is None:
            return
        if before == hashlib.sha256(message).digest():
            raise Replayed(f"secemb: this {header.kind.name} was received before; it counts once")
        raise TransportError(f"secemb: the client sent another {header.kind.name} in this round; the first one counts")

    def _accept_public(self, entry: Entry, kind: Kind, public: bytes) -> None:
        if kind is Kind.REQUEST:
            unpack_corrections(public, self.round.parameters)  # refused now and not when the round is closed
        entry.public[kind] = public

    def _keep(self, entry: Entry, header: Header, message: bytes) -> None:
        entry.seen[header.kind] = hashlib.sha256(message).digest()
        self.entries[header.client] = entry

    def _public_bytes(self, kind: Kind) -> int:
        p = self.round.parameters
        return p.correction_bytes if kind is Kind.REQUEST else p.final_bytes
