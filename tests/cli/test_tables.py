from __future__ import annotations

import io
import json
from typing import Any

import pytest

from fedrec_unlearn.cli.tables import (
    Table,
    attack_table,
    comparison_table,
    figures_of_runs,
    plain_text,
    print_table,
    ranking_table,
    unlearning_table,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_ranking_stands_beside_the_popularity_baseline(run_folder: Any) -> None:
    (figures,) = figures_of_runs([run_folder("a")])
    assert plain_text(ranking_table(figures)) == (  # type: ignore[arg-type]
        "Recommendation, best round 450\n"
        "  metric           valid    test  most popular items, test\n"
        "* ndcg@10/full    0.2412  0.2901                    0.1607\n"
        "  recall@10/full  0.2500  0.2402                         -\n"
        "* chose the best round, on validation data\n"
    )


def test_every_attacker_stands_beside_chance_and_majority(run_folder: Any) -> None:
    (figures,) = figures_of_runs([run_folder("a")])
    table = attack_table(figures)
    assert table is not None
    assert table.rows == (
        ("gender", "user_embedding", "logistic", "0.680 [0.660, 0.700]", "0.500", "-", "0.711", "-"),
        ("gender", "user_embedding", "knn", "0.610 [0.590, 0.630]", "0.500", "-", "0.711", "-"),
    )
    assert table.strong == {0}


def test_what_was_not_done_has_no_table(run_folder: Any) -> None:
    folder = run_folder("a", attacked=False)
    (folder / "metrics.json").unlink()
    (figures,) = figures_of_runs([folder])
    assert ranking_table(figures) is None
    assert attack_table(figures) is None


def test_runs_are_compared_by_what_they_share(run_folder: Any) -> None:
    table = comparison_table(figures_of_runs([run_folder("a"), run_folder("b", attacked=False)]))
    assert table.columns == ("run", "test ndcg@10/full", "gender")
    assert table.rows == (("a", "0.2901", "0.680 [0.660, 0.700] (0.500)"), ("b", "0.2901", "-"))


def test_columns_are_aligned_and_no_line_ends_in_blanks() -> None:
    text = plain_text(Table("T", ("name", "n"), (("a", "1"), ("longer", "100")), figures=frozenset({1})))
    assert text == "T\nname      n\na         1\nlonger  100\n"


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "file"])
def test_names_are_shown_as_they_are_wherever_they_go(stream: io.StringIO) -> None:
    print_table(Table("T [x]", ("na[me]",), (("[red]a[/red]",),), strong=frozenset({0}), note="n [y]"), stream)
    for part in ("T [x]", "na[me]", "* [red]a[/red]", "n [y]"):
        assert part in stream.getvalue()


def test_what_unlearning_did_is_one_table_with_both_states(run_folder: Any) -> None:
    folder = run_folder("runs/a")
    described = json.loads((folder / "run.json").read_text())
    described["unlearn"] = {
        "method": "moments", "attributes": ["gender"], "epsilon": None, "chosen": False, "source": "base",
        "secure_sums": True, "seconds": 0.1, "bytes_up": 10, "bytes_down": 5, "known": {"gender": 943},
        "missing": {"gender": 0}, "pooled_rows": False,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(described))
    attack = json.loads((folder / "attack.json").read_text())
    attack["before"] = json.loads(json.dumps(attack["results"]))
    for entry in attack["results"]:
        entry["balanced_accuracy"] |= {"mean": 0.52, "low": 0.5, "high": 0.54}
    control = json.loads(json.dumps(attack["results"][0])) | {
        "surface": "shuffled_labels",
        "control": "shuffled_labels",
    }
    attack["results"].append(control)
    (folder / "attack.json").write_text(json.dumps(attack))
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["before"] = {name: value / 0.8 for name, value in metrics["test"].items()}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (figures,) = figures_of_runs([folder])
    table = unlearning_table(figures)
    assert table is not None
    assert table.title == "Unlearning gender by moments"
    assert table.rows[0][-1] == "0.800 kept"
    assert len(table.rows) == len(figures.ranking) + 1  # a control is no leak
    leak = table.rows[-1]
    assert leak[:2] == ("gender (unlearned)", "user_embedding")
    assert leak[2].startswith("0.680")
    assert leak[3] == "0.520 [0.500, 0.540]"
    assert leak[4] == "0.500"


def test_a_run_that_unlearned_nothing_has_no_such_table(run_folder: Any) -> None:
    (figures,) = figures_of_runs([run_folder("runs/a")])
    assert unlearning_table(figures) is None
