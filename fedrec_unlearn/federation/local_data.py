"""What each client of a block trains on in a round: its own items and the negatives it draws.

Negatives are drawn once a round, because they are part of what a client downloads: `num_negatives` per
positive, distinct within the client, never one of its own items. Local epochs pair them with the positives
in a different rotation each time.

The k-th negative of user u in round t has rank (a·k + b) mod p among the items u has not seen, with a and b
hashed from (seed, t, u) and p the smallest prime not below their number (ranks that fall outside are mapped
once more). The map is a bijection, so no negative repeats, each is uniform, and any two are uniform over
distinct pairs; two draws a client and round replace one a negative. Source: Carter & Wegman 1979 (the family);
Black & Rogaway 2002 (cycle walking).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedrec_unlearn.data.types import UserItems
from fedrec_unlearn.errors import DataError
from fedrec_unlearn.seeds import Purpose, below_torch, hash_counters_torch, stream_key


def primes_from(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Smallest prime not below each number, shape as given (numbers below 2 give 2)."""
    top = int(numbers.max(initial=2))
    limit = 2 * top + 2  # Bertrand: there is a prime between
    sieve = np.ones(limit, dtype=bool)
    sieve[:2] = False
    for factor in range(2, int(limit**0.5) + 1):
        if sieve[factor]:
            sieve[factor * factor :: factor] = False
    primes = np.flatnonzero(sieve)
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = primes[np.searchsorted(primes, numbers)]
    return found


def ragged_positions(starts: Tensor, counts: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """Positions start, start + 1, ... of each owner's run, one after another.

    Args:
        starts, counts: shape (C,), first position and length of each run.
        total: sum of the counts.

    Returns:
        positions, shape (total,); owners, shape (total,), the run each position belongs to.
    """
    owners = torch.repeat_interleave(counts, output_size=total)
    first = torch.cumsum(counts, 0) - counts
    return torch.arange(total, device=counts.device) + (starts - first).index_select(0, owners), owners


@dataclass(frozen=True)
class LocalData:
    """Items of a block of C clients for one round, ragged: client c owns `ptr[c]:ptr[c + 1]`."""

    users: Tensor
    """int64 (C,)."""
    pos_ptr: Tensor
    """int64 (C + 1,)."""
    pos_items: Tensor
    """int64 (P,)."""
    pos_owner: Tensor
    """int64 (P,): client (0..C-1) of each positive."""
    ratings: Tensor | None
    """(P,), centred."""
    neg_ptr: Tensor
    neg_items: Tensor
    """int64 (N,)."""
    neg_owner: Tensor

    @property
    def counts(self) -> Tensor:
        """Training items of each client, int64 (C,)."""
        return self.pos_ptr.diff()

    @property
    def pools(self) -> Tensor:
        """Negatives of each client, int64 (C,)."""
        return self.neg_ptr.diff()

    def partners(self, repeat: int, epoch: int) -> Tensor | None:
        """Negative each positive is compared with: int64 (P,), or None where it is simply the one at its own place.

        Args:
            repeat: which of the `num_negatives` comparisons, from 0.
            epoch: local epoch, from 0.
        """
        pools = self.pools
        if (
            repeat == 0
            and epoch == 0
            and len(self.pos_items) == len(self.neg_items)
            and torch.equal(pools, self.counts)
        ):
            return None
        place = torch.arange(len(self.pos_items), device=pools.device) - self.pos_ptr[:-1].index_select(
            0, self.pos_owner
        )
        shift = self.counts * repeat + epoch
        place = (place + shift.index_select(0, self.pos_owner)) % pools.index_select(0, self.pos_owner)
        return place + self.neg_ptr[:-1].index_select(0, self.pos_owner)


class ClientData:
    """Training items of all users on the device, and the negatives they draw.

    Args:
        train: items of each user.
        device: where the tensors live.
        dtype: float type of the ratings.
        rating_mean: subtracted from the ratings.
    """

    def __init__(
        self, train: UserItems, device: torch.device, dtype: torch.dtype = torch.float32, rating_mean: float = 0.0
    ) -> None:
        if train.n_items >= 1 << 31:
            raise DataError(f"{train.n_items} items: at most 2**31 - 1 are supported")
        self.n_users, self.n_items, self.device = train.n_users, train.n_items, device
        counts = train.counts
        place = np.arange(len(train.items)) - np.repeat(train.indptr[:-1], counts)
        unseen = train.n_items - counts
        self.indptr = torch.from_numpy(train.indptr).to(device)
        self.counts = torch.from_numpy(counts).to(device)
        self.items = torch.from_numpy(train.items).to(device)
        # an unseen item of rank r has as many seen items before it as there are entries <= r here
        self.rank_keys = torch.from_numpy(train.items - place).to(device)
        self.unseen = torch.from_numpy(unseen).to(device)
        self.primes = torch.from_numpy(primes_from(unseen)).to(device)
        ratings = None if train.ratings is None else torch.from_numpy(train.ratings - rating_mean)
        self.ratings = None if ratings is None else ratings.to(device=device, dtype=dtype)

    def local(self, users: Tensor, seed: int, round_number: int, num_negatives: int) -> LocalData:
        """What `users` train on in a round.

        Args:
            users: int64 (C,), each with at least one training item.
            seed, round_number: coordinates of the draws.
            num_negatives: negatives per positive; 0 draws none. A client with fewer unseen items takes all of them.
        """
        counts = self.counts.index_select(0, users)
        pos_ptr = _pointers(counts)
        total = int(pos_ptr[-1])
        positions, owners = ragged_positions(self.indptr.index_select(0, users), counts, total)
        pos_items = self.items.index_select(0, positions)
        ratings = None if self.ratings is None else self.ratings.index_select(0, positions)
        pools = torch.minimum(counts * num_negatives, self.unseen.index_select(0, users))
        neg_ptr = _pointers(pools)
        places, neg_owner = ragged_positions(torch.zeros_like(pools), pools, int(neg_ptr[-1]))
        ranks = self._negative_ranks(users, places, neg_owner, stream_key(seed, Purpose.NEGATIVES, round_number))
        # one search for all clients: client c's keys are lifted by c * (n_items + 1)
        lift = self.n_items + 1
        keys = self.rank_keys.index_select(0, positions) + owners * lift
        before = torch.searchsorted(keys, ranks + neg_owner * lift, right=True)
        neg_items = ranks + before - pos_ptr[:-1].index_select(0, neg_owner)
        return LocalData(users, pos_ptr, pos_items, owners, ratings, neg_ptr, neg_items, neg_owner)

    def _negative_ranks(self, users: Tensor, places: Tensor, owner: Tensor, key: int) -> Tensor:
        primes = self.primes.index_select(0, users)
        a = 1 + below_torch(hash_counters_torch(key, 2 * users), primes - 1)
        b = below_torch(hash_counters_torch(key, 2 * users + 1), primes)
        slot_prime = primes.index_select(0, owner)
        slot_a, slot_b = a.index_select(0, owner), b.index_select(0, owner)
        unseen = self.unseen.index_select(0, users).index_select(0, owner)
        ranks = (places * slot_a + slot_b) % slot_prime
        outside = torch.nonzero(ranks >= unseen).squeeze(1)
        while len(outside):
            walked = (ranks[outside] * slot_a[outside] + slot_b[outside]) % slot_prime[outside]
            ranks[outside] = walked
            outside = outside[walked >= unseen[outside]]
        return ranks


def _pointers(counts: Tensor) -> Tensor:
    pointers = torch.zeros(len(counts) + 1, dtype=torch.int64, device=counts.device)
    torch.cumsum(counts, 0, out=pointers[1:])
    return pointers
