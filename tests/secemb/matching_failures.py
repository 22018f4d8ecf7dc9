"""How often a client's items do not all get a bin: `python tests/secemb/matching_failures.py [--trials N] [--items M]`.

Random clients with as many items as are allowed, the default number of bins, k = 4.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from fedrec_unlearn.secemb.batch_code import Code
from fedrec_unlearn.secemb.matching import match
from fedrec_unlearn.secemb.parameters import Parameters
from fedrec_unlearn.seeds import Purpose, generator


class Failures(NamedTuple):
    """Of some random clients."""

    bins: int
    clients: int
    """Clients with an item that got none."""
    items: int
    """Items that got none."""


def failures(n_items: int, max_items: int, trials: int) -> Failures:
    """Match that many random clients."""
    code = Code(Parameters(n_items, 64, 64, 0, max_items, limit=1000, max_clients=100))
    rng = generator(0, Purpose.BATCH_CODE, n_items, max_items)
    clients = items = 0
    for _ in range(trials):
        missing = int((match(code, rng.choice(n_items, max_items, replace=False, shuffle=False)) < 0).sum())
        clients += missing > 0
        items += missing
    return Failures(code.parameters.bins, clients, items)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--items", type=int, default=5_000, help="in the catalogue")
    asked = parser.parse_args()
    print(f"{asked.items} items in the catalogue, {asked.trials} clients each")
    print("items held   bins   clients with an item left out   items left out")
    for most in (4, 8, 16, 32, 64, 200, 500):
        found = failures(asked.items, most, asked.trials)
        print(f"{most:10}   {found.bins:4}   {found.clients:29}   {found.items:14}")
