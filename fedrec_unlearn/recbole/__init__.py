"""The RecBole plug-in: the only package here that imports `recbole`, and only inside functions.

`prepare` makes RecBole 1.2.1 work beside current numpy, scipy, pandas and torch. `make_config` and `make_trainer` are
RecBole's own, kept away from the command line and from folders nobody asked for.
"""

from __future__ import annotations

from fedrec_unlearn.recbole._compat import prepare
from fedrec_unlearn.recbole.configuration import make_config, make_trainer

__all__ = ["make_config", "make_trainer", "prepare"]
