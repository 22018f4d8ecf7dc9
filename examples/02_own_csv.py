"""Bring your own data: one CSV of interactions, one of users; then train, attack and report.

    python examples/02_own_csv.py

The files are made up here, in the folder `shop`, so that the example runs anywhere: customers of a shop, who are
members or guests. Members buy mostly among the first half of the articles; ages are drawn at random, so that nothing
can be inferred of them.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

import fedrec_unlearn as fedrec
from fedrec_unlearn.seeds import Purpose, generator

CUSTOMERS, ARTICLES, BOUGHT = 200, 80, 15


def write_files(folder: Path) -> None:
    draw = generator(2, Purpose.SYNTHETIC)
    member = draw.random(CUSTOMERS) < 0.4
    first_half = np.arange(ARTICLES) < ARTICLES // 2
    folder.mkdir(exist_ok=True)
    with (folder / "shop.csv").open("w", newline="") as purchases:
        table = csv.writer(purchases)
        table.writerow(["customer", "article", "day"])
        for customer in range(CUSTOMERS):
            likely = np.where(first_half == member[customer], 4.0, 1.0)
            articles = draw.choice(ARTICLES, BOUGHT, replace=False, p=likely / likely.sum())
            table.writerows([f"c{customer}", f"a{article}", day] for day, article in enumerate(articles))
    with (folder / "shop.users.csv").open("w", newline="") as customers:
        table = csv.writer(customers)
        table.writerow(["customer", "status", "age"])
        for customer in range(CUSTOMERS):
            # an empty cell means "not known": such a customer trains, but is left out of the attack
            age = "" if customer % 20 == 0 else int(draw.integers(16, 75))
            table.writerow([f"c{customer}", "member" if member[customer] else "guest", age])


def main() -> None:
    folder = Path("shop")
    write_files(folder)
    print("Wrote", ", ".join(str(path) for path in sorted(folder.iterdir())))

    config = fedrec.load_config(
        None,
        {
            "data.name": "shop",
            "data.dir": str(folder),
            "data.user_column": "customer",
            "data.item_column": "article",
            "data.timestamp_column": "day",
            "data.age_bounds": [30, 50],
            "split.method": "leave_one_out",
            "split.order": "time",
            "model.embedding_dim": 8,
            "federation.rounds": 100,
            "federation.clients_per_round": 50,
            "evaluation.select_by": "hr@10",
            "attack.attackers": ["logistic"],
        },
    )
    result = fedrec.run(config)
    described = json.loads((result.run / "run.json").read_text())["data"]
    print(f"Read {described['n_users']} users, {described['n_items']} items and", described["attributes"])
    test, popular = result.metrics["test"]["hr@10/full"], result.metrics["popularity"]["hr@10/full"]
    print(f"Test hr@10/full: {test:.3f}, most popular items {popular:.3f}")
    assert result.attack is not None
    for found in result.attack["results"]:
        accuracy = found["balanced_accuracy"]["mean"]
        print(f"  {found['attribute']:6} {accuracy:.3f}   chance {found['chance']:.3f}, {found['n_users']} users")
    print("Report:", result.report)


if __name__ == "__main__":
    main()
