from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import fedrec_unlearn

LARGE = {"torch", "numpy", "pandas", "scipy", "sklearn", "matplotlib", "rich", "recbole", "flwr", "yaml"}


def modules_after(code: str) -> set[str]:
    """Top-level modules loaded in a fresh interpreter that has run `code`."""
    printed = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('LOADED', *sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {name.partition(".")[0] for name in printed.rpartition("LOADED")[2].split()}


def test_importing_the_package_loads_nothing_large() -> None:
    assert not modules_after("import fedrec_unlearn") & LARGE


def test_configurations_load_without_torch() -> None:
    loaded = modules_after("from fedrec_unlearn import load_config; load_config(None)")
    assert "yaml" in loaded
    assert not loaded & (LARGE - {"yaml"})


@pytest.mark.parametrize("name", fedrec_unlearn.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(fedrec_unlearn, name) is not None
    assert name in dir(fedrec_unlearn)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'tran'"):
        fedrec_unlearn.tran  # noqa: B018


def test_no_public_name_hides_a_package() -> None:
    packages = {path.parent.name for path in Path(fedrec_unlearn.__file__).parent.glob("*/__init__.py")}
    assert not packages & set(fedrec_unlearn.__all__)


def test_the_version_is_told_alike_everywhere() -> None:
    version = fedrec_unlearn.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert metadata.version("fedrec-unlearn") == version
    told = subprocess.run([sys.executable, "-m", "fedrec_unlearn", "--version"], capture_output=True, text=True)
    assert told.stdout == f"fedrec {version}\n"
    citation = Path(__file__).parent.parent / "CITATION.cff"
    assert f"\nversion: {version}\n" in citation.read_text(encoding="utf-8")
