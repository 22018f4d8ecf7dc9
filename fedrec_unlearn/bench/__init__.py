"""Studies: many runs over the same seeds, put into one table and held against targets.

A study is a YAML file: of attacks (`study_file`: arms that unlearn, attacked alike) or of transports
(`secemb.study_file`: what a round costs and what lossy rivals lose). `run_study` does what is not done of it yet and
writes its tables. Names are resolved on first use, so that a process that measures memory need not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedrec_unlearn.bench.kinds import AnyStudy, find_study, load_study, paper_studies, plan, study_tables
    from fedrec_unlearn.bench.run import check_data, run_study
    from fedrec_unlearn.bench.secemb.study import TransportStudy
    from fedrec_unlearn.bench.study import Study

__all__ = [
    "AnyStudy",
    "Study",
    "TransportStudy",
    "check_data",
    "find_study",
    "load_study",
    "paper_studies",
    "plan",
    "run_study",
    "study_tables",
]

_HOME = {
    **dict.fromkeys(("AnyStudy", "find_study", "load_study", "paper_studies", "plan", "study_tables"), "kinds"),
    **dict.fromkeys(("check_data", "run_study"), "run"),
    "Study": "study",
    "TransportStudy": "secemb.study",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
