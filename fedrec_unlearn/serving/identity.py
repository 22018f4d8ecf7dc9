"""Who is who: roles in certificates, TLS contexts that demand them, and the servers' sealing keys.

A set of certificates is a folder: ``ca.pem`` and ``sealing-0.pub``, ``sealing-1.pub`` for everybody, and one folder
per role, of which each holder has only its own.

Guarantee: TLS 1.3 only, both ends present a certificate of the set's authority, and what a peer may ask for follows
from the role in its certificate. Whoever holds a client certificate may send under any client id; where clients are
not trusted with that, the authority must be put behind something that knows who is who.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrec_unlearn.errors import ConfigError

SERVERS = ("server-0", "server-1")
COORDINATOR = "coordinator"
CLIENT = "client"
ROLES = (*SERVERS, COORDINATOR, CLIENT)
"""What a certificate's organizationalUnit may be; also the names of the folders."""

AUTHORITY = "ca.pem"
CERTIFICATE = "cert.pem"
KEY = "key.pem"
SEALING_KEY = "sealing.key"


def sealing_public_name(party: int) -> str:
    """Name of the file with a server's public sealing key."""
    return f"sealing-{party}.pub"


def role_of(certificate: Mapping[str, Any] | None) -> str | None:
    """The role a peer's certificate speaks of.

    Args:
        certificate: as `ssl.SSLSocket.getpeercert` gives it.

    Returns:
        One of `ROLES`; None where there is no certificate, no such unit, or more than one.
    """
    if not certificate:
        return None
    units = [
        value for names in certificate.get("subject", ()) for kind, value in names if kind == "organizationalUnitName"
    ]
    return units[0] if len(units) == 1 and units[0] in ROLES else None


def server_context(certs: Path, party: int) -> ssl.SSLContext:
    """TLS for a server: a client without a certificate of the set is refused.

    Raises:
        ConfigError: a file is missing, unreadable, readable by others, or does not fit.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # each connection shows its certificate anew
    return _loaded(context, certs, SERVERS[party])


def client_context(certs: Path, role: str) -> ssl.SSLContext:
    """TLS for whoever calls a server in a role; the server must have a certificate of the set with its host's name.

    Raises:
        ConfigError: as `server_context`.
    """
    return _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certs, role)


def sealing_key(certs: Path, party: int) -> X25519PrivateKey:
    """A server's private sealing key.

    Raises:
        ConfigError: as `server_context`, or not 32 bytes, or not the private half of the key clients are given.
    """
    path = _private(certs / SERVERS[party] / SEALING_KEY)
    content = path.read_bytes()
    if len(content) != 32:
        raise ConfigError(f"{path} has {len(content)} bytes, an X25519 key 32; make a new set with fedrec certs")
    key = X25519PrivateKey.from_private_bytes(content)
    if key.public_key().public_bytes_raw() != sealing_public_key(certs, party):
        raise ConfigError(f"{path} and {certs / sealing_public_name(party)} are not a pair; take both from one set")
    return key


def sealing_public_key(certs: Path, party: int) -> bytes:
    """The public key a message to a server is sealed for, 32 bytes.

    Raises:
        ConfigError: the file is missing, unreadable or of another length.
    """
    path = _readable(certs / sealing_public_name(party))
    content = path.read_bytes()
    if len(content) != 32:
        raise ConfigError(f"{path} has {len(content)} bytes, an X25519 key 32; make a new set with fedrec certs")
    return content


def _loaded(context: ssl.SSLContext, certs: Path, role: str) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    authority = _readable(certs / AUTHORITY)
    certificate, key = _readable(certs / role / CERTIFICATE), _private(certs / role / KEY)
    try:
        context.load_verify_locations(authority)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"{authority} is no certificate in PEM format; make a new set with fedrec certs") from error
    try:
        # an encrypted key must not ask on the terminal of a server
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"{certificate} and {key} are not a certificate and its unencrypted key; make a new set with fedrec certs"
        ) from error
    return context


def _readable(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError(f"no file {path}; name a folder that fedrec certs wrote")
    if not os.access(path, os.R_OK):
        raise ConfigError(f"{path} cannot be read by this user; change its owner or run as that user")
    return path


def _private(path: Path) -> Path:
    _readable(path)
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"{path} is a private key that other users may read; run chmod 600 {path}")
    return path
