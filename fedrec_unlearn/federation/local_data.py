"""What each client of a block trains on in a round: its own items and the negatives it draws.

Negatives are drawn once a round, because they are part of what a client downloads: `num_negatives` per
positive, distinct within the client, never one of its own items. Local epochs pair them with the positives
in a different rotation each time.

They are a systematic sample with a random start: of its N unseen items in the order of their ids, a client
that draws k takes those of rank (⌊jN/k⌋ + c) mod N for j = 0 .. k − 1, with c uniform in 0 .. N − 1, hashed from
(seed, round, user). Each negative is uniform over the unseen items, and so is the negative that a given
positive is paired with; a client's negatives of one round are spread evenly, not independent. The even
spacing is what lets all draws of a block be placed without a search. Source: Madow & Madow 1944.
Negatives are no cover for the positives: see the attack surfaces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedrec_unlearn.data.types import UserItems
from fedrec_unlearn.errors import DataError
from fedrec_unlearn.seeds import Purpose, below_torch, hash_counters_torch, stream_key


def ragged_places(ptr: Tensor, counts: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """Owner and place of each entry of a ragged array.

    Args:
        ptr: shape (C + 1,), where each owner's entries start.
        counts: shape (C,), entries of each owner.
        total: sum of the counts.

    Returns:
        owners, int64 (total,); places 0, 1, ... within each owner, int64 (total,).
    """
    owners = torch.repeat_interleave(counts, output_size=total)
    return owners, torch.arange(total, device=counts.device) - ptr.index_select(0, owners)


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
    pos_place: Tensor
    """int64 (P,): 0, 1, ... within each client."""
    ratings: Tensor | None
    """(P,), centred."""
    neg_ptr: Tensor
    neg_items: Tensor
    """int64 (N,)."""
    neg_owner: Tensor
    round_number: int = 0

    @property
    def counts(self) -> Tensor:
        """Training items of each client, int64 (C,)."""
        return self.pos_ptr.diff()

    @property
    def pools(self) -> Tensor:
        """Negatives of each client, int64 (C,)."""
        return self.neg_ptr.diff()

    def keep(self, positives: Tensor, negatives: Tensor) -> LocalData:
        """The same clients with some of their entries.

        Args:
            positives: bool (P,), which to keep.
            negatives: bool (N,).
        """
        pos_ptr, neg_ptr = _kept_pointers(self.pos_ptr, positives), _kept_pointers(self.neg_ptr, negatives)
        pos_owner = self.pos_owner[positives]
        places = torch.arange(len(pos_owner), device=pos_owner.device) - pos_ptr.index_select(0, pos_owner)
        return LocalData(
            self.users,
            pos_ptr,
            self.pos_items[positives],
            pos_owner,
            places,
            None if self.ratings is None else self.ratings[positives],
            neg_ptr,
            self.neg_items[negatives],
            self.neg_owner[negatives],
            self.round_number,
        )

    def partners(self, repeat: int, epoch: int) -> Tensor | None:
        """Negative each positive is compared with: int64 (P,), or None where it is simply the one at its own place.

        Args:
            repeat: which of the `num_negatives` comparisons, from 0.
            epoch: local epoch, from 0.
        """
        counts, pools = self.counts, self.pools
        plain = len(self.pos_items) == len(self.neg_items) and torch.equal(pools, counts)
        if repeat == 0 and epoch == 0 and plain:
            return None
        shift = (counts * repeat + epoch) % pools
        place = self.pos_place + shift.index_select(0, self.pos_owner)
        size = pools.index_select(0, self.pos_owner)
        if bool((counts <= pools).all()):
            place -= size * (place >= size)  # place and shift are both below the size: once around is enough
        else:
            place %= size
        return place.add_(self.neg_ptr.index_select(0, self.pos_owner))


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
        ratings = None if train.ratings is None else torch.from_numpy(train.ratings - rating_mean)
        self.ratings = None if ratings is None else ratings.to(device=device, dtype=dtype)

    def local(self, users: Tensor, seed: int, round_number: int, num_negatives: int, max_items: int = 0) -> LocalData:
        """What `users` train on in a round.

        Args:
            users: int64 (C,), each with at least one training item.
            seed, round_number: coordinates of the draws.
            num_negatives: negatives per positive; 0 draws none. A client with fewer unseen items takes all of them.
            max_items: items per client, with its negatives (0: no limit). A client with more positives than that
                allows trains on a uniform sample of them, without replacement and anew each round.
        """
        counts = self.counts.index_select(0, users)
        pos_ptr = _pointers(counts)
        owners, places = ragged_places(pos_ptr, counts, int(pos_ptr[-1]))
        positions = places + self.indptr.index_select(0, users).index_select(0, owners)
        pos_items = self.items.index_select(0, positions)
        ratings = None if self.ratings is None else self.ratings.index_select(0, positions)
        unseen = self.unseen.index_select(0, users)
        taken = counts.clamp(max=max_items // (1 + num_negatives)) if max_items else counts
        pools = torch.minimum(taken * num_negatives, unseen)
        if torch.equal(pools, counts):
            neg_ptr, neg_owner, neg_places = pos_ptr, owners, places
        else:
            neg_ptr = _pointers(pools)
            neg_owner, neg_places = ragged_places(neg_ptr, pools, int(neg_ptr[-1]))
        neg_items = neg_places
        if len(neg_places):
            words = hash_counters_torch(stream_key(seed, Purpose.NEGATIVES, round_number), users)
            starts = below_torch(words, unseen)
            keys = self.rank_keys.index_select(0, positions)
            positives, negatives = (pos_ptr, owners), (neg_ptr, neg_owner, neg_places)
            neg_items = _systematic(keys, *positives, *negatives, pools, unseen, starts, self.n_items)
        whole = LocalData(
            users, pos_ptr, pos_items, owners, places, ratings, neg_ptr, neg_items, neg_owner, round_number
        )
        if torch.equal(taken, counts):
            return whole
        words = hash_counters_torch(stream_key(seed, Purpose.SUBSET, round_number), positions)
        by_word = torch.argsort(words)
        order = by_word[torch.argsort(owners[by_word], stable=True)]  # each client's entries in a random order
        chosen = torch.empty_like(owners, dtype=torch.bool)
        chosen[order] = places < taken.index_select(0, owners)
        return whole.keep(chosen, torch.ones_like(neg_items, dtype=torch.bool))

    def most_touched(self, num_negatives: int) -> int:
        """Item rows of the client that touches the most, at least 1; see `local`."""
        everybody = torch.arange(self.n_users, device=self.device)
        return max(1, int(self.touched(everybody, num_negatives).max())) if self.n_users else 1

    def touched(self, users: Tensor, num_negatives: int, max_items: int = 0) -> Tensor:
        """Item rows each of `users` touches in a round, positives and negatives, int64 (C,); see `local`."""
        counts = self.counts.index_select(0, users)
        if max_items:
            counts = counts.clamp(max=max_items // (1 + num_negatives))
        return counts + torch.minimum(counts * num_negatives, self.unseen.index_select(0, users))


def _systematic(
    keys: Tensor,
    pos_ptr: Tensor,
    owner: Tensor,
    neg_ptr: Tensor,
    neg_owner: Tensor,
    neg_places: Tensor,
    pools: Tensor,
    unseen: Tensor,
    starts: Tensor,
    n_items: int,
) -> Tensor:
    """Items of the negatives: ranks (⌊jN/k⌋ + c) mod N, each plus the number of seen items before it.

    That number is the count of keys up to the rank. On the circle of ranks turned back by c, a key stands before
    negative j exactly if ⌈key·k/N⌉ <= j, so a histogram of those and its running sum replace a search.

    Args:
        keys: int64 (P,), unseen items before each positive.
        pos_ptr, owner: the positives' ragged layout.
        neg_ptr, neg_owner, neg_places: the negatives'.
        pools, unseen, starts: int64 (C,): k, N and c.
        n_items: seen and unseen items together.
    """
    # in float64, with a margin of half the smallest distance to an integer, so that each floor is exact
    n, k, start = unseen.clamp(min=1).double(), pools.double(), starts.double()
    inverse = k / n
    offset = 1.0 - 0.5 / n - start * inverse
    first = keys.double().mul_(inverse.index_select(0, owner)).add_(offset.index_select(0, owner)).floor_().long()
    low = keys < starts.index_select(0, owner)
    pool = pools.index_select(0, owner)
    first += pool * low
    total = len(neg_places)
    slot = torch.where(first < pool, first + neg_ptr.index_select(0, owner), total)
    running = torch.cumsum(torch.bincount(slot, minlength=total + 1), 0)
    before_client = torch.cat([running.new_zeros(1), running]).index_select(0, neg_ptr[:-1])
    lows = torch.segment_reduce(low.double(), "sum", offsets=pos_ptr, initial=0.0)

    # whole numbers may join the offset before the floor is taken
    offset = start + 0.5 / k + (lows - before_client)
    items = (
        neg_places.double()
        .mul_((n / k).index_select(0, neg_owner))
        .add_(offset.index_select(0, neg_owner))
        .floor_()
        .long()
    )
    items += running[:total]
    # past the end of the circle: N less, and the client's seen items counted once too often
    past = torch.ceil((n - start) * inverse - 0.5 / n).long()
    return items.sub_((neg_places >= past.index_select(0, neg_owner)).long(), alpha=n_items)


def _kept_pointers(ptr: Tensor, kept: Tensor) -> Tensor:
    running = torch.cat([ptr.new_zeros(1), torch.cumsum(kept, 0)])
    return running.index_select(0, ptr)


def _pointers(counts: Tensor) -> Tensor:
    pointers = torch.zeros(len(counts) + 1, dtype=torch.int64, device=counts.device)
    torch.cumsum(counts, 0, out=pointers[1:])
    return pointers
