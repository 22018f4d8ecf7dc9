"""Counter-based randomness: a draw depends on (seed, purpose, counters) and on nothing else.

No generator is carried along, so a result cannot depend on block size, engine, thread count or on whether
a run was resumed. Two tools:

* `hash_counters` / `hash_counters_torch`: splitmix64 of a key and a counter, the same bits in numpy and in
  torch on any device. Used where a draw belongs to one user or one parameter.
* `generator`: a numpy `Generator` on Philox, keyed the same way, for draws that belong to a whole run
  (a permutation of clients, folds of an attack).

Source: Steele, Lea, Flood 2014 (splitmix64); Salmon et al. 2011 (Philox).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_MIX1 = 0xBF58476D1CE4E5B9
_MIX2 = 0x94D049BB133111EB


class Purpose(IntEnum):
    """What a draw is for; part of every key, so that two purposes never share a stream."""

    INIT_USER = 1
    INIT_ITEM = 2
    INIT_DENSE = 3
    COHORT = 4
    NEGATIVES = 5
    SPLIT = 6
    SYNTHETIC = 7
    EVALUATION = 8
    ATTACK = 9
    INIT_TERM = 10
    TERM_DRAWS = 11
    UNLEARN = 12
    INVERSION = 13
    COMPRESSION = 14
    BATCH_CODE = 15
    SUBSET = 16
    DROPOUT = 17


def _mix(x: int) -> int:
    x &= _MASK
    x = ((x ^ (x >> 30)) * _MIX1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX2) & _MASK
    return x ^ (x >> 31)


def stream_key(seed: int, purpose: Purpose, *counters: int) -> int:
    """Key of a stream, an integer in [0, 2**64).

    Args:
        seed: the run's seed, any integer.
        purpose: what the stream is for.
        counters: further coordinates such as the round; order matters.
    """
    key = _mix(seed + _GAMMA)
    for value in (int(purpose), *counters):
        key = _mix(key ^ _mix(value + _GAMMA))
    return key


def hash_counters(key: int, counters: NDArray[Any]) -> NDArray[np.uint64]:
    """Pseudo-random 64-bit words, one per counter.

    Args:
        key: from `stream_key`.
        counters: integers of any shape.

    Returns:
        uint64 array of the same shape.
    """
    with np.errstate(over="ignore"):
        x = np.asarray(counters).astype(np.uint64) * np.uint64(_GAMMA) + np.uint64(key)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(_MIX1)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX2)
        mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed


def _signed(x: int) -> int:
    return x - (1 << 64) if x >= 1 << 63 else x


def _shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    # torch has no unsigned 64-bit shift; the arithmetic one is masked
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def hash_counters_torch(key: int, counters: torch.Tensor) -> torch.Tensor:
    """The same words as `hash_counters`, as int64 bit patterns on the counters' device."""
    x = counters * _signed(_GAMMA) + _signed(key)
    x = (x ^ _shift(x, 30)) * _signed(_MIX1)
    x = (x ^ _shift(x, 27)) * _signed(_MIX2)
    return x ^ _shift(x, 31)


def below_torch(words: torch.Tensor, bound: torch.Tensor | int) -> torch.Tensor:
    """Map 64-bit words to [0, bound), bound at most 2**31 (bias below 2**-31).

    Args:
        words: int64, from `hash_counters_torch`.
        bound: positive, a number or a tensor that broadcasts with `words`.
    """
    return (_shift(words, 33) * bound) >> 31


def uniform(key: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Uniform draws in (0, 1); element k (row-major) depends on `key` and k alone."""
    words = hash_counters(key, np.arange(int(np.prod(shape)), dtype=np.uint64))
    draws: NDArray[np.float64] = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return draws.reshape(shape)


def normal(key: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Standard normal draws (Box-Muller); element k (row-major) depends on `key` and k alone."""
    flat = uniform(key, (int(np.prod(shape)), 2))
    draws: NDArray[np.float64] = np.sqrt(-2.0 * np.log(flat[:, 0])) * np.cos(2.0 * np.pi * flat[:, 1])
    return draws.reshape(shape)


def generator(seed: int, purpose: Purpose, *counters: int) -> np.random.Generator:
    """A numpy generator that belongs to (seed, purpose, counters)."""
    return np.random.Generator(np.random.Philox(key=stream_key(seed, purpose, *counters)))
