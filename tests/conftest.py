"""What all tests share: one thread, and the folder with real data sets where there is one."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

# before torch or BLAS are loaded; afterwards it is too late
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import pytest
import torch

torch.set_num_threads(1)

# absl (under dp-accounting) keeps the stream that standard error is when it is loaded, and closes it when another
# package (recbole) sets logging up anew; that stream must not be the one pytest captures with
with suppress(ImportError):
    from absl import logging as absl_logging

    absl_logging.get_absl_handler().python_handler.setStream(sys.__stderr__)


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
