"""A channel of its own from each client to each server, inside whatever carries the messages.

The client makes an X25519 key pair for the session; its public half travels in front of the request. Keys for
request, update and response follow from the shared secret by HKDF-SHA256 and are used once each, so the cipher's
nonce can be zero. Cipher: ChaCha20-Poly1305 with the message's header as associated data (round, client, nonce,
server, kind, version).

Guarantee: only the holder of a server's private key reads what is sealed to it, and only in the round, from the client
and as the kind of message it was sealed as. Who the client is must be told by the channel around it (TLS): sealing
is to a server, not from a person.
Servers' keys are long-lived, so there is no forward secrecy: who records messages and later steals *both* private keys
reads them. New keys for each run keep that short.

Source: RFC 7748 (X25519), RFC 5869 (HKDF), RFC 8439 (ChaCha20-Poly1305); the pattern is that of RFC 9180.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.secemb.wire import HEADER_BYTES, Header, Kind, header_of

PUBLIC_BYTES = 32
TAG_BYTES = 16
_NONCE = bytes(12)


class Channel:
    """Both directions between one client and one server in one round.

    Args:
        shared: the X25519 secret.
        ephemeral, server: public keys, 32 bytes each.
    """

    def __init__(self, shared: bytes, ephemeral: bytes, server: bytes) -> None:
        self._shared, self.ephemeral, self._server = shared, ephemeral, server

    @classmethod
    def to_server(cls, server: bytes) -> Channel:
        """The client's end, with a fresh key pair.

        Raises:
            TransportError: not a public key.
        """
        private = X25519PrivateKey.generate()
        return cls(_exchange(private, server), private.public_key().public_bytes_raw(), server)

    @classmethod
    def from_client(cls, private: X25519PrivateKey, ephemeral: bytes) -> Channel:
        """The server's end.

        Raises:
            TransportError: not a public key.
        """
        return cls(_exchange(private, ephemeral), ephemeral, private.public_key().public_bytes_raw())

    def seal(self, header: Header, content: bytes) -> bytes:
        """A whole message: header, for a request the ephemeral key, sealed content."""
        front = header.to_bytes()
        sealed = self._cipher(header).encrypt(_NONCE, content, front)
        return front + (self.ephemeral if header.kind is Kind.REQUEST else b"") + sealed

    def open(self, message: bytes) -> bytes:
        """The content of a message.

        Raises:
            TransportError: it was not sealed for this server, client, round and kind, or was changed.
        """
        header = header_of(message)
        start = HEADER_BYTES + (PUBLIC_BYTES if header.kind is Kind.REQUEST else 0)
        try:
            return self._cipher(header).decrypt(_NONCE, message[start:], message[:HEADER_BYTES])
        except InvalidTag:
            raise TransportError(
                f"secemb: a {header.kind.name} was not sealed for this server, client and round, "
                "or was changed on its way"
            ) from None

    def _cipher(self, header: Header) -> ChaCha20Poly1305:
        bound = self.ephemeral + self._server + header.to_bytes()
        return ChaCha20Poly1305(HKDF(SHA256(), 32, None, b"fedrec secemb seal\0" + bound).derive(self._shared))

    def __repr__(self) -> str:
        return "Channel(...)"


def ephemeral_of(message: bytes) -> bytes:
    """The ephemeral key in front of a request's sealed content."""
    return message[HEADER_BYTES : HEADER_BYTES + PUBLIC_BYTES]


def sealed_bytes(kind: Kind, content: int) -> int:
    """Bytes of a whole sealed message for `content` bytes in the clear."""
    return HEADER_BYTES + (PUBLIC_BYTES if kind is Kind.REQUEST else 0) + content + TAG_BYTES


def _exchange(private: X25519PrivateKey, public: bytes) -> bytes:
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise TransportError("secemb: a public key is not one of X25519") from None
