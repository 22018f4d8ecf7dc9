"""``fedrec recbole``: RecBole's options on the command line, tables, errors as one line."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from fedrec_unlearn.cli import main

if importlib.util.find_spec("recbole") is None:
    pytest.skip("recbole is not installed", allow_module_level=True)
if sys.version_info >= (3, 12):
    pytest.skip("RecBole needs Python 3.11", allow_module_level=True)

QUICK = [
    "--gpu_id=",
    "--epochs=2",
    "--embedding_size=8",
    "--attack_attackers=logistic",
    "--attack_seeds=0,1",
    "--attack_folds=3",
    "--valid_metric=NDCG@10",
]


def test_it_prints_metrics_and_attacks_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["recbole", "-m", "BPR", "-d", "ml-100k", *QUICK, "--unlearn=gender", "--saved", "kept/model.pth"]
    assert main(words) == 0
    shown = capsys.readouterr()
    for text in ("test before", "test after", "ndcg@10", "gender", "chance", "majority", "Checkpoint: kept/model.pth"):
        assert text in shown.out, text
    assert "before unlearning" in shown.out
    assert "after unlearning" in shown.out
    assert "epoch 2/2" in shown.err
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_quiet_prints_the_checkpoint_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("epochs: 1\nembedding_size: 4\n")
    (tmp_path / "b.yaml").write_text("gpu_id: ''\n")
    words = ["recbole", "-m", "FedMF", "-d", "ml-100k", "-q", "--config_files", "a.yaml b.yaml", "--saved", "m.pth"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert shown.out.strip() == str(tmp_path / "m.pth")
    assert shown.err == ""


@pytest.mark.parametrize(
    ("words", "told", "status"),
    [
        (["-m", "BPR"], "dataset: not given", 2),
        (["-m", "BPR", "-d", "ml-100k", "--clients_per_rounds=3"], "did you mean clients_per_round", 2),
        (["-m", "BPR", "-d", "ml-100k", "--epochs"], "unknown option --epochs", 2),
        (["-m", "BPR", "-d", "ml-100k", "--unlearn=sex"], "columns are age, gender, occupation, zip_code", 3),
        (["-m", "SpectralCF", "-d", "ml-100k"], "SpectralCF cannot be trained by clients", 4),
        (["-m", "BPR", "-d", "ml-100k", "--config_files", "nowhere.yaml"], "nowhere.yaml does not exist", 2),
        (["-m", "BPR", "-d", "ml-100k", "--resume", "nowhere.pth"], "nowhere.pth does not exist", 5),
    ],
)
def test_mistakes_are_one_line_with_the_remedy(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str, status: int
) -> None:
    assert main(["recbole", *words]) == status
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fedrec: error")]
    assert len(errors) == 1
    assert told in errors[0]
