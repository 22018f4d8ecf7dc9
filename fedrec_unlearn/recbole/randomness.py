"""Dropout whose masks depend on the seed, the round, the user and the item, and on nothing else.

Stock models draw masks from torch's global generator, in the order in which batches happen to come. A federation
whose result must not depend on block size, engine or resuming cannot have that, so while a client trains, every call
of dropout inside the model takes its mask from a hash of those coordinates; any other draw is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fedrec_unlearn.errors import ModelError
from fedrec_unlearn.seeds import Purpose, hash_counters_torch, stream_key

_PER_WORD = 4
"""Masks drawn from one 64-bit word, 16 bits each."""

_DROPOUTS: frozenset[Any] = frozenset({functional.dropout, torch.dropout, torch.dropout_})

_OTHER_DRAWS: frozenset[Any] = frozenset(
    {
        functional.alpha_dropout,
        functional.feature_alpha_dropout,
        functional.dropout1d,
        functional.dropout2d,
        functional.dropout3d,
        functional.rrelu,
        functional.gumbel_softmax,
        torch.alpha_dropout,
        torch.feature_dropout,
        torch.bernoulli,
        torch.multinomial,
        torch.normal,
        torch.poisson,
        torch.rand,
        torch.rand_like,
        torch.randint,
        torch.randint_like,
        torch.randn,
        torch.randn_like,
        torch.randperm,
        Tensor.bernoulli,
        Tensor.bernoulli_,
        Tensor.exponential_,
        Tensor.normal_,
        Tensor.random_,
        Tensor.uniform_,
    }
)


def pair_keys(seed: int, round_number: int, epoch: int, users: Tensor, items: Tensor, n_items: int) -> Tensor:
    """Key of the draws of each pair, int64, of the shape `users` and `items` have together."""
    key = stream_key(seed, Purpose.DROPOUT, round_number, epoch)
    return hash_counters_torch(key, users * n_items + items)


class CountedDropout(TorchFunctionMode):
    """While active, dropout draws its masks from the keys of the pairs.

    A unit is dropped where a 16-bit word is below p · 2¹⁶, rounded to a whole number; what stays is scaled by
    the inverse of the share that does stay, so that the expectation is exactly the input.

    Args:
        keys: int64 (E,), one for each of the E rows a model computes on, in their order.

    Raises:
        ModelError: the model draws anything else, or drops units of something that has no row for each pair.
    """

    def __init__(self, keys: Tensor) -> None:
        super().__init__()
        self.keys = keys
        self.calls = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        if func is functional.multi_head_attention_forward:
            return self._attend(args, options)
        if func in _DROPOUTS:
            return self._drop(*_dropout_arguments(*args, **options))
        if func in _OTHER_DRAWS:
            raise ModelError(
                f"the model draws random numbers while it scores ({getattr(func, '__name__', func)}); only dropout can "
                "be drawn so that a round can be repeated"
            )
        return func(*args, **options)

    def _attend(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """Attention calls dropout from inside, where this mode does not see it; its rows are the heads of a pair."""

        def dropped(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
            return self._drop(input, p, training, rows_per_pair=input.shape[0] // self.keys.shape[0])

        given = inspect.signature(functional.multi_head_attention_forward).bind(*args, **options)
        given.apply_defaults()
        if given.arguments["dropout_p"] and given.arguments["training"] and not given.arguments["need_weights"]:
            raise ModelError("the model drops attention weights inside a fused kernel; set its attention dropout to 0")
        with mock.patch.object(functional, "dropout", dropped):
            return functional.multi_head_attention_forward(*args, **options)

    def _drop(self, x: Tensor, p: float, training: bool, rows_per_pair: int = 1) -> Tensor:
        if not training or p == 0.0:
            return x
        rows = self.keys.shape[0]
        if x.dim() < 1 or x.shape[0] != rows * rows_per_pair:
            raise ModelError(
                f"the model applies dropout to a tensor of shape {tuple(x.shape)}, which has no row for each of {rows} "
                "pairs; set its dropout to 0"
            )
        width = rows_per_pair * x[0].numel()
        threshold = round(p * 65536)
        if threshold == 65536:
            return x * 0.0
        self.calls += 1
        words = -(-width // _PER_WORD)
        places = torch.arange(words, dtype=torch.int64, device=x.device)
        drawn = hash_counters_torch(stream_key(self.calls, Purpose.DROPOUT), self.keys.unsqueeze(-1) + places)
        bits = drawn.view(torch.int16).reshape(rows, words * _PER_WORD)[:, :width]
        # the 16-bit numbers are read as signed, from -2**15
        kept = (bits >= threshold - 32768).to(x.dtype) * (65536.0 / (65536 - threshold))
        return x * kept.view(x.shape)


def _dropout_arguments(
    input: Tensor, p: float = 0.5, training: bool | None = None, inplace: bool = False, **more: bool
) -> tuple[Tensor, float, bool]:
    """Arguments of any of the functions torch calls dropout; their names differ only in `train`."""
    return input, p, more.get("train", True) if training is None else training
