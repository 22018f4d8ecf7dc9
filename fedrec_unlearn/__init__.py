"""User-level federated recommendation with attribute-inference audits.

Blocks of user clients train a recommender with a server, and the result is attacked to see what it tells of the
users. ``fedrec --help`` is the command line; the same verbs are functions here::

    import fedrec_unlearn as fedrec

    config = fedrec.load_config("demo", {"federation.rounds": 100})
    run = fedrec.train(config)
    forgetful = fedrec.unlearn(run, fedrec.UnlearnConfig(attributes=("gender",), method="moments"))
    audit = fedrec.attack(forgetful, before=True)
    page = fedrec.write_report([forgetful])

Names are resolved on first use, so importing the package loads neither torch nor anything else that is large.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedrec_unlearn.config import (
        AttackConfig,
        Config,
        DataConfig,
        EvaluationConfig,
        FederationConfig,
        ModelConfig,
        SplitConfig,
        UnlearnConfig,
    )
    from fedrec_unlearn.config_file import config_from_dict, config_to_dict, dump_config, load_config
    from fedrec_unlearn.errors import FedRecError
    from fedrec_unlearn.pipeline import RunResult, attack, export, resume, run, sweep, train, unlearn
    from fedrec_unlearn.pipeline import report as write_report
    from fedrec_unlearn.progress import Progress, SilentProgress

__version__ = "0.1.0"

__all__ = [
    "AttackConfig",
    "Config",
    "DataConfig",
    "EvaluationConfig",
    "FedRecError",
    "FederationConfig",
    "ModelConfig",
    "Progress",
    "RunResult",
    "SilentProgress",
    "SplitConfig",
    "UnlearnConfig",
    "__version__",
    "attack",
    "config_from_dict",
    "config_to_dict",
    "dump_config",
    "export",
    "load_config",
    "resume",
    "run",
    "sweep",
    "train",
    "unlearn",
    "write_report",
]

_HOME = {
    **dict.fromkeys(
        (
            "AttackConfig",
            "Config",
            "DataConfig",
            "EvaluationConfig",
            "FederationConfig",
            "ModelConfig",
            "SplitConfig",
            "UnlearnConfig",
        ),
        "config",
    ),
    **dict.fromkeys(("config_from_dict", "config_to_dict", "dump_config", "load_config"), "config_file"),
    "FedRecError": "errors",
    **dict.fromkeys(("Progress", "SilentProgress"), "progress"),
    **dict.fromkeys(
        ("RunResult", "attack", "export", "resume", "run", "sweep", "train", "unlearn", "write_report"), "pipeline"
    ),
}
# a package of this name exists, and importing it would replace a function called `report`
_RENAMED = {"write_report": "report"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), _RENAMED.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
