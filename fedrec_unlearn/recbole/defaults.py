"""Default options of federated runs, one YAML file a model in `properties/`, as RecBole has them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).parent / "properties"


def models_with_defaults() -> list[str]:
    """Names of the models that have a file of their own."""
    return sorted(file.stem for file in _FOLDER.glob("*.yaml") if file.stem != "overall")


def model_defaults(name: str) -> dict[str, Any]:
    """Options a federated run of a model has unless the user says otherwise; lists and dicts are copies.

    Args:
        name: RecBole's name of the model; one without a file of its own gets what all have.
    """
    own = _read(name) if name in models_with_defaults() else {}
    return {**_read("overall"), **own}


@cache
def _text(name: str) -> str:
    return (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")


def _read(name: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(_text(name))
    return values
