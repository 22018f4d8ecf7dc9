"""Transports `plain` and `sparse`: what client and server say to each other, byte by byte.

Both send everything in the clear; they differ in what they cost and in what the item ids reveal.

* `plain`: the client downloads and uploads the whole item table. The server still sees which rows are zero.
* `sparse`: the client asks for its rows by id and uploads those rows. The server sees the ids.

A message is a fixed little-endian layout, never pickle: a header (version, kind, round, rows, row width, dense
numbers, weight), then ids, rows and dense parameters. Sizes follow from the layout, so the vectorised engine
counts bytes without writing messages; the reference engine writes and reads every one of them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedrec_unlearn.errors import TransportError
from fedrec_unlearn.federation.contribution import ClientUpdate

_HEADER = struct.Struct("<BBHIIIId")
"""version, kind, bytes per number, round, rows, row width, dense numbers, weight."""
_VERSION = 1
_SPARSE, _PLAIN = 1, 2
_ID = "<u4"
_ID_BYTES = 4
_NUMBERS = {torch.float32: "<f4", torch.int64: "<i8"}
"""Layout of the numbers a message may hold: floats, or ring mode's fixed point."""


class Transport(Protocol):
    """What a federation needs of a transport in the clear."""

    name: str

    def upload_bytes(self, rows: Tensor, width: int, dense: int, number_bytes: int) -> Tensor:
        """Bytes each client sends in a round, int64 (C,), for `rows` (C,) touched item rows."""

    def download_bytes(self, rows: Tensor, width: int, dense: int, number_bytes: int) -> Tensor:
        """Bytes each client receives in a round, int64 (C,)."""

    def encode(self, update: ClientUpdate, round_number: int) -> bytes:
        """A client's upload as bytes.

        Raises:
            TransportError: numbers that are neither float32 nor ring mode's int64.
        """

    def decode(self, message: bytes, round_number: int, items: Tensor, dense: Mapping[str, Tensor]) -> ClientUpdate:
        """The upload back from its bytes.

        Args:
            message: what `encode` returned.
            round_number: the round the server is in.
            items: the sum of item rows the upload is for, (m, width), float32 or int64: for width and number format.
            dense: the sums of dense parameters, for names and shapes.

        Raises:
            TransportError: wrong version, round, length, ids, width or number format.
        """


class _Clear:
    """What `plain` and `sparse` share: the layout."""

    name: str
    kind: int

    def __init__(self, n_items: int) -> None:
        self.n_items = n_items

    def _encode(self, ids: Tensor | None, rows: Tensor, update: ClientUpdate, round_number: int) -> bytes:
        dense = [value.reshape(-1) for value in update.dense.values()]
        n_dense = sum(len(value) for value in dense)
        for value in (rows, *dense):
            if value.dtype not in _NUMBERS or value.dtype != rows.dtype:
                raise TransportError(f"numbers travel as float32 or, in ring mode, int64; not as {value.dtype}")
        number = np.dtype(_NUMBERS[rows.dtype])
        sizes = number.itemsize, round_number, len(rows), rows.shape[1], n_dense
        header = _HEADER.pack(_VERSION, self.kind, *sizes, update.weight)
        body = [] if ids is None else [ids.cpu().numpy().astype(_ID).tobytes()]
        body += [value.cpu().numpy().astype(number, copy=False).tobytes() for value in (rows, *dense)]
        return header + b"".join(body)

    def decode(self, message: bytes, round_number: int, items: Tensor, dense: Mapping[str, Tensor]) -> ClientUpdate:
        """See `Transport.decode`."""
        if len(message) < _HEADER.size:
            raise TransportError(f"message of {len(message)} bytes is shorter than its header ({_HEADER.size})")
        version, kind, size, sent_round, n_rows, width, n_dense, weight = _HEADER.unpack_from(message)
        if version != _VERSION or kind != self.kind:
            raise TransportError(f"message has version {version} and kind {kind}; expected {_VERSION} and {self.kind}")
        if sent_round != round_number:
            raise TransportError(f"message belongs to round {sent_round}, not {round_number}")
        number = np.dtype(_NUMBERS[items.dtype])
        model = number.itemsize, items.shape[1], sum(value.numel() for value in dense.values())
        if (size, width, n_dense) != model:
            raise TransportError(
                f"message has {size}-byte numbers, rows of {width} and {n_dense} dense numbers; "
                f"the model has {model[0]}, {model[1]} and {model[2]}"
            )
        if not np.isfinite(weight) or weight <= 0:
            raise TransportError(f"message has the weight {weight}, which is not a positive number")
        id_bytes = n_rows * _ID_BYTES if kind == _SPARSE else 0
        expected = _HEADER.size + id_bytes + (n_rows * width + n_dense) * size
        if len(message) != expected or (kind == _PLAIN and n_rows != self.n_items):
            raise TransportError(
                f"message has {len(message)} bytes; its header says {expected}, "
                f"with {n_rows} rows of a table of {self.n_items}"
            )
        ids = torch.arange(n_rows)
        if kind == _SPARSE:
            raw = np.frombuffer(message, dtype=_ID, count=n_rows, offset=_HEADER.size)
            ids = torch.from_numpy(raw.astype(np.int64))
            if n_rows and (int(ids.max()) >= self.n_items or len(torch.unique(ids)) != n_rows):
                raise TransportError("message names an item row twice or one beyond the catalogue")
        native = number.newbyteorder("=")
        numbers = torch.from_numpy(np.frombuffer(message, dtype=number, offset=_HEADER.size + id_bytes).astype(native))
        rows, *flat = torch.split(numbers, [n_rows * width, *(value.numel() for value in dense.values())])
        received = {name: part.view(value.shape) for (name, value), part in zip(dense.items(), flat, strict=True)}
        table = rows.view(n_rows, width)
        if kind == _PLAIN:  # what the server can tell was touched: the rows that are not zero
            ids = torch.nonzero(table.any(dim=1)).squeeze(1)
            table = table.index_select(0, ids)
        return ClientUpdate(ids, table, received, float(weight))


class Sparse(_Clear):
    """Rows by id: cheap, and the server sees which items a client trains on."""

    name = "sparse"
    kind = _SPARSE

    def upload_bytes(self, rows: Tensor, width: int, dense: int, number_bytes: int) -> Tensor:
        """A request with the ids, and an update with ids, rows and dense parameters."""
        request = _HEADER.size + rows * _ID_BYTES
        return request + _HEADER.size + rows * (_ID_BYTES + width * number_bytes) + dense * number_bytes

    def download_bytes(self, rows: Tensor, width: int, dense: int, number_bytes: int) -> Tensor:
        """The rows asked for, in the order of the request, and the dense parameters."""
        return _HEADER.size + rows * (width * number_bytes) + dense * number_bytes

    def encode(self, update: ClientUpdate, round_number: int) -> bytes:
        """See `Transport.encode`."""
        return self._encode(update.item_ids, update.item_rows, update, round_number)


class Plain(_Clear):
    """The whole table both ways."""

    name = "plain"
    kind = _PLAIN

    def upload_bytes(self, rows: Tensor, width: int, dense: int, number_bytes: int) -> Tensor:
        """The same for every client."""
        return torch.full_like(rows, _HEADER.size + (self.n_items * width + dense) * number_bytes)

    def download_bytes(self, rows: Tensor, width: int, dense: int, number_bytes: int) -> Tensor:
        """The same for every client."""
        return self.upload_bytes(rows, width, dense, number_bytes)

    def encode(self, update: ClientUpdate, round_number: int) -> bytes:
        """See `Transport.encode`."""
        table = update.item_rows.new_zeros(self.n_items, update.item_rows.shape[1])
        table[update.item_ids] = update.item_rows
        return self._encode(None, table, update, round_number)


def make_transport(name: str, n_items: int) -> Transport:
    """The transport a configuration names (`plain` or `sparse`)."""
    return Plain(n_items) if name == "plain" else Sparse(n_items)
