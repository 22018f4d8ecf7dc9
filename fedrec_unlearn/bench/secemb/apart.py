"""One measurement as a process of its own: settings as JSON on standard input, figures as JSON on the last line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from fedrec_unlearn.bench.secemb.timing import client_costs, server_costs
from fedrec_unlearn.bench.secemb.whole_round import https_round, local_round

MEASUREMENTS: dict[str, Callable[..., dict[str, Any]]] = {
    "client": client_costs,
    "server": server_costs,
    "local round": local_round,
    "https round": https_round,
}


def main() -> None:
    """Measure what the first argument names."""
    print(json.dumps(MEASUREMENTS[sys.argv[1]](**json.load(sys.stdin))))


if __name__ == "__main__":
    main()
