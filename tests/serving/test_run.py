"""What keeps a server from starting is told before it listens, with what to do."""

from __future__ import annotations

import socket

import pytest

from fedrec_unlearn.cli import main
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.serving import extra
from fedrec_unlearn.serving.run import Settings, serve, start

PEER = "https://localhost:8441"


@pytest.fixture(autouse=True)
def _extra():
    for name in ("httpx", "starlette", "uvicorn"):
        pytest.importorskip(name)


@pytest.fixture
def refused(certs, tmp_path):
    """Why a server does not start."""

    def why(party=1, **changes):
        settings = {"certs": certs, "spool": tmp_path / "spool"} | changes
        with pytest.raises(ConfigError) as caught:
            serve(party, Settings(**settings))
        return str(caught.value)

    return why


def test_a_port_in_use_is_told(refused):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        told = refused(port=port)
    assert f"cannot listen on 127.0.0.1 port {port}" in told
    assert "another program listens there" in told


@pytest.mark.parametrize(
    ("party", "changes", "told"),
    [
        (0, {}, "its address must be https://host:port, not None"),
        (0, {"peer": "http://localhost:1"}, "its address must be https://host:port, not http://localhost:1"),
        (1, {"peer": PEER}, "party 1 calls nobody"),
        (2, {}, "party 0 and party 1, not 2"),
        (1, {"port": 70000}, "a port lies in 0 .. 65535, not at 70000"),
        (1, {"host": "no such host"}, "host 'no such host' is not known"),
        (1, {"host": "192.0.2.1"}, "take a host of this machine"),
    ],
)
def test_settings_that_do_not_go_together_are_told(refused, party, changes, told):
    assert told in refused(party, **changes)


def test_a_spool_in_use_or_of_the_other_party_is_told(certs, refused, tmp_path):
    with start(1, Settings(certs, tmp_path / "spool")):
        assert "is in use by another process" in refused(1)
    assert "belongs to party 1, not to 0" in refused(0, peer=PEER)


def test_a_spool_that_cannot_be_made_is_told(refused, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be used: Not a directory" in refused(spool=tmp_path / "file" / "spool")
    assert "is a file; name a folder" in refused(spool=tmp_path / "file")


def test_a_refused_start_leaves_port_and_spool_free(certs, refused, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused(port=port)
    with start(1, Settings(certs, tmp_path / "spool", port=port)) as server:
        assert server.url == f"https://127.0.0.1:{port}"


def test_a_missing_extra_is_told_with_the_command_that_installs_it(certs, tmp_path, monkeypatch, capsys):
    real = extra.import_module

    def missing(name):
        if name == "uvicorn":
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(extra, "import_module", missing)
    words = ["serve", "--party", "1", "--certs", str(certs), "--spool", str(tmp_path / "spool")]
    assert main(words) == 8
    assert "needs uvicorn, which is not installed; run pip install 'fedrec-unlearn[serve]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--party", "1"], "the following arguments are required: --certs, --spool"),
        (["--party", "2", "--certs", "c", "--spool", "s"], "invalid choice: '2'"),
        (["--party", "1", "--certs", "c", "--spool", "s", "--port", "https"], "--port takes a number, not 'https'"),
        (["--party", "1", "--certs", "nowhere", "--spool", "s"], "no file nowhere/ca.pem"),
    ],
)
def test_the_verb_tells_mistakes(words, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["serve", *words]) == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
