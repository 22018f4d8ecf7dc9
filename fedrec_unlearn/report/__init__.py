"""A report of one run, or of several side by side: one HTML file, and the same figures as JSON and CSV.

`read_run` reads a run folder (docs/run-folder.md), `write_report` writes the three files. Nothing here looks
at a model: user embeddings for the projection are handed in by the caller as `Users`.
"""

from __future__ import annotations

from fedrec_unlearn.report.record import RunRecord, Users, read_run
from fedrec_unlearn.report.write import write_report

__all__ = ["RunRecord", "Users", "read_run", "write_report"]
