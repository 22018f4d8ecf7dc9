"""`AttackAUC` and `AttackBAcc`: what an attacker reads from the users' rows, as metrics of RecBole's evaluator.

They stand in `metrics` beside Recall or AUC, for models trained by clients and for stock models that RecBole trains
centrally. `sensitive_fields` names the attributes; the attackers are those of `fedrec_unlearn.attacks`, tuned in nested
cross-validation, and `attack_*` options choose among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from recbole.evaluator.base_metric import AbstractMetric
from recbole.utils import EvaluatorType

from fedrec_unlearn.attacks import AttackResult
from fedrec_unlearn.data.types import Attribute
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.recbole.clients import attack_rows, strongest
from fedrec_unlearn.recbole.options import attack_options, sensitive_fields

ROWS, USERS, LABELS, RESULTS = "fedrec.rows", "fedrec.users", "fedrec.labels.", "fedrec.results"
"""Names under which RecBole's collector hands rows (n_users, width), ids of users that train, and labels on."""


class _AttackMetric(AbstractMetric):  # type: ignore[misc]
    smaller = True
    metric_type = EvaluatorType.RANKING
    metric_need = (ROWS,)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.config = config

    def results(self, collected: Any) -> dict[str, list[AttackResult]]:
        """Results of every attacker by attribute; computed once for both metrics of an evaluation."""
        if RESULTS not in collected:
            names = sensitive_fields(self.config)
            if not names:
                raise ConfigError(
                    f"metrics: {type(self).__name__} needs the attributes to attack, for example "
                    "sensitive_fields: [gender]"
                )
            users = collected.get(USERS).numpy()
            rows = collected.get(ROWS).double().numpy()[users]
            found = {}
            for name in names:
                labels = collected.get(LABELS + name).numpy()[users]
                classes = tuple(str(k) for k in range(int(labels.max(initial=0)) + 1))
                attribute = Attribute(name, classes, labels.astype(np.int64))
                found[name] = attack_rows(rows, [attribute], attack_options(self.config))
            collected.set(RESULTS, found)
        results: dict[str, list[AttackResult]] = collected.get(RESULTS)
        return results


class AttackBAcc(_AttackMetric):
    """Balanced accuracy of the strongest attacker for each attribute: `attackbacc@gender`.

    The strongest is the one farthest from chance, 1/K for K classes, in either direction: an attacker that is reliably
    wrong has found the attribute too. As `valid_metric` smaller counts as better, also below chance, where it is not:
    let a ranking metric decide, and read this one by its distance from chance.

    Source: Brodersen et al. 2010, eq. 1.
    """

    def calculate_metric(self, dataobject: Any) -> dict[str, float]:
        """`attackbacc@<attribute>` -> balanced accuracy, mean over `attack_seeds`."""
        return {
            f"attackbacc@{name}": round(strongest(results).balanced_accuracy.mean, self.decimal_place)
            for name, results in self.results(dataobject).items()
        }


class AttackAUC(_AttackMetric):
    """Area under the ROC curve of the strongest attacker for each attribute: `attackauc@gender`.

    One class against the rest, averaged over classes; 0.5 is chance whatever the classes' sizes. The strongest is the
    one farthest from 0.5, in either direction.
    """

    def calculate_metric(self, dataobject: Any) -> dict[str, float]:
        """`attackauc@<attribute>` -> area, mean over `attack_seeds`."""
        return {
            f"attackauc@{name}": round(_farthest_auc(results), self.decimal_place)
            for name, results in self.results(dataobject).items()
        }


def _farthest_auc(results: Sequence[AttackResult]) -> float:
    return max((result.auc.mean for result in results), key=lambda auc: abs(auc - 0.5))


METRICS: dict[str, type[_AttackMetric]] = {kind.__name__.lower(): kind for kind in (AttackAUC, AttackBAcc)}
"""The metrics by the name RecBole looks them up under."""
