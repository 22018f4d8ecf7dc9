"""What a pass must at least cost: its multiply-adds and the bytes of rows it moves, at this machine's measured rates.

The counts are those of an implementation that wastes nothing, not of ours:

* Bilinear models (MF, FM): an epoch takes two products of an item row with the user's vector per entry (score, the
  user's gradient), and one more at the end (the row's update). Each epoch reads a row twice; the end reads and
  writes a row of the sums.
* NCF, DeepFM: three products (forward and two backward) of each layer per entry and epoch. The item half of the
  first layer is counted once per item of the catalogue in the first epoch, when nobody has drifted, and per entry
  later; the user half once per client. Rows are read once, stay in the cache, and are added to the sums once.

An entry is an item a client trains on, positive or negative. Draws of negatives, index arithmetic and sigmoids are
not counted: the distance from the floor shows them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from benchmarks.machine import ROW_FLOATS, gather_bandwidth, matmul_rate, median_cpu_seconds
from fedrec_unlearn.models import Recommender
from fedrec_unlearn.seeds import Purpose, generator


@dataclass(frozen=True)
class Cost:
    """What one pass over all clients must do."""

    multiply_adds: int
    read_bytes: int
    """Rows of the item table that are read."""
    update_bytes: int
    """Rows of the sums that are read and written."""


@dataclass(frozen=True)
class Rates:
    """What this machine reaches on one thread, per second, with tables of the size of the model's item table."""

    multiply_adds: float
    """In one float32 matrix product."""
    read_bytes: float
    """Rows read in random order and added up."""
    update_bytes: float
    """Rows read in random order and written elsewhere, both counted."""

    def seconds(self, cost: Cost) -> tuple[float, float]:
        """Seconds of arithmetic and of moving rows."""
        moving = cost.read_bytes / self.read_bytes + cost.update_bytes / self.update_bytes
        return cost.multiply_adds / self.multiply_adds, moving

    def best(self, other: Rates) -> Rates:
        """The faster of two measurements of each rate."""
        return Rates(
            max(self.multiply_adds, other.multiply_adds),
            max(self.read_bytes, other.read_bytes),
            max(self.update_bytes, other.update_bytes),
        )


def measure_rates(model: Recommender) -> Rates:
    """Rates for a model's tables on this machine, now; torch should be on one thread."""
    mib = model.n_items * model.item_layout.width * 4 / 2**20
    # as many rows as the table has, so that what is written is no larger than the sums and stays as near the core
    return Rates(matmul_rate(), read_bandwidth(mib), gather_bandwidth(mib, rows=model.n_items, repeats=51))


def read_bandwidth(table_mib: float, rows: int = 1 << 18, repeats: int = 7) -> float:
    """Bytes a second read from random rows of 64 float32 that are added up, 128 to a sum; ids and sums not counted.

    Args:
        table_mib: size of the table, MiB.
        rows: rows read per call.
        repeats: measured calls, of which the median is taken.
    """
    n_table = max(1, int(table_mib * 2**20) // (4 * ROW_FLOATS))
    ids = torch.from_numpy(generator(0, Purpose.SYNTHETIC).integers(n_table, size=rows)).view(-1, 128)
    table = torch.ones(n_table, ROW_FLOATS)
    seconds = median_cpu_seconds(lambda: F.embedding_bag(ids, table, mode="sum"), repeats, warmup=2)
    return 4 * ROW_FLOATS * rows / seconds


def pass_cost(model: Recommender, entries: int, clients: int, local_epochs: int) -> Cost:
    """Cost of one pass.

    Args:
        model: its layers.
        entries: positives and negatives of all clients together.
        clients: how many train.
        local_epochs: steps each client takes.
    """
    width = model.item_layout.width
    rows = 4 * entries * width
    if model.bilinear is not None:
        return Cost(entries * width * (2 * local_epochs + 1), rows * 2 * local_epochs, 2 * rows)
    shapes = model.dense_shapes
    item_half, user_half = _size(shapes["mlp_item_weight"]), _size(shapes["mlp_user_weight"])
    first = model.n_items * item_half + (local_epochs - 1) * entries * item_half + local_epochs * clients * user_half
    deeper = sum(_size(shape) for name, shape in shapes.items() if name.endswith("weight")) - item_half - user_half
    if model.name == "deepfm":
        # the inner product of the factorisation machine has no parameters of its own
        deeper += width
    return Cost(3 * (first + local_epochs * entries * deeper), rows, 2 * rows)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size
