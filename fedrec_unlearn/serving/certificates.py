"""Certificates and sealing keys for tests and trials: one authority, two servers, a coordinator and a client.

The authority's private key is thrown away once it has signed, so nothing can be added to a set; make a new one.
In production an organisation's own authority issues the certificates and each server makes its own sealing key:
whoever holds both servers' keys can read everything, which is what the two servers are there to prevent.
"""

from __future__ import annotations

import datetime
import ipaddress
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.serving.identity import AUTHORITY, CERTIFICATE, KEY, ROLES, SEALING_KEY, sealing_public_name
from fedrec_unlearn.serving.private_files import sync_folder, write_private

_SKEW = datetime.timedelta(minutes=10)
"""How far back a certificate's life begins, for clocks that are behind."""


def make_certificates(folder: Path, hosts: Sequence[str] = ("localhost", "127.0.0.1"), days: int = 30) -> Path:
    """Make a set of certificates and keys, the whole set or nothing.

    In the folder lie ``ca.pem`` and both servers' public sealing keys (``sealing-0.pub``, ``sealing-1.pub``), which
    everybody gets, and one folder per role with ``cert.pem`` and ``key.pem`` (EC P-256) and, for a server,
    ``sealing.key`` (X25519, 32 raw bytes), which only the holder of the role gets. All files have mode 0600. The role
    is the subject's organizationalUnit.

    Args:
        folder: must not exist or be empty.
        hosts: names and addresses both servers may be reached by.
        days: life of the certificates.

    Returns:
        The folder.

    Raises:
        ConfigError: the folder holds something, no host, or a life outside 1 .. 825 days.
        OSError: it cannot be written.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not an empty folder; nothing is overwritten, name a new one")
    if not 1 <= days <= 825:
        raise ConfigError(f"certificates live 1 to 825 days, not {days}")
    names = [_host(host) for host in hosts]
    if not names:
        raise ConfigError("no host; give the names or addresses under which the servers are reached")
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for name, content in _contents(names, datetime.timedelta(days=days)).items():
            (beside / name).parent.mkdir(mode=0o700, exist_ok=True)
            write_private(beside / name, content)
        beside.rename(folder)  # an empty folder there is replaced, one with contents is not
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    sync_folder(folder.parent)
    return folder


def _contents(names: list[x509.GeneralName], life: datetime.timedelta) -> dict[str, bytes]:
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority(authority_key, life)
    contents = {AUTHORITY: authority.public_bytes(serialization.Encoding.PEM)}
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(role, key, names, authority, authority_key)
        contents[f"{role}/{CERTIFICATE}"] = certificate.public_bytes(serialization.Encoding.PEM)
        contents[f"{role}/{KEY}"] = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    for party in (0, 1):
        sealing = X25519PrivateKey.generate()
        contents[f"{ROLES[party]}/{SEALING_KEY}"] = sealing.private_bytes_raw()
        contents[sealing_public_name(party)] = sealing.public_key().public_bytes_raw()
    return contents


def _authority(key: ec.EllipticCurvePrivateKey, life: datetime.timedelta) -> x509.Certificate:
    name = _name("authority", "fedrec trial authority")
    return (
        _builder(name, name, key, life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _certificate(
    role: str,
    key: ec.EllipticCurvePrivateKey,
    names: list[x509.GeneralName],
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    serves = role in ROLES[:2]
    # server 0 is a client where it forwards to server 1; server 1 calls nobody
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH] if serves else []
    purposes += [] if role == ROLES[1] else [ExtendedKeyUsageOID.CLIENT_AUTH]
    life = authority.not_valid_after_utc - authority.not_valid_before_utc - _SKEW
    builder = (
        _builder(_name(role, f"fedrec {role}"), authority.subject, key, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
    )
    if serves:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, life: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(role: str, common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "fedrec trial"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    labels = text.split(".")
    if not text.isascii() or not all(label and label.replace("-", "").replace("*", "").isalnum() for label in labels):
        raise ConfigError(f"host {text!r} is neither a name nor an address; write for example server0.example.org")
    return x509.DNSName(text)
