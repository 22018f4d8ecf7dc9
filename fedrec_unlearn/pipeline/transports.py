"""The transport a configuration names, in the clear or not."""

from __future__ import annotations

from fedrec_unlearn.config import Config
from fedrec_unlearn.federation.exchange import ExchangeTransport
from fedrec_unlearn.federation.local_data import ClientData
from fedrec_unlearn.federation.rivals import RIVALS, make_rival
from fedrec_unlearn.federation.transport import Transport, make_transport


def transport_of(config: Config, clients: ClientData, num_negatives: int) -> Transport | ExchangeTransport:
    """The transport of a run.

    Args:
        config: names it.
        clients: for the number of items a client may touch, where that decides the size of everybody's messages.
        num_negatives: negatives per positive the objective uses.
    """
    options = config.federation
    if options.transport in RIVALS:
        real = options.engine == "reference"
        return make_rival(
            options.transport, clients.n_items, rank=options.compression_rank, seed=config.seed, messages=real
        )
    if options.transport == "secemb":
        from fedrec_unlearn.pipeline.secemb import SecEmbTransport

        return SecEmbTransport(config, options.max_items or clients.most_touched(num_negatives))
    return make_transport(options.transport, clients.n_items)
