"""Who is let in: certificates, versions of TLS, names, keys."""

from __future__ import annotations

import shutil
import ssl

import pytest

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.serving.certificates import make_certificates
from fedrec_unlearn.serving.identity import client_context, server_context
from fedrec_unlearn.serving.link import Link
from fedrec_unlearn.serving.remote import RemotePair
from fedrec_unlearn.serving.run import Settings, start

httpx = pytest.importorskip("httpx")


def test_server_1_can_call_nobody(start_pair, call):
    zero, _ = start_pair()
    with pytest.raises(httpx.TransportError):
        call("server-1", "GET", f"{zero.url}/health")


def test_no_certificate_or_one_of_another_authority_is_refused(certs, start_pair, tmp_path):
    zero, _ = start_pair()
    foreign = make_certificates(tmp_path / "foreign")
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_verify_locations(certs / "ca.pem")
    with httpx.Client(verify=bare, trust_env=False) as http, pytest.raises(httpx.TransportError):
        http.get(f"{zero.url}/health")
    with (
        Link(0, zero.url, foreign, "client", connections=1, patience=10) as link,
        pytest.raises(TransportError, match=r"server 0 at .* is not who it should be: .*use the certificates it was"),
    ):
        link.get("/health")
    # a stranger that trusts the server is turned away by the server
    (foreign / "ca.pem").write_bytes((certs / "ca.pem").read_bytes())
    with (
        Link(0, zero.url, foreign, "client", connections=1, patience=0.5) as link,
        pytest.raises(TransportError, match="certificate"),
    ):
        link.get("/health")


def test_nothing_older_than_tls_1_3_is_spoken(certs, start_pair):
    zero, _ = start_pair()
    assert server_context(certs, 0).minimum_version == ssl.TLSVersion.TLSv1_3
    context = client_context(certs, "client")
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    with httpx.Client(verify=context, trust_env=False) as http:
        assert http.get(f"{zero.url}/health").status_code == 200
    context = client_context(certs, "client")
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    with httpx.Client(verify=context, trust_env=False) as http, pytest.raises(httpx.ConnectError):
        http.get(f"{zero.url}/health")


def test_a_name_that_is_not_in_the_certificate_is_refused(tmp_path):
    certs = make_certificates(tmp_path / "set", ["server1.example.org"])
    with (
        start(1, Settings(certs, tmp_path / "spool")) as one,
        Link(1, one.url, certs, "client", connections=1, patience=10) as link,
        pytest.raises(TransportError, match=r"IP address mismatch.*an address that is in its certificate"),
    ):
        link.get("/health")


def test_exchanged_addresses_and_foreign_keys_are_told(certs, start_pair, new_trial, tmp_path):
    zero, one = start_pair()
    trial = new_trial(2)
    with (
        RemotePair((one.url, zero.url), certs, patience=10) as pair,
        pytest.raises(TransportError, match="is server 1, not 0; exchange the two addresses"),
    ):
        pair.open(trial.round, trial.table)
    shutil.copytree(certs, tmp_path / "set")
    (tmp_path / "set" / "sealing-1.pub").write_bytes(bytes(32))
    with (
        RemotePair((zero.url, one.url), tmp_path / "set", patience=10) as pair,
        pytest.raises(TransportError, match=r"server 1 at .* has another sealing key"),
    ):
        pair.open(trial.round, trial.table)
