"""Train the same run with the reference and the vectorised engine, in float mode and in ring mode.

    python examples/04_engines.py
    python examples/04_engines.py --model ncf --rounds 10

In float mode the engines agree to rounding. In ring mode a client's update is rounded to a grid before it is summed,
and the tensors come out equal to the last bit, unless rounding errors put a number on either side of the middle
between two points of the grid. How often to expect that is estimated at the end.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

import fedrec_unlearn as fedrec
from fedrec_unlearn.federation.reference import ReferenceEngine
from fedrec_unlearn.federation.vectorised import VectorisedEngine
from fedrec_unlearn.pipeline.assembly import reopen, trained_state


def trained(config: fedrec.Config, folder: Path, **options: object) -> Path:
    federation = dataclasses.replace(config.federation, **options)  # type: ignore[arg-type]
    return fedrec.train(dataclasses.replace(config, federation=federation, output=str(folder)))


def compare(title: str, left: Path, right: Path) -> None:
    a, b = load_file(left / "latest.safetensors"), load_file(right / "latest.safetensors")
    equal = all(torch.equal(a[name], b[name]) for name in a)
    apart = max(float((a[name].double() - b[name].double()).abs().max()) for name in a)
    print(f"  {title:34} {'equal to the last bit' if equal else f'largest difference {apart:.1e}'}")


def expected_disagreements(run: Path) -> float:
    """Numbers of one more round for which the engines are expected to round to different points of the grid."""
    folder, assembly = reopen(run)
    state, _ = trained_state(folder, assembly, "latest")
    work = assembly.workload
    exact = dataclasses.replace(work, config=dataclasses.replace(work.config, ring=False))  # float64, not rounded yet
    reference, total, number = ReferenceEngine(exact), 0.0, state.server.rounds_done
    users = work.eligible()[: work.config.clients_per_round]
    for local, block in VectorisedEngine(exact).observe(state, users, number):
        for row, user in enumerate(local.users.tolist()):
            update, private, _, counts = reference.train_one(state, user, number)
            rows = block.item_delta[row][: len(update.item_ids)] * counts
            total += float((rows - update.item_rows).abs().sum() + (block.private[row] - private).abs().sum())
            for name, value in update.dense.items():
                total += float((block.dense_delta[name][row] * counts - value).abs().sum())
    # two numbers d apart have a midpoint of the grid between them with probability d / spacing
    return total * 2.0**work.config.ring_fraction_bits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default="synthetic")
    parser.add_argument("--model", default="mf", choices=("mf", "ncf", "fm", "deepfm"))
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    config = fedrec.load_config(
        None, {"data.name": args.data, "model.name": args.model, "federation.rounds": args.rounds}
    )
    print(f"{args.model} on {args.data}, {args.rounds} rounds of {config.federation.clients_per_round} clients")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for ring in (False, True):
            mode = "ring" if ring else "float"
            slow = trained(config, place / f"{mode}-slow", engine="reference", ring=ring)
            fast = trained(config, place / f"{mode}-fast", engine="vectorised", ring=ring)
            small = trained(config, place / f"{mode}-small", engine="vectorised", ring=ring, block_mib=0.05)
            print(f"{mode} mode")
            compare("reference against vectorised", slow, fast)
            compare("blocks of 0.05 MiB against default", small, fast)
        print(f"ring mode: {expected_disagreements(fast):.0e} numbers a round are expected to round differently")


if __name__ == "__main__":
    main()
