"""The set of certificates for tests and trials, judged by another implementation of path validation."""

from __future__ import annotations

import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from fedrec_unlearn.cli import main
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.serving.certificates import make_certificates
from fedrec_unlearn.serving.identity import ROLES, client_context, role_of, sealing_key, server_context


def _loaded(certs, role):
    return x509.load_pem_x509_certificate((certs / role / "cert.pem").read_bytes())


def _policy(certs):
    return PolicyBuilder().store(Store([x509.load_pem_x509_certificate((certs / "ca.pem").read_bytes())]))


@pytest.mark.parametrize(("role", "serves", "calls"), [*zip(ROLES, [1, 1, 0, 0], [1, 0, 1, 1], strict=True)])
def test_a_role_has_the_purposes_it_needs_and_no_other(certs, role, serves, calls):
    certificate = _loaded(certs, role)
    server = _policy(certs).build_server_verifier(x509.DNSName("localhost"))
    client = _policy(certs).build_client_verifier()
    if serves:
        assert server.verify(certificate, [])
    else:
        with pytest.raises(VerificationError):
            server.verify(certificate, [])
    if calls and serves:
        assert client.verify(certificate, [])
    elif not calls:
        with pytest.raises(VerificationError):
            client.verify(certificate, [])
    units = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    assert [unit.value for unit in units] == [role]


def test_a_certificate_is_for_its_hosts_alone(certs):
    with pytest.raises(VerificationError):
        _policy(certs).build_server_verifier(x509.DNSName("example.org")).verify(_loaded(certs, "server-0"), [])


@pytest.mark.parametrize("role", ROLES)
def test_certificate_and_key_belong_together_and_are_p256(certs, role):
    key = load_pem_private_key((certs / role / "key.pem").read_bytes(), None)
    assert isinstance(key.curve, ec.SECP256R1)
    assert key.public_key() == _loaded(certs, role).public_key()


@pytest.mark.parametrize("party", [0, 1])
def test_clients_get_the_public_half_of_each_sealing_key(certs, party):
    private = X25519PrivateKey.from_private_bytes((certs / ROLES[party] / "sealing.key").read_bytes())
    assert private.public_key().public_bytes_raw() == (certs / f"sealing-{party}.pub").read_bytes()
    assert sealing_key(certs, party).private_bytes_raw() == private.private_bytes_raw()


def test_files_are_for_their_owner_alone_and_the_authority_keeps_no_key(certs):
    files = [path for path in certs.rglob("*") if path.is_file()]
    assert len(files) == 3 + 2 * len(ROLES) + 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    authority = x509.load_pem_x509_certificate((certs / "ca.pem").read_bytes()).public_key()
    keys = [load_pem_private_key(path.read_bytes(), None) for path in files if path.name == "key.pem"]
    assert authority not in [key.public_key() for key in keys]


def test_nothing_is_overwritten(tmp_path):
    make_certificates(tmp_path / "set")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="nothing is overwritten"):
        make_certificates(tmp_path / "set")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(("hosts", "days"), [(["a b"], 30), ([], 30), (["localhost"], 0), (["localhost"], 10_000)])
def test_what_cannot_be_made_leaves_nothing(tmp_path, hosts, days):
    with pytest.raises(ConfigError):
        make_certificates(tmp_path / "set", hosts, days)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_half_way_leaves_nothing(tmp_path, monkeypatch):
    from fedrec_unlearn.serving import certificates

    def fails(path, content):
        if path.name == "key.pem":
            raise OSError(28, "No space left on device")
        path.write_bytes(content)

    monkeypatch.setattr(certificates, "write_private", fails)
    with pytest.raises(OSError, match="No space"):
        make_certificates(tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_others_may_read_is_refused(tmp_path):
    certs = make_certificates(tmp_path / "set")
    (certs / "server-0" / "key.pem").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        server_context(certs, 0)
    (certs / "server-1" / "sealing.key").chmod(0o604)
    with pytest.raises(ConfigError, match="chmod 600"):
        sealing_key(certs, 1)


def test_files_of_two_sets_do_not_go_together(tmp_path):
    first, second = make_certificates(tmp_path / "a"), make_certificates(tmp_path / "b")
    (first / "client" / "key.pem").write_bytes((second / "client" / "key.pem").read_bytes())
    with pytest.raises(ConfigError, match="not a certificate and its unencrypted key"):
        client_context(first, "client")
    (first / "sealing-0.pub").write_bytes((second / "sealing-0.pub").read_bytes())
    with pytest.raises(ConfigError, match="not a pair"):
        sealing_key(first, 0)


def test_a_missing_file_is_named(certs, tmp_path):
    with pytest.raises(ConfigError, match=r"no file .*ca\.pem; name a folder that fedrec certs wrote"):
        client_context(tmp_path, "client")


@pytest.mark.parametrize(
    "subject",
    [
        (),
        ((("organizationalUnitName", "administrator"),),),
        ((("commonName", "client"),),),
        ((("organizationalUnitName", "client"),), (("organizationalUnitName", "coordinator"),)),
    ],
)
def test_a_certificate_without_exactly_one_known_unit_has_no_role(subject):
    assert role_of({"subject": subject}) is None
    assert role_of(None) is None


def test_the_verb_makes_a_set_and_tells_the_next_step(tmp_path, capsys):
    assert main(["certs", "-o", str(tmp_path / "set"), "--hosts", "server.example.org,::1", "--days", "2"]) == 0
    assert "fedrec serve --party 1" in capsys.readouterr().out
    names = _loaded(tmp_path / "set", "server-1").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["server.example.org"]
    life = _loaded(tmp_path / "set", "client")
    assert (life.not_valid_after_utc - life.not_valid_before_utc).days == 2


def test_the_verb_refuses_what_is_no_number(tmp_path, capsys):
    assert main(["certs", "-o", str(tmp_path / "set"), "--days", "many"]) == 2
    assert "--days takes a number of days, not 'many'" in capsys.readouterr().err
