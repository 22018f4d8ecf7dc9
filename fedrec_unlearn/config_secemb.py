"""The options of the two-server transport; a section of `fedrec_unlearn.config`, in a file of its own for its length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedrec_unlearn.config_check import need


@dataclass(frozen=True)
class SecEmbConfig:
    """How item rows and updates travel through the two servers of `federation.transport: secemb`."""

    encoding: Literal["binned", "paper"] = "binned"
    """binned: one small tree per bin of a public batch code; paper: one tree over the whole catalogue per item, as published (about a hundred times the servers' work)."""
    ring_bits: int = 32
    """Item rows travel as numbers modulo 2 to this power (32 or 64), with federation.ring_fraction_bits binary digits after the point."""
    clip: float = 0.0
    """Largest absolute value of a number in a client's weighted item update; larger ones are saturated and counted (0: the most that cannot overflow with the round's clients)."""
    whole_keys: bool = False
    """Send correction words to both servers. Off: to server 0, which forwards them, which halves a client's upload."""
    min_clients: int = 2
    """Clients without whom a round is not opened. The sum over one client is that client."""
    execution: Literal["protocol", "counted"] = "protocol"
    """protocol: every share is made, sent and added up; counted: the sums, which are the same bits, are added directly and the bytes counted, for long runs."""
    servers: tuple[str, ...] = ()
    """URLs of server 0 and server 1 (fedrec serve), both or none. Unset: both servers in this process."""
    certificates: str | None = None
    """Folder with the certificates to talk to the servers with (fedrec certs)."""
    noise_multiplier: float = 0.0
    """Standard deviation of the discrete Gaussian noise each server adds to every number of the sum, in multiples of clip_norm (0: none)."""
    clip_norm: float = 0.0
    """With noise: largest L2 norm of a client's whole weighted update, item rows and dense parameters together; a larger one is scaled down."""
    delta: float = 1e-5
    """With noise: the δ for which ε is reported."""

    def __post_init__(self) -> None:
        need(self.ring_bits in (32, 64), "secemb.ring_bits", f"must be 32 or 64, not {self.ring_bits}")
        need(self.clip >= 0, "secemb.clip", "must be 0 (automatic) or more")
        need(self.min_clients >= 1, "secemb.min_clients", "must be at least 1")
        need(len(self.servers) in (0, 2), "secemb.servers", f"must be two URLs or none, not {len(self.servers)}")
        need(
            all(url.startswith("https://") for url in self.servers),
            "secemb.servers",
            "must begin with https://; shares are not sent over connections that anyone can read",
        )
        need(
            not self.servers or bool(self.certificates),
            "secemb.certificates",
            "must name a folder when servers are set",
        )
        need(
            not self.servers or self.execution == "protocol",
            "secemb.execution",
            "must be protocol when servers are set: counted sums never leave this process",
        )
        need(self.noise_multiplier >= 0, "secemb.noise_multiplier", "must be 0 (none) or more")
        need(self.clip_norm >= 0, "secemb.clip_norm", "must be 0 or more")
        need(
            self.noise_multiplier == 0 or self.clip_norm > 0,
            "secemb.clip_norm",
            "must be positive when noise_multiplier is: without a bound on what a client adds, noise promises nothing",
        )
        need(0 < self.delta < 1, "secemb.delta", "must lie between 0 and 1")
