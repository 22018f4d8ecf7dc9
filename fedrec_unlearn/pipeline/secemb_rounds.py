"""A round under the transport `secemb`: tensors of the federation on one side, integers of SecEmb on the other."""

from __future__ import annotations

import secrets

import numpy as np
import torch
from torch import Tensor

from fedrec_unlearn.config import Config
from fedrec_unlearn.federation.contribution import Contribution
from fedrec_unlearn.federation.exchange import BlockUpdate
from fedrec_unlearn.federation.local_data import LocalData
from fedrec_unlearn.federation.state import ServerState
from fedrec_unlearn.privacy.clipping import clip_update, ring_limit
from fedrec_unlearn.secemb.batch_code import code_of
from fedrec_unlearn.secemb.client import Client, download_bytes, forwarded_bytes, upload_bytes
from fedrec_unlearn.secemb.matching import match
from fedrec_unlearn.secemb.pair import Pair
from fedrec_unlearn.secemb.parameters import IntArray, Parameters, Round


class _Round:
    """What both ways of a round share: order of items, sums and what they become."""

    carries_term = True

    def __init__(self, config: Config, server: ServerState, parameters: Parameters, run: bytes, number: int) -> None:
        self.config, self.server, self.parameters = config, server, parameters
        self.bits = config.federation.ring_fraction_bits
        self.table: IntArray = np.rint(server.items.cpu().numpy() * 2.0**self.bits).astype(np.int64)
        self.round = Round.of(parameters, run, number, self.table)
        self.clients = self.saturated = self.deferred = 0

    def _asked(self, local: LocalData) -> list[tuple[IntArray, IntArray]]:
        """Items of each client and their places among the block's entries, positives before negatives.

        A positive and a negative come first: what comes first is placed for certain, so every client can train.
        """
        entries = torch.cat([local.pos_items, local.neg_items]).cpu().numpy()
        pos, neg = local.pos_ptr.tolist(), local.neg_ptr.tolist()
        shift = len(local.pos_items)
        asked = []
        for client in range(len(local.users)):
            own = np.arange(pos[client], pos[client + 1]), np.arange(neg[client], neg[client + 1]) + shift
            places = np.concatenate([own[0][:1], own[1][:1], own[0][1:], own[1][1:]])
            asked.append((entries[places], places))
        return asked

    def _without(self, local: LocalData, unplaced: list[IntArray]) -> LocalData:
        """A block without the entries that got no tree this time."""
        places = np.concatenate(unplaced) if unplaced else np.empty(0, dtype=np.int64)
        if not len(places):
            return local
        self.deferred += len(places)
        kept = torch.ones(len(local.pos_items) + len(local.neg_items), dtype=torch.bool)
        kept[torch.from_numpy(places)] = False
        kept = kept.to(local.pos_items.device)
        return local.keep(kept[: len(local.pos_items)], kept[len(local.pos_items) :])

    def _vectors(self, update: BlockUpdate) -> list[tuple[IntArray, IntArray, IntArray]]:
        """Item ids, rows (with the weight where rows are averaged) and dense vector of each client."""
        ids, rows, ptr = update.item_ids.cpu().numpy(), update.item_rows.cpu().numpy(), update.ptr.tolist()
        weights = update.weights.cpu().numpy().round().astype(np.int64)
        parts = [value.reshape(len(weights), -1) for value in update.dense.values()]
        if update.term is not None:
            parts.append(update.term)
        dense = torch.cat(parts, 1).cpu().numpy() if parts else np.empty((len(weights), 0), dtype=np.int64)
        noised = self.parameters.noise > 0
        vectors = []
        for client, weight in enumerate(weights):
            own = slice(ptr[client], ptr[client + 1])
            mine, other = rows[own], dense[client]
            if noised:
                mine, other, _ = clip_update(mine, other, ring_limit(self.config.secemb.clip_norm, self.bits))
            if self.parameters.payload > mine.shape[1]:
                mine = np.concatenate([mine, np.full((len(mine), 1), weight)], axis=1)
            vectors.append((ids[own], mine, other if noised else np.append(other, weight)))
        return vectors

    def _add(self, contribution: Contribution, rows: IntArray, dense: IntArray) -> None:
        """Read the opened sums into a contribution and count the bytes."""
        device = contribution.items.device
        width = contribution.items.shape[1]
        table, flat = torch.from_numpy(rows).to(device), torch.from_numpy(dense).to(device)
        contribution.items += table[:, :width]
        if contribution.row_weight is not None:
            contribution.row_weight += table[:, width]
        sizes = [value.numel() for value in contribution.dense.values()]
        noised = self.parameters.noise > 0
        *parts, term, groups, weight = torch.split(
            flat, [*sizes, contribution.term.flat.numel(), len(contribution.term_sums), 0 if noised else 1]
        )
        for value, part in zip(contribution.dense.values(), parts, strict=True):
            value += part.view(value.shape)
        contribution.term.flat += term
        for sums, known in zip(contribution.term_sums.values(), groups.tolist(), strict=True):
            sums.weight += known
        contribution.weight += self.clients if noised else float(weight)
        shared = sum(sizes) + contribution.term.flat.numel()
        described = len(self.round.to_bytes()) + 8 * shared
        contribution.bytes_up += self.clients * upload_bytes(self.round)
        contribution.bytes_down += self.clients * (download_bytes(self.round) + described)
        counted = {
            "bytes_between": self.clients * forwarded_bytes(self.round),
            "saturated": self.saturated,
            "deferred": self.deferred,
        }
        for name, count in counted.items():
            contribution.traffic[name] = contribution.traffic.get(name, 0) + count


class ProtocolRound(_Round):
    """A round in which every share is made, sent and added up.

    Args:
        pair: both servers.
        config, server, parameters, run, number: what `Round` binds messages to.
    """

    def __init__(
        self, pair: Pair, config: Config, server: ServerState, parameters: Parameters, run: bytes, number: int
    ) -> None:
        super().__init__(config, server, parameters, run, number)
        self.pair = pair
        self.pair.open(self.round, self.table)
        self._sessions: list[tuple[Client, IntArray]] = []

    def fetch(self, local: LocalData) -> tuple[LocalData, Tensor]:
        """Ask both servers for the block's rows; see `Exchange.fetch`."""
        asked = self._asked(local)
        clients = [Client(self.round, self.pair.keys, secrets.token_bytes(16)) for _ in asked]
        messages = [client.request(items) for client, (items, _) in zip(clients, asked, strict=True)]
        rows = np.empty((len(local.pos_items) + len(local.neg_items), self.parameters.width), dtype=np.int64)
        arrived = np.zeros(len(rows), dtype=bool)
        self._sessions = []
        for client, (items, places), answer in zip(clients, asked, self.pair.request(messages), strict=True):
            placed = places[client.placed]
            rows[placed] = client.rows(answer)
            arrived[placed] = True
            self._sessions.append((client, items[client.placed]))
        left = self._without(local, [np.flatnonzero(~arrived)])
        return left, self._floats(rows[arrived])

    def send(self, update: BlockUpdate) -> None:
        """Share the block's updates between both servers; see `Exchange.send`."""
        messages = []
        for (client, placed), (ids, rows, dense) in zip(self._sessions, self._vectors(update), strict=True):
            order = np.argsort(ids)[np.searchsorted(np.sort(ids), placed)]
            messages.append(client.update(rows[order], dense))
            self.saturated += client.saturated
        self.pair.update(messages)
        self.clients += len(messages)
        self._sessions = []

    def close(self, contribution: Contribution) -> None:
        """Open the sum; see `Exchange.close`."""
        total = self.pair.close()
        self._add(contribution, total.rows, total.dense)

    def _floats(self, rows: IntArray) -> Tensor:
        return torch.from_numpy(rows * 2.0**-self.bits).to(self.server.items)


class CountedRound(_Round):
    """A round whose sums are added directly: the same bits, without making shares that cancel.

    Matching, saturation and the number of bytes are those of the protocol. There is no noise, which the servers draw.
    """

    def __init__(self, config: Config, server: ServerState, parameters: Parameters, run: bytes, number: int) -> None:
        super().__init__(config, server, parameters, run, number)
        self._rows = np.zeros((parameters.n_items, parameters.payload), dtype=np.int64)
        self._dense = np.zeros(parameters.dense, dtype=np.int64)

    def fetch(self, local: LocalData) -> tuple[LocalData, Tensor]:
        """The server's rows, less those without a tree; see `Exchange.fetch`."""
        code = code_of(self.parameters)
        unplaced = [places[match(code, items) < 0] for items, places in self._asked(local)]
        left = self._without(local, unplaced)
        return left, self.server.items.index_select(0, torch.cat([left.pos_items, left.neg_items]))

    def send(self, update: BlockUpdate) -> None:
        """Add the block's updates; see `Exchange.send`."""
        limit, dense_limit = self.parameters.limit, self.parameters.dense_limit
        for ids, rows, dense in self._vectors(update):
            clipped = np.clip(rows, -limit, limit)
            bounded = np.clip(dense, -dense_limit, dense_limit)
            self.saturated += int((clipped != rows).sum() + (bounded != dense).sum())
            self._rows[ids] += clipped
            self._dense += bounded
            self.clients += 1

    def close(self, contribution: Contribution) -> None:
        """Add the sums; see `Exchange.close`."""
        self._add(contribution, self._rows, self._dense)
