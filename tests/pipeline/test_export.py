from __future__ import annotations

import errno
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from fedrec_unlearn.config import Config
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.data import load_dataset
from fedrec_unlearn.errors import RunError
from fedrec_unlearn.pipeline import export, train


@pytest.fixture
def table(trained: Path, tmp_path: Path) -> dict[str, np.ndarray]:
    with np.load(export(trained, tmp_path / "out" / "users.npz"), allow_pickle=False) as archive:
        return dict(archive)


def test_the_file_holds_ids_representation_and_attributes_without_pickle(
    trained: Path, table: dict[str, np.ndarray]
) -> None:
    dataset = load_dataset(load_config(trained / "config.yaml").data)
    assert set(table) == {"user_ids", "representation"} | {
        f"{kind}_{name}" for kind in ("attribute", "classes") for name in dataset.attributes
    }
    assert table["user_ids"].tolist() == dataset.user_tokens.tolist()
    assert table["representation"].dtype == np.float32
    for name, attribute in dataset.attributes.items():
        assert table[f"attribute_{name}"].tolist() == attribute.labels.tolist()
        assert table[f"classes_{name}"].tolist() == list(attribute.classes)
    assert not any(value.dtype.hasobject for value in table.values())


def test_the_representation_is_the_best_rounds_or_the_last_ones(trained: Path, tmp_path: Path) -> None:
    for part in ("best", "latest"):
        with np.load(export(trained, tmp_path / f"{part}.npz", part=part)) as archive:
            expected = load_file(trained / f"{part}.safetensors")["private"].numpy()
            assert np.array_equal(archive["representation"], expected)


def test_an_outside_tool_finds_the_planted_attribute_in_it(table: dict[str, np.ndarray]) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    attacker = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced"))

    def accuracy(name: str) -> float:
        known = table[f"attribute_{name}"] >= 0
        features, labels = table["representation"][known], table[f"attribute_{name}"][known]
        return float(cross_val_score(attacker, features, labels, cv=5, scoring="balanced_accuracy").mean())

    assert accuracy("gender") > 0.8
    assert abs(accuracy("noise") - 0.5) < 3 * (0.25 / 198) ** 0.5


def test_ring_mode_exports_float32_too(config: Callable[..., Config], tmp_path: Path) -> None:
    run = train(config("run", {"federation.ring": True, "federation.rounds": 1}))
    with np.load(export(run, tmp_path / "users.npz")) as archive:
        assert archive["representation"].dtype == np.float32


@pytest.mark.parametrize(
    ("output", "options", "problem"),
    [
        ("users.csv", {}, r"users\.csv: give a file name that ends in \.npz"),
        ("users.npz", {"part": "bset"}, "a run has the parts best, latest and before, not 'bset'"),
        ("taken/users.npz", {}, "taken"),
    ],
)
def test_a_mistake_is_told_and_nothing_written(
    trained: Path, tmp_path: Path, output: str, options: dict[str, Any], problem: str
) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(RunError, match=problem):
        export(trained, tmp_path / output, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_full_disk_leaves_the_former_file(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = export(trained, tmp_path / "users.npz")
    former = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"users\.npz could not be written: the disk is full"):
        export(trained, path, part="latest")
    assert path.read_bytes() == former
    assert zipfile.is_zipfile(path)
    assert [p.name for p in tmp_path.iterdir()] == ["users.npz"]


def test_a_folder_that_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"run\.json is missing; is .* a run folder"):
        export(tmp_path, tmp_path / "users.npz")
