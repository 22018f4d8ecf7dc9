"""``python -m fedrec_unlearn.data.synthetic --out FOLDER``: make a synthetic set; by default the packaged one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from fedrec_unlearn.data.synthetic import SyntheticConfig, generate, write_atomic
from fedrec_unlearn.errors import FedRecError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: of the command line, those of the process if not given.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(
        prog="python -m fedrec_unlearn.data.synthetic",
        description="Make a synthetic recommender data set with attributes planted at a known strength, as RecBole's "
        "atomic files. With no option but --out, the files are those that come with the package, bit for bit.",
    )
    parser.add_argument("--out", required=True, type=Path, help="folder for synthetic.inter, .user and .item")
    for field in fields(SyntheticConfig):
        option = "--" + field.name.replace("_", "-")
        kind = type(field.default)
        parser.add_argument(option, type=kind, default=field.default, help=f"default {field.default}")
    given = vars(parser.parse_args(arguments))
    folder = given.pop("out")
    try:
        dataset = generate(SyntheticConfig(**given))
        write_atomic(dataset, folder)
    except FedRecError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(
        f"{folder}: {dataset.n_interactions} interactions of {dataset.n_users} users and {dataset.n_items} items, "
        f"attributes {', '.join(dataset.attributes)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
