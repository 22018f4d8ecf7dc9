"""The RecBole plug-in: users of a RecBole pipeline as clients, attributes unlearned, attacks among its metrics.

    from fedrec_unlearn.recbole import run_fedrec

    result = run_fedrec(model="BPR", dataset="ml-100k", config_dict={"unlearn": "gender"})

or with RecBole's own objects, `FederatedTrainer(config, model)`; or by name in its own `run_recbole(model="FedMF")`.

Importing this package makes RecBole 1.2.1 work beside current numpy, scipy, pandas and torch (`prepare`) and puts our
models and metrics into it (`registration`). It is the only package here that imports `recbole`, and nothing outside
needs it. Without recbole, or on Python 3.12 and later, the import raises `DependencyError` with the remedy.
"""

from __future__ import annotations

from fedrec_unlearn.recbole._compat import prepare

prepare()

from fedrec_unlearn.recbole.configuration import make_config, make_trainer  # noqa: E402
from fedrec_unlearn.recbole.metrics import AttackAUC, AttackBAcc  # noqa: E402
from fedrec_unlearn.recbole.native import FedDeepFM, FedFM, FedMF, FedNCF  # noqa: E402
from fedrec_unlearn.recbole.registration import register  # noqa: E402
from fedrec_unlearn.recbole.run import objective_function, run_fedrec  # noqa: E402
from fedrec_unlearn.recbole.trainer import FederatedTrainer  # noqa: E402

register()

__all__ = [
    "AttackAUC",
    "AttackBAcc",
    "FedDeepFM",
    "FedFM",
    "FedMF",
    "FedNCF",
    "FederatedTrainer",
    "make_config",
    "make_trainer",
    "objective_function",
    "prepare",
    "register",
    "run_fedrec",
]
