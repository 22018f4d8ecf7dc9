from __future__ import annotations

import io
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
