"""RecBole with users as clients: train, unlearn gender, and audit RecBole's own training with the same attackers.

    python examples/05_recbole.py [--epochs 30]

1. `run_fedrec`: one call in the manner of RecBole's `run_recbole`.
2. RecBole's own trainer on its own BPR, with two further metrics that attack what it learnt.
3. `FederatedTrainer` in the place of RecBole's trainer, on the same configuration, data and model.

Needs the extra `recbole` (Python 3.11). Nothing is written to this folder.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings

from recbole.data import create_dataset, data_preparation
from recbole.utils import get_model, init_seed

from fedrec_unlearn.recbole import FederatedTrainer, make_config, make_trainer, run_fedrec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=30, help="passes over the clients (default 30)")
    epochs = parser.parse_args().epochs
    warnings.simplefilter("ignore", FutureWarning)
    options = {
        "epochs": epochs,
        "eval_step": 5,
        "metrics": ["NDCG", "AttackAUC", "AttackBAcc"],
        "valid_metric": "NDCG@10",
        "sensitive_fields": ["gender"],
        "attack_attackers": ["logistic", "knn"],
        "show_progress": False,
    }

    result = run_fedrec(model="BPR", dataset="ml-100k", config_dict={**options, "unlearn": "gender"}, verbose=False)
    for when, name in (("before", "test_result_before"), ("after", "test_result")):
        print(f"clients, {when:6}", "  ".join(f"{metric} {value:.3f}" for metric, value in result[name].items()))
    majority = result["attack"]["gender"][0]["majority"]
    print(f"chance: AUC 0.5, balanced accuracy 0.5; naming the larger class alone: accuracy {majority:.3f}")

    config = make_config("BPR", "ml-100k", options)
    init_seed(config["seed"], config["reproducibility"])
    train, valid, test = data_preparation(config, create_dataset(config))
    model = get_model("BPR")(config, train.dataset)
    central = make_trainer(config, model)
    central.fit(train, valid, verbose=False)
    print("central        ", "  ".join(f"{metric} {value:.3f}" for metric, value in central.evaluate(test).items()))

    trainer = FederatedTrainer(config, get_model("BPR")(config, train.dataset))
    trainer.fit(train, valid, verbose=False)
    trainer.unlearn("gender", method="leace")
    print("leace          ", "  ".join(f"{metric} {value:.3f}" for metric, value in trainer.evaluate(test).items()))
    with tempfile.TemporaryDirectory() as folder:
        print("saved as plain tensors:", trainer.save(f"{folder}/bpr.pth").name)


if __name__ == "__main__":
    main()
