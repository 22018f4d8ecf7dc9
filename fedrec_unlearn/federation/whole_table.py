"""A round of a transport under which every client downloads the whole item table."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.local_data import LocalData
from fedrec_unlearn.federation.state import ServerState, number_bytes

HEADER_BYTES = 28
"""Of a message in the clear, as in `transport`: version, kind, number format, round, three sizes, weight."""


class WholeTable(ABC):
    """A round in which every client downloads the whole table: fetching, and the sums so far."""

    carries_term: bool = False
    """See `Exchange.carries_term`: a term's updates are summed apart."""

    carries_term = False

    def __init__(self, server: ServerState, round_number: int, empty: Contribution) -> None:
        self.server, self.round_number, self.bits = server, round_number, empty.fraction_bits
        self.items = torch.zeros_like(empty.items)
        self.dense = {name: torch.zeros_like(value) for name, value in empty.dense.items()}
        self.row_weight = None if empty.row_weight is None else torch.zeros_like(empty.row_weight)
        self.weight = 0.0
        self.clients = 0

    def fetch(self, local: LocalData) -> tuple[LocalData, Tensor]:
        """All that is asked for, from the table each client has downloaded."""
        return local, self.server.items.index_select(0, torch.cat([local.pos_items, local.neg_items]))

    def download_bytes(self) -> int:
        """Bytes each client receives: table and dense parameters as they are."""
        n_dense, size = number_bytes(self.server.dense, self.server.items, self.bits)
        return HEADER_BYTES + (self.server.items.numel() + n_dense) * size

    @abstractmethod
    def upload_bytes(self) -> int:
        """Bytes each client sends."""

    def close(self, contribution: Contribution) -> None:
        """See `Exchange.close`."""
        contribution.items += self.items
        for name, value in self.dense.items():
            contribution.dense[name] += value
        if contribution.row_weight is not None and self.row_weight is not None:
            contribution.row_weight += self.row_weight
        contribution.weight += self.weight
        contribution.bytes_up += self.clients * self.upload_bytes()
        contribution.bytes_down += self.clients * self.download_bytes()
