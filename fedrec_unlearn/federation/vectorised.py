"""The vectorised engine: a round's clients in blocks, each block a handful of tensor operations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import torch

from fedrec_unlearn.federation import bilinear, padded, pairs
from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.engine import IntArray, Workload
from fedrec_unlearn.federation.local_data import LocalData
from fedrec_unlearn.federation.shared_step import SharedStep
from fedrec_unlearn.federation.state import RunState
from fedrec_unlearn.federation.term_copies import TermCopies

_CPU_BLOCK_MIB = 32.0
"""Default budget on a CPU: large enough that the work in a block outweighs starting it."""
_GPU_BLOCK_MIB = 1024.0
_BYTES_PER_RAGGED_ENTRY = 160
"""Working memory of the bilinear way per entry: about twenty 8-byte numbers."""


class VectorisedEngine:
    """Trains clients block by block; see `Engine`.

    A cohort is cut into blocks whose tensors fit `federation.block_mib`. Blocks hold clients of similar size,
    so padding stays small. The way through a block is chosen by what the model and the mode allow: bilinear
    (MF, FM), one shared step through towers or pair by pair (one local epoch), or client-specific copies (everything
    else).
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        default = _CPU_BLOCK_MIB if workload.clients.device.type == "cpu" else _GPU_BLOCK_MIB
        self.block_bytes = int((workload.config.block_mib or default) * 2**20)

    def train_clients(self, state: RunState, users: IntArray, round_number: int) -> Contribution:
        """See `Engine.train_clients`."""
        work = self.workload
        state = work.received(state)
        contribution = work.empty(state.server)
        entries = self._entries(users)
        exchange = work.open_exchange(state.server, round_number, len(users))
        if exchange is not None:
            for local in self._padded_blocks(users, entries, round_number):
                term = self._term(state, local, round_number)
                padded.train_block(work, state, local, contribution, term, exchange)
            exchange.close(contribution)
        elif work.model.bilinear is not None and not work.config.ring:
            decay = torch.zeros(len(state.server.items), dtype=state.server.items.dtype, device=state.private.device)
            for local in self._ragged_blocks(users, entries, round_number):
                bilinear.train_block(work, state, local, contribution, decay, self._term(state, local, round_number))
            if work.config.l2:
                contribution.items.addcmul_(decay.unsqueeze(1), state.server.items)
        elif work.config.local_epochs == 1 and not work.config.ring and not work.model.has_towers:
            step = pairs.PairStep(work, state)
            for local in self._ragged_blocks(users, entries, round_number, pairs.bytes_per_entry(work.model)):
                step.train_block(local, contribution, self._term(state, local, round_number))
        elif work.config.local_epochs == 1 and not work.config.ring:
            blocks = self._ragged_blocks(users, entries, round_number)
            touched = None
            if int(entries.sum()) < work.model.n_items:  # few enough to hold all blocks and look first
                blocks, again = itertools.tee(blocks)
                touched = torch.unique(torch.cat([torch.cat([b.pos_items, b.neg_items]) for b in again]))
            shared = SharedStep(work, state, touched)
            for local in blocks:
                shared.train_block(local, contribution, self._term(state, local, round_number))
            shared.finish(contribution)
        else:
            for local in self._padded_blocks(users, entries, round_number):
                padded.train_block(work, state, local, contribution, self._term(state, local, round_number))
        return contribution

    def observe(
        self, state: RunState, users: IntArray, round_number: int
    ) -> Iterator[tuple[LocalData, padded.BlockResult]]:
        """What each client would upload in a round, block by block; nothing is changed.

        Yields:
            the block's items and its clients' updates. Clients come in order of size, not of `users`.
        """
        state = self.workload.received(state)
        for local in self._padded_blocks(users, self._entries(users), round_number):
            term = self._term(state, local, round_number)
            yield local, padded.train_copies(self.workload, state, local, term)

    def _term(self, state: RunState, local: LocalData, round_number: int) -> TermCopies | None:
        work = self.workload
        if work.term is None:
            return None
        return TermCopies(
            work.term, state.server, local.users, round_number, work.config.local_epochs, work.fraction_bits
        )

    def _entries(self, users: IntArray) -> IntArray:
        """Item rows each client touches."""
        chosen = torch.from_numpy(users).to(self.workload.clients.device)
        entries: IntArray = self.workload.touched(chosen).cpu().numpy()
        return entries

    def _local(self, users: IntArray, round_number: int) -> LocalData:
        work = self.workload
        chosen = torch.from_numpy(np.ascontiguousarray(users)).to(work.clients.device)
        return work.local(chosen, round_number)

    def _ragged_blocks(
        self, users: IntArray, entries: IntArray, round_number: int, per_entry: int | None = None
    ) -> Iterator[LocalData]:
        """Blocks cut by the sum of their entries, of `per_entry` bytes each."""
        if per_entry is None:
            per_entry = _BYTES_PER_RAGGED_ENTRY + 8 * self.workload.config.local_epochs
            per_entry += 8 * sum(self.workload.model.head_widths)
        limit = max(1, self.block_bytes // per_entry)
        block_of = np.cumsum(entries) // limit
        for block in np.split(users, np.flatnonzero(np.diff(block_of)) + 1):
            yield self._local(block, round_number)

    def _padded_blocks(self, users: IntArray, entries: IntArray, round_number: int) -> Iterator[LocalData]:
        """Blocks of clients of similar size, cut by the padded grid and the copies of dense parameters."""
        model = self.workload.model
        size = 8 if self.workload.config.ring else 4
        per_cell = size * (2 * model.item_layout.width + model.activation_width) + 32
        per_client = 3 * size * sum(int(np.prod(shape)) for shape in model.dense_shapes.values())
        order = np.argsort(-entries, kind="stable")
        users, entries = users[order], entries[order]
        start = 0
        while start < len(users):
            fits = self.block_bytes // (int(entries[start]) * per_cell + per_client)
            end = start + max(1, fits)
            yield self._local(users[start:end], round_number)
            start = end
