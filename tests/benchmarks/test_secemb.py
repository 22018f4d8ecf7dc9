"""The paper's table comes out of its formula, and the program prints every figure it is there for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import secemb
from fedrec_unlearn.bench import TransportStudy, find_study, load_study
from fedrec_unlearn.bench.secemb.sizes import dense_sharing_bytes, paper_secemb_bytes, paper_secfedrec_bytes
from fedrec_unlearn.errors import ConfigError

PRINTED = [
    ("ML100K", 1_682, 200, 0.86, 0.17, 5.0),
    ("ML1M", 3_883, 300, 1.99, 0.27, 7.4),
    ("ML10M", 10_681, 300, 5.47, 0.28, 19.2),
    ("ML25M", 62_423, 500, 31.96, 0.51, 62.1),
    ("Yelp", 93_386, 500, 47.81, 0.52, 91.2),
]
"""Mai et al. 2025, upload of a client and round: items, m', SecFedRec MB, SecEmb MB, ratio."""


@pytest.mark.parametrize(("name", "items", "most", "theirs", "ours", "ratio"), PRINTED)
def test_the_formula_prints_the_papers_table(
    name: str, items: int, most: int, theirs: float, ours: float, ratio: float
) -> None:
    dense, sparse = paper_secfedrec_bytes(items), paper_secemb_bytes(items, most)
    assert (round(dense / 1e6, 2), round(sparse / 1e6, 2), round(dense / sparse, 1)) == (theirs, ours, ratio)


def test_the_study_holds_what_the_paper_printed() -> None:
    study = load_study(find_study("secemb"))
    assert isinstance(study, TransportStudy)
    found = [
        (c.name, c.n_items, c.max_items, c.printed.secfedrec, c.printed.secemb, c.printed.ratio)
        for c in study.costs.catalogues
        if c.printed
    ]
    assert found == PRINTED


def test_dense_sharing_is_the_papers_secfedrec_and_a_seed_halves_it() -> None:
    both, compressed = dense_sharing_bytes(1_682, 64, 32)
    assert both == paper_secfedrec_bytes(1_682)
    assert compressed == 1_682 * 64 * 4 + 32


def figures_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    secemb.main(arguments)
    printed = capsys.readouterr().out
    figures: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return figures, printed


def test_a_quick_run_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn")
    figures, printed = figures_of(["--quick", "--catalogues", "ML100K"], capsys)
    assert figures["benchmark"] == "secemb"
    assert [(entry["catalogue"], entry["encoding"]) for entry in figures["costs"]] == [
        ("ML100K", "binned"), ("ML100K", "paper"),
    ]  # fmt: skip
    for entry in figures["costs"]:
        for sizes in entry["client"]["bytes"].values():
            assert sizes["upload"] == sizes["request"] + sizes["update"]
            assert sizes["download"] == sizes["response"] > 0
        once, whole = entry["client"]["bytes"]["once"], entry["client"]["bytes"]["whole"]
        # what is not sent twice is forwarded, and stands behind a header instead of a hash and a seal
        assert once["upload"] + once["forwarded"] == pytest.approx(whole["upload"], rel=0.01)
        assert whole["forwarded"] == 0
        assert set(entry["client"]["milliseconds"]) == {"keys", "session", "request", "rows", "update"}
        assert entry["ratio"] == pytest.approx(861_184 / once["upload"])
        for found in entry["server"]:
            assert set(found["milliseconds"]) == {"receive", "retrieve", "aggregate"}
            assert all(value > 0 for value in found["milliseconds"].values())
    binned, paper = figures["costs"]
    # 31 leaves in each of 224 trees against 1,682 in each of 200
    assert (binned["client"]["trees"], binned["client"]["slots"]) == (224, 31)
    assert (paper["client"]["trees"], paper["client"]["slots"]) == (200, 1_682)
    (work,) = figures["work"]
    assert work["clients"] == 2
    assert work["both"] > 5
    (line,) = figures["formula"]
    assert (round(line["ratio"], 1), line["printed"]["ratio"]) == (5.0, 5.0)
    local, remote = figures["rounds"]
    assert (local["kind"], remote["kind"]) == ("local round", "https round")
    for found in (local, remote):
        assert found["clients"] == 20
        assert found["bytes"]["upload"] == 20 * binned["client"]["bytes"]["once"]["upload"]
        assert next(iter(found["phases"])) == "open"
        assert list(found["phases"])[-1] == "servers sum"
        assert found["memory"]["peak"] > 0
    assert all(len(phase["server_cpu_seconds"]) == 2 for phase in remote["phases"].values())
    assert len(remote["memory"]["servers_peak"]) == 2
    assert len(figures["targets"]) == 7
    assert all({"aim", "must", "measured", "met"} <= set(target) for target in figures["targets"])
    for title in ("What a client sends", "The paper's table", "two server processes over HTTPS", "Targets"):
        assert title in printed


def test_parts_are_left_out_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--quick", "--catalogues", "ML100K", "--encodings", "binned", "--round", "none"]
    figures, printed = figures_of(arguments, capsys)
    assert [entry["encoding"] for entry in figures["costs"]] == ["binned"]
    assert figures["rounds"] == []
    assert figures["work"][0]["both"] is None
    assert "encoding over ours" not in printed


def test_without_options_everything_is_planned() -> None:
    plan = secemb.plan(False, None, None, "https")
    assert [catalogue.name for catalogue in plan.catalogues] == [name for name, *_ in PRINTED]
    assert (plan.encodings, plan.batches, plan.round_catalogue, plan.round_clients) == (
        ("binned", "paper"), (8, 32, 64), "Yelp", 100,
    )  # fmt: skip


@pytest.mark.parametrize(("option", "value"), [("--catalogues", "ML2M"), ("--encodings", "half-tree")])
def test_unknown_names_are_refused(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{option}: unknown name '{value}'"):
        secemb.main([option, value])
