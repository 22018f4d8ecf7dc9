"""Attack a run with your own classifier, in two ways.

    python examples/03_outside_attack.py

1. Export: `fedrec.export` writes what an attacker would see of each user to a plain .npz file. Whatever reads numpy
   arrays can attack it; here it is scikit-learn's cross-validation.
2. `AttackerSpec`: the classifier is put into this package's own protocol (folds, tuning, several seeds, controls).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import fedrec_unlearn as fedrec
from fedrec_unlearn.attacks import AttackerSpec, infer_attribute, scaled
from fedrec_unlearn.metrics import balanced_accuracy


def main() -> None:
    config = fedrec.load_config(
        None,
        {"data.name": "synthetic", "model.embedding_dim": 16, "federation.rounds": 200, "evaluation.every": 10},
    )
    run = fedrec.train(config)
    table = np.load(fedrec.export(run, Path("users.npz")))
    print("users.npz:", ", ".join(f"{name} {table[name].shape}" for name in table.files))

    features, labels, classes = table["representation"], table["attribute_gender"], table["classes_gender"].tolist()
    known = labels >= 0  # -1 stands for "not known"
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, class_weight="balanced"))
    predicted = cross_val_predict(model, features[known], labels[known], cv=5)
    print(f"\nOutside: balanced accuracy {balanced_accuracy(predicted, labels[known]):.3f}, chance {1 / len(classes)}")

    svm = AttackerSpec("svm", SVC(class_weight="balanced"), {"C": (0.1, 1.0, 10.0)}, preparation=scaled())
    bayes = AttackerSpec("naive_bayes", GaussianNB(), preparation=scaled())
    print("\nInside, tuned in inner folds, three seeds; then the same on shuffled labels, where nothing can be found:")
    for shuffled in (False, True):
        for result in infer_attribute(
            features,
            labels,
            attribute="gender",
            classes=classes,
            attackers=("logistic", svm, bayes),
            control_shuffled=shuffled,
        ):
            found = result.balanced_accuracy
            print(f"  {'shuffled' if shuffled else 'gender':8} {result.attacker:12} {found.mean:.3f} ± {found.std:.3f}")


if __name__ == "__main__":
    main()
