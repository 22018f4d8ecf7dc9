"""Where tensors live: `auto`, `cpu`, `cuda` or `cuda:N`, resolved once a run."""

from __future__ import annotations

import torch

from fedrec_unlearn.errors import ConfigError, DependencyError


def resolve_device(name: str) -> torch.device:
    """The device a configuration names.

    Args:
        name: `auto` (CUDA where there is one, else the CPU), `cpu`, `cuda` or `cuda:N`.

    Raises:
        ConfigError: not a device name.
        DependencyError: CUDA was asked for and this torch or machine has none, or not that many.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and (kind == "cpu" or not index.isdigit())):
        raise ConfigError(f"device: {name!r} is not known; use auto, cpu, cuda or cuda:N")
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(index or 0) >= count:
            built = "has no CUDA support" if torch.version.cuda is None else f"sees {count} CUDA device(s)"
            raise DependencyError(
                f"device: {name!r} was asked for, but the installed torch {torch.__version__} {built}; "
                "use --device auto or cpu, or install a CUDA build of torch"
            )
    return torch.device(name)
