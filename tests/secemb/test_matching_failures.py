"""With the default number of bins every item gets one, as good as always."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrec_unlearn.secemb.batch_code import Code
from fedrec_unlearn.secemb.matching import match
from fedrec_unlearn.secemb.parameters import Parameters

CATALOGUES = [(1_682, 200), (3_883, 300), (10_681, 300), (62_423, 500), (93_386, 500)]


@pytest.fixture(scope="module")
def measure() -> Any:
    path = Path(__file__).parent / "matching_failures.py"
    spec = importlib.util.spec_from_file_location("secemb_matching_failures", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_thousand_clients_of_the_smallest_catalogue_place_everything(measure: Any) -> None:
    found = measure.failures(*CATALOGUES[0], 2_000)
    assert found == (224, 0, 0)


@pytest.mark.slow
def test_forty_thousand_clients_place_everything(measure: Any) -> None:
    for n_items, most in CATALOGUES:
        found = measure.failures(n_items, most, 8_000)
        assert (found.clients, found.items) == (0, 0), n_items


def test_failures_would_be_seen() -> None:
    # hardly more bins than items: above the threshold 0.977 of four choices, some client must leave one out
    code = Code(Parameters(5_000, 64, 64, 0, 500, limit=1000, max_clients=100, bins=504))
    rng = np.random.default_rng(0)
    assert any((match(code, rng.choice(5_000, 500, replace=False)) < 0).any() for _ in range(50))
