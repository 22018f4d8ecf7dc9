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
_ID_BYTES = 4
_NUMBERS = {4: torch.float32, 8: torch.int64}
"""Number format by its size in bytes; 8 is ring mode's fixed point."""


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
        for value in (rows, *dense):
            if value.dtype not in _NUMBERS.values():
                raise TransportError(f"numbers travel as float32 or, in ring mode, int64; not as {value.dtype}")
        n_dense = sum(len(value) for value in dense)
        size = rows.element_size()
        header = _HEADER.pack(_VERSION, self.kind, size, round_number, len(rows), rows.shape[1], n_dense, update.weight)
        body = [] if ids is None else [ids.to(torch.int32).cpu().numpy().tobytes()]
        body += [value.cpu().numpy().tobytes() for value in (rows, *dense)]
        return header + b"".join(body)

    def _read(self, message: bytes, round_number: int) -> tuple[Tensor, Tensor, Tensor, float]:
        """Ids, rows, flat dense numbers and weight of a message, checked against its header."""
        if len(message) < _HEADER.size:
            raise TransportError(f"message of {len(message)} bytes is shorter than its header ({_HEADER.size})")
        version, kind, size, sent_round, n_rows, width, n_dense, weight = _HEADER.unpack_from(message)
        if version != _VERSION or kind != self.kind:
            raise TransportError(f"message has version {version} and kind {kind}; expected {_VERSION} and {self.kind}")
        if sent_round != round_number:
            raise TransportError(f"message belongs to round {sent_round}, not {round_number}")
        if size not in _NUMBERS or not np.isfinite(weight) or weight <= 0:
            raise TransportError(f"message has numbers of {size} bytes and weight {weight}")
        id_bytes = n_rows * _ID_BYTES if kind == _SPARSE else 0
        expected = _HEADER.size + id_bytes + (n_rows * width + n_dense) * size
        if len(message) != expected or (kind == _PLAIN and n_rows != self.n_items):
            raise TransportError(
                f"message has {len(message)} bytes and {n_rows} rows; its header says {expected} bytes"
            )
        start = _HEADER.size + id_bytes
        numbers = torch.frombuffer(bytearray(message[start:]), dtype=_NUMBERS[size]) if len(message) > start else None
        if kind == _SPARSE:
            raw = np.frombuffer(message, dtype=np.uint32, count=n_rows, offset=_HEADER.size)
            ids = torch.from_numpy(raw.astype(np.int64))
            if n_rows and (int(ids.max()) >= self.n_items or len(torch.unique(ids)) != n_rows):
                raise TransportError("message names an item row twice or one beyond the catalogue")
        else:
            ids = torch.arange(n_rows)
        return ids, numbers[: n_rows * width].view(n_rows, width), numbers[n_rows * width :], float(weight)

    def decode(self, message: bytes, round_number: int, like: Mapping[str, Tensor]) -> ClientUpdate:
        """See `Transport.decode`."""
        ids, rows, flat, weight = self._read(message, round_number)
        if len(flat) != sum(value.numel() for value in like.values()):
            raise TransportError(
                f"message has {len(flat)} dense numbers, the model {sum(v.numel() for v in like.values())}"
            )
        dense, start = {}, 0
        for name, value in like.items():
            dense[name] = flat[start : start + value.numel()].view(value.shape)
            start += value.numel()
        return ClientUpdate(ids, rows, dense, weight)


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
