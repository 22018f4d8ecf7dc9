"""Train through two servers that are processes of their own, restart one of them on the way, and compare the result.

    python examples/06_two_servers.py
    python examples/06_two_servers.py --data ml-100k --rounds 20

Both servers run on this machine, over HTTPS with certificates made for the occasion. Neither learns which items a
client holds or what it learnt from them. The state afterwards is, to the last bit, that of a run in the clear.
Needs `pip install 'fedrec-unlearn[serve]'`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file

import fedrec_unlearn as fedrec


class Server:
    """One `fedrec serve` and how to start it again at the same address."""

    def __init__(self, party: int, folder: Path, *options: str) -> None:
        paths = ("--certs", str(folder / "certs"), "--spool", str(folder / f"spool-{party}"))
        self.command = [
            sys.executable,
            "-m",
            "fedrec_unlearn",
            "serve",
            "--quiet",
            "--party",
            str(party),
            *paths,
            *options,
        ]
        self.process, self.url = self.start("0")

    def start(self, port: str) -> tuple[subprocess.Popen[str], str]:
        """The running server and its address."""
        process = subprocess.Popen([*self.command, "--port", port], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()  # "party 0 listens on https://127.0.0.1:40123"
        if "https://" not in line:
            raise SystemExit(f"a server did not start: {line or 'see above'}")
        return process, line.split()[-1]

    def restart(self) -> None:
        """As after a power cut: killed without a word, started again with what it had written down."""
        self.stop(signal.SIGKILL)
        self.process, _ = self.start(self.url.rpartition(":")[2])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal and wait for the end."""
        self.process.send_signal(how)
        self.process.wait(timeout=30)


class RestartHalfWay(fedrec.SilentProgress):
    """Restarts a server when half of the rounds are done, and training goes on."""

    def __init__(self, server: Server, at: int) -> None:
        self.server, self.at = server, at

    def advance(self, step: int, fields: Mapping[str, float | str]) -> None:
        """Called after every round."""
        if step == self.at:
            print(f"round {step}: server 0 is killed and started again")
            self.server.restart()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synthetic", help="data set (default: synthetic)")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of 32 clients (default: 6)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as servers:
        folder = Path(name)
        subprocess.run(
            [sys.executable, "-m", "fedrec_unlearn", "certs", "-q", "-o", str(folder / "certs")],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        one = Server(1, folder)
        servers.callback(one.stop)
        zero = Server(0, folder, "--peer", one.url)
        servers.callback(zero.stop)
        print(f"server 0 at {zero.url}, server 1 at {one.url}")
        shared = {
            "data.name": args.data,
            "federation.rounds": args.rounds,
            "federation.clients_per_round": 32,
            "federation.max_items": 60,
            "federation.ring": True,
            "evaluation.every": 0,
        }
        hidden = {
            "federation.transport": "secemb",
            "secemb.servers": [zero.url, one.url],
            "secemb.certificates": str(folder / "certs"),
        }
        clear = fedrec.train(fedrec.load_config(None, {**shared, "output": str(folder / "clear")}))
        config = fedrec.load_config(None, {**shared, **hidden, "output": str(folder / "hidden")})
        run = fedrec.train(config, progress=RestartHalfWay(zero, args.rounds // 2))
        states = [load_file(path / "latest.safetensors") for path in (clear, run)]
        same = all(torch.equal(value, states[1][tensor]) for tensor, value in states[0].items())
        print("the item table and all private rows are", "equal to the last bit" if same else "DIFFERENT")
        for path in (clear, run):
            event = json.loads((path / "events.jsonl").read_text().splitlines()[0])
            print(f"{path.name:6} {event['bytes_up'] / event['clients']:10,.0f} bytes up per client and round")


if __name__ == "__main__":
    main()
