"""A small study of transports on the synthetic set, with a catalogue of 60 items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn.bench import TransportStudy, load_study

STUDY = """\
kind: transports
paper: secemb
title: Tiny transports
seeds: [1, 2]
costs:
  width: 4
  batches: [2, 3]
  repeats: 2
  client_repeats: 3
  paper: {clients: 2, repeats: 1}
  round: {catalogue: small, clients: 3, https: false}
  catalogues:
    - name: small
      items: 60
      max_items: 6
      printed: {secfedrec: 0.01, secemb: 0.02, ratio: 0.5}
      targets:
        {upload: 1, upload_whole: 1, ratio: 1000, ratio_compressed: 0.001, keys: 1e6, aggregate: 1e6, retrieve: 1e-9,
          work_ratio: 1e-9}
    - {name: other, items: 90, max_items: 6}
base:
  data: {name: synthetic}
  model: {embedding_dim: 16}
  federation: {rounds: 6, clients_per_round: 60, server_learning_rate: 0.01, checkpoint_every: 2}
  secemb: {execution: counted}
  evaluation: {topk: [10], metrics: [ndcg, hr], every: 3}
transports: [plain, secemb, secagg, int8]
comparisons:
  - {name: ranking, title: ranking items, metric: ndcg@10, max_items: [12, 20]}
  - name: rating
    title: ratings
    metric: rmse
    options: {federation: {objective: mse, user_learning_rate: 1.0}, evaluation: {select_by: rmse}}
quick:
  seeds: [1]
  catalogues: [small]
  costs: {batches: [2], repeats: 1}
  transports: [plain, secemb]
  comparisons: [ranking]
  max_items: [12]
  options: {federation.rounds: 3}
"""


@pytest.fixture
def study_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes the study above, with texts of it replaced."""

    def write(*changes: tuple[str, str]) -> Path:
        text = STUDY
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        file = tmp_path / "tiny.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


@pytest.fixture
def study(study_file: Callable[..., Path]) -> TransportStudy:
    found = load_study(study_file())
    assert isinstance(found, TransportStudy)
    return found


def client_figures(upload: int = 1000, keys: float = 0.5) -> dict[str, Any]:
    """What `client_costs` gives."""
    sizes = {
        "request": 400,
        "update": upload - 400,
        "response": 300,
        "upload": upload,
        "download": 300,
        "forwarded": 900,
    }
    return {
        "trees": 8,
        "slots": 30,
        "depth": 5,
        "bytes": {"once": sizes, "whole": {**sizes, "upload": 2 * upload, "forwarded": 0}},
        "milliseconds": {"keys": keys, "session": 0.1, "request": 0.6, "rows": 0.1, "update": 0.7},
    }


def server_figures(clients: int, retrieve: float, aggregate: float) -> dict[str, Any]:
    """What `server_costs` gives."""
    spent = {"receive": 0.2, "retrieve": retrieve, "aggregate": aggregate}
    return {"clients": clients, "repeats": 1, "milliseconds": spent}


def round_figures() -> dict[str, Any]:
    """What `local_round` gives."""
    phase = {"wall_seconds": 0.25, "cpu_seconds": 0.125}
    sizes = {"upload": 3_000_000, "download": 6_000_000, "forwarded": 3_000_000, "table": 100}
    memory = {"idle": 50.0, "data": 60.0, "peak": 70.0}
    return {"clients": 3, "phases": {"open": phase, "servers sum": phase}, "bytes": sizes, "memory": memory}


@pytest.fixture
def made_up() -> Callable[[str, Mapping[str, Any]], dict[str, Any]]:
    """Figures in place of a measurement, as `machine.apart` takes it: the paper's encoding takes 40 times as long."""

    def figures(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        if name == "client":
            return client_figures()
        if name == "server":
            times = 40 if settings["parameters"]["encoding"] == "paper" else 1
            clients = settings["clients"]
            return server_figures(clients, 2.0 * times / clients, 6.0 * times / clients)
        return round_figures()

    return figures
