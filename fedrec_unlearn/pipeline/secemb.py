"""The transport `secemb` in training: a round's clients talk to two servers, wherever those are.

Here numbers change hands: tensors of the federation on one side, integers of `fedrec_unlearn.secemb` on the other.
What travels is fixed point both ways, so the sums are those of ring mode under any other transport, bit for bit.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedrec_unlearn.config import Config
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.exchange import Exchange
from fedrec_unlearn.federation.state import ServerState
from fedrec_unlearn.pipeline.secemb_rounds import CountedRound, ProtocolRound
from fedrec_unlearn.privacy.accounting import PrivacySpent, ring_sigma, spent
from fedrec_unlearn.privacy.clipping import ring_limit
from fedrec_unlearn.privacy.schedule import Neighbours, Sampling, Schedule
from fedrec_unlearn.secemb.local import LocalPair
from fedrec_unlearn.secemb.pair import Pair
from fedrec_unlearn.secemb.parameters import Parameters

_CODE_SEED = 0
"""Of the public permutations: one constant for everybody, so that no run's choice can depend on its data."""


@dataclass
class SecEmbTransport:
    """Opens a round on both servers; see `ExchangeTransport`.

    Args:
        config: section `secemb`, fixed point and weighting.
        max_items: m', rows a client may touch in a round.
    """

    config: Config
    max_items: int
    name: str = "secemb"
    _pair: Pair | None = None
    run: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    """Tells this process's rounds from those of any other, also of the same run before it was resumed."""

    @property
    def pair(self) -> Pair:
        """The servers, reached when they are first needed."""
        if self._pair is None:
            self._pair = _reach(self.config)
        return self._pair

    def parameters(self, server: ServerState, empty: Contribution, n_clients: int) -> Parameters:
        """A round's public parameters.

        Raises:
            TransportError: the sum of so many clients could leave the ring.
        """
        options, bits = self.config.secemb, self.config.federation.ring_fraction_bits
        width = server.items.shape[1]
        noise = (
            ring_sigma(options.noise_multiplier, ring_limit(options.clip_norm, bits))
            if options.noise_multiplier
            else 0.0
        )
        limit = int(options.clip * 2.0**bits)
        if limit == 0:
            spread = 16 * int(np.ceil(noise))
            limit = min(((1 << (options.ring_bits - 1)) - 1 - spread) // max(n_clients, 1), 1 << 42)
            if limit < 1:
                raise ConfigError(
                    f"secemb: noise of standard deviation {noise:.3g} leaves no room in a ring of {options.ring_bits} "
                    "bits; lower noise_multiplier, clip_norm or federation.ring_fraction_bits, or set secemb.ring_bits "
                    "to 64"
                )
        dense = sum(value.numel() for value in empty.dense.values()) + empty.term.flat.numel() + len(empty.term_sums)
        dense += noise == 0  # the clients' weight; with noise it is 1 each
        return Parameters(
            n_items=len(server.items),
            width=width,
            payload=width + (empty.row_weight is not None),
            dense=dense,
            max_items=self.max_items,
            limit=limit,
            max_clients=n_clients,
            min_clients=min(options.min_clients, n_clients),
            encoding=options.encoding,
            ring_bits=64 if options.ring_bits == 64 else 32,
            code_seed=_CODE_SEED,
            whole_keys=options.whole_keys,
            noise=noise,
        )

    def check(self, server: ServerState, empty: Contribution, n_clients: int) -> None:
        """See `ExchangeTransport.check`.

        Raises:
            ConfigError: fewer clients in a round than secemb.min_clients, noise where nothing draws it, or certificates
                that are not there.
            TransportError: sums of so many clients could leave the ring.
        """
        options = self.config.secemb
        if n_clients < options.min_clients:
            raise ConfigError(
                f"secemb.min_clients is {options.min_clients}, and a round has {n_clients} clients; "
                "raise federation.clients_per_round, or lower it if a sum over so few may be seen"
            )
        if options.noise_multiplier and options.execution == "counted":
            raise ConfigError("secemb.execution: counted adds no noise; set it to protocol, or noise_multiplier to 0")
        self.parameters(server, empty, n_clients)
        if options.servers and self._pair is None:
            self._pair = _reach(self.config)  # reads certificates; sends nothing

    def open(self, server: ServerState, round_number: int, empty: Contribution, n_clients: int) -> Exchange:
        """See `ExchangeTransport.open`.

        Raises:
            ConfigError: as `check`.
            TransportError: as `check`; or the table does not fit the ring, or a server cannot be reached.
        """
        self.check(server, empty, n_clients)
        parameters = self.parameters(server, empty, n_clients)
        if self.config.secemb.execution == "counted":
            return CountedRound(self.config, server, parameters, self.run, round_number)
        return ProtocolRound(self.pair, self.config, server, parameters, self.run, round_number)


def privacy_spent(config: Config, clients: int) -> PrivacySpent | None:
    """What all rounds of a run spend, or None without noise.

    No amplification by sampling is claimed: the servers see who takes part.

    Args:
        config: of the run.
        clients: users that can take part.

    Raises:
        DependencyError: dp-accounting is not installed.
    """
    options, federation = config.secemb, config.federation
    if federation.transport != "secemb" or not options.noise_multiplier:
        return None
    sampling = Sampling.PERMUTATION if federation.client_sampling == "permutation" else Sampling.EVERY_ROUND
    size = min(federation.clients_per_round, clients)
    schedule = Schedule(federation.rounds, clients, size, sampling, Neighbours.ZERO_OUT)
    return spent(options.noise_multiplier, schedule, options.delta)


def _reach(config: Config) -> Pair:
    """The servers a configuration names, or both in this process."""
    options = config.secemb
    if not options.servers:
        return LocalPair()
    from fedrec_unlearn.serving.remote import RemotePair

    assert options.certificates is not None
    zero, one = options.servers
    return RemotePair((zero, one), Path(options.certificates))
