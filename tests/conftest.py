"""What all tests share: one thread, and the folder with real data sets where there is one."""

from __future__ import annotations

import os
from pathlib import Path

# before torch or BLAS are loaded; afterwards it is too late
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def fedrec_data() -> Path:
    """Folder with one folder per data set (ml-100k/, ml-1m/), named by FEDREC_DATA; skips without it."""
    named = os.environ.get("FEDREC_DATA")
    if not named:
        pytest.skip("FEDREC_DATA does not name a folder with data sets")
    folder = Path(named)
    if not folder.is_dir():
        pytest.fail(f"FEDREC_DATA names {folder}, which is no folder")
    return folder
