from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn.bench.measure import complete
from fedrec_unlearn.bench.run import study_content
from fedrec_unlearn.bench.study import Study, tasks_of
from fedrec_unlearn.bench.tables import StudyTable, study_tables


@pytest.fixture
def content(study: Study, steps: Any, tmp_path: Path) -> dict[str, Any]:
    return study_content(study, [complete(task, steps) for task in tasks_of(study, tmp_path)], [])


def test_there_is_a_table_for_each_group_attribute_and_surface(content: dict[str, Any]) -> None:
    tables = study_tables(content)
    assert [table.title for table in tables] == [
        "Gender, attackers see user embedding",
        "Age, attackers see user embedding",
        "Gender over strengths, attackers see user embedding",
        "Targets",
    ]
    assert [row[0] for row in tables[2].rows] == [
        "no unlearning", "gradient reversal, ε 0.1", "gradient reversal, ε 1",
    ]  # fmt: skip


def test_a_row_holds_what_the_summary_says(content: dict[str, Any]) -> None:
    table = study_tables(content)[1]
    entry = next(e for e in content["summary"] if (e["arm"], e["attribute"]) == ("leace-gender", "age"))
    row = dict(zip(table.columns, next(r for r in table.rows if r[0] == "linear erasure"), strict=True))
    worst = entry["worst"]
    assert row["worst, 95 % interval"] == f"{worst['mean']:.3f} [{worst['low']:.3f}, {worst['high']:.3f}]"
    assert row["by"] == worst["attacker"]
    assert row["knn"] == f"{entry['attackers']['knn']['mean']:.3f}"
    assert row["ndcg@10/30neg"] == f"{entry['utility']['ndcg@10/30neg']['ratio']:.3f}"
    assert "guessing reaches 0.333 (18-34 40, 35-54 40, 55+ 40)" in table.note


def test_markdown_has_a_cell_for_each_column() -> None:
    table = StudyTable("T", ("arm", "x"), (("a|b", "1.0"),), note="A note.")
    assert table.markdown() == "### T\n\n| arm | x |\n| --- | ---: |\n| a\\|b | 1.0 |\n\nA note.\n"
