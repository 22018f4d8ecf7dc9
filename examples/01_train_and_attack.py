"""Train a federated recommender, unlearn gender, attack what there was before and after, and write a report.

python examples/01_train_and_attack.py                  # made-up data, some seconds
python examples/01_train_and_attack.py --data ml-100k   # MovieLens 100K, some minutes
"""

from __future__ import annotations

import argparse
import json

import fedrec_unlearn as fedrec

SMALL = {
    "data.name": "synthetic",
    "model.embedding_dim": 16,
    "federation.rounds": 200,
    "federation.clients_per_round": 50,
    "evaluation.every": 10,
    # `noise` is planted so that nobody can infer it: what an attack says of it must be chance
    "attack.attributes": ["gender", "noise"],
    "attack.attackers": ["logistic", "knn"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", choices=("synthetic", "ml-100k"), default="synthetic")
    data = parser.parse_args().data

    # the configuration `demo` comes with the package; what is given here lies over it
    config = fedrec.load_config("demo", SMALL if data == "synthetic" else {})
    run = fedrec.train(config)
    metrics = json.loads((run / "metrics.json").read_text())
    chosen = metrics["selected_by"]
    print(f"{run}: best after round {metrics['best_round']} of {config.federation.rounds}")
    print(f"test {chosen}: {metrics['test'][chosen]:.3f}, most popular items {metrics['popularity'][chosen]:.3f}")

    # `demo` unlearns gender after training, and the run keeps the state before
    print("\nWhat the users' private embeddings give away (balanced accuracy; chance is what guessing reaches):")
    audit = fedrec.attack(run, before=True)
    for before, after in zip(audit["before"], audit["results"], strict=True):
        accuracies = (f"{result['balanced_accuracy']['mean']:.3f}" for result in (before, after))
        print(
            f"  {after['attribute']:8} {after['attacker']:10} {' -> '.join(accuracies)}   chance {after['chance']:.3f}"
        )

    print(f"\nReport: {fedrec.write_report([run])}")


if __name__ == "__main__":
    main()
