from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedrec_unlearn.bench import TransportStudy, find_study, load_study
from fedrec_unlearn.bench.secemb.study import training_tasks
from fedrec_unlearn.errors import ConfigError

Write = Callable[..., Path]


def test_arms_differ_in_transport_and_limit_alone(study: TransportStudy) -> None:
    ranking, rating = study.comparisons
    assert [(arm.name, arm.label, arm.max_items) for arm in ranking.arms] == [
        ("plain", "plain (float32)", 0),
        ("secemb-12", "SecEmb, m' = 12", 12),
        ("secemb-20", "SecEmb, m' = 20", 20),
        ("secemb", "SecEmb, no limit", 0),
        ("secagg", "SecFedRec (secagg)", 0),
        ("int8", "8 bits", 0),
    ]
    assert [arm.label for arm in rating.arms] == ["plain (float32)", "SecEmb", "SecFedRec (secagg)", "8 bits"]
    assert (ranking.metric, rating.metric) == ("ndcg@10/full", "rmse")
    assert (ranking.sweeps, rating.sweeps) == (True, False)
    for comparison, objective in ((ranking, "bpr"), (rating, "mse")):
        for arm in comparison.arms:
            options = arm.config.federation
            assert (options.transport, options.max_items) == (arm.name.partition("-")[0], arm.max_items)
            assert (options.objective, options.rounds, options.ring) == (
                objective, 6, options.transport in ("secemb", "secagg"),
            )  # fmt: skip


def test_costs_are_read_as_given(study: TransportStudy) -> None:
    costs = study.costs
    assert [(c.name, c.n_items, c.max_items) for c in costs.catalogues] == [("small", 60, 6), ("other", 90, 6)]
    assert (costs.width, costs.batches, costs.repeats, costs.client_repeats) == (4, (2, 3), 2, 3)
    assert (costs.paper_clients, costs.paper_repeats) == (2, 1)
    assert (costs.round_catalogue, costs.round_clients, costs.round_https) == ("small", 3, False)
    first, second = costs.catalogues
    assert first.printed is not None
    assert first.targets is not None
    assert (first.printed.ratio, first.targets.retrieve) == (0.5, 1e-9)
    assert (second.printed, second.targets) == (None, None)


def test_the_short_version_changes_what_it_names(study_file: Write) -> None:
    short = load_study(study_file(), quick=True)
    assert isinstance(short, TransportStudy)
    assert (short.seeds, short.folder_name) == ((1,), "tiny-quick")
    assert [catalogue.name for catalogue in short.costs.catalogues] == ["small"]
    assert (short.costs.batches, short.costs.repeats, short.costs.client_repeats) == ((2,), 1, 3)
    assert [comparison.name for comparison in short.comparisons] == ["ranking"]
    assert [arm.name for arm in short.comparisons[0].arms] == ["plain", "secemb-12", "secemb"]
    assert {arm.config.federation.rounds for arm in short.comparisons[0].arms} == {3}


def test_every_run_has_a_folder_of_its_own(study: TransportStudy) -> None:
    tasks = training_tasks(study, Path("x"))
    assert len({task.folder for task in tasks}) == len({task.result for task in tasks}) == 2 * (6 + 4)
    assert tasks[0].config.output == "x/runs/ranking-plain-1"
    assert tasks[0].settings != tasks[1].settings


@pytest.mark.parametrize("quick", [False, True])
def test_the_packaged_study_is_valid(quick: bool) -> None:
    study = load_study(find_study("secemb", "secemb"), quick=quick)
    assert isinstance(study, TransportStudy)
    assert len(study.seeds) >= 3 or quick
    assert all(catalogue.targets and catalogue.printed for catalogue in study.costs.catalogues)
    assert {arm.config.secemb.execution for comparison in study.comparisons for arm in comparison.arms} == {"counted"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("kind: transports", "kind: transport"), "tiny.yaml:1: kind: unknown entry 'transport'"),
        (("title: Tiny transports", "titel: x"), "tiny.yaml:3: unknown key titel; did you mean title?"),
        (("seeds: [1, 2]", "seeds: [1, 1]"), "tiny.yaml:4: seeds: names a seed twice"),
        (("  repeats: 2\n", "  repeats: 0\n"), "tiny.yaml:8: costs.repeats: must be at least 1, not 0"),
        (("  batches: [2, 3]", "  batches: []"), "tiny.yaml:7: costs.batches: needs at least one size"),
        (("  width: 4", "  ring_bits: 48"), "tiny.yaml:6: costs.ring_bits: must be 32 or 64"),
        (("catalogue: small, clients: 3", "catalogue: smal, clients: 3"), "unknown entry 'smal'; did you mean small?"),
        (("https: false", "https: 1"), "costs.round.https: must be true or false"),
        (("name: other", "name: small"), "costs.catalogues: names a catalogue twice"),
        (("{name: other, items: 90, max_items: 6}", "{name: other, items: 90}"), "max_items is missing"),
        (("secfedrec: 0.01, ", ""), "secfedrec is missing"),
        (("keys: 1e6, ", ""), "keys is missing"),
        (("transports: [plain, secemb, secagg, int8]", "transports: [plain, secem]"), "did you mean secemb?"),
        (("transports: [plain, secemb, secagg, int8]", "transports: [secemb]"), "transports: must hold plain"),
        (("transports: [plain, secemb, secagg, int8]", "transports: [plain, plain]"), "names a transport twice"),
        (("transports: [plain, secemb, secagg, int8]", "transports: [plain]"), "so transports must hold secemb"),
        (("metric: ndcg@10", "metric: ndcg@20"), "unknown entry 'ndcg@20'; did you mean ndcg@10?"),
        (("metric: rmse", "metric: ndcg@10"), "unknown entry 'ndcg@10'; known: rmse"),
        (("max_items: [12, 20]", "max_items: [12, 12]"), "names a number twice"),
        (("max_items: [12, 20]", "max_items: [0]"), "must be at least 1, not 0"),
        (("max_items: [12, 20]", "max_items: [1]"), "federation.max_items: must be 0 (no limit) or more than"),
        (("{name: ranking", "{name: ../out"), "'../out' cannot name a folder"),
        (("{objective: mse, user", "{objektive: mse, user"), "unknown option federation.objektive"),
        (("name: rating", "name: ranking"), "there are two comparisons 'ranking'"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_place(study_file: Write, change: tuple[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_study(study_file(change))
    assert "tiny.yaml:" in str(error.value)
    assert told in str(error.value)


def test_a_study_without_a_short_version_says_so(study_file: Write) -> None:
    text = study_file().read_text()
    file = study_file()
    file.write_text(text[: text.index("quick:")])
    load_study(file)
    with pytest.raises(ConfigError, match="has no section quick"):
        load_study(file, quick=True)
