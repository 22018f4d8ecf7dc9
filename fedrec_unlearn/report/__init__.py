"""Pages of one run, of several side by side, of a sweep over strengths, and of a study: self-contained HTML, JSON, CSV.

`read_run` reads a run folder (docs/run-folder.md), `write_report` writes the three files of a report; `write_sweep` and
`write_study` make a page and charts from the content of sweep.json and bench.json. Nothing here looks at a model: user
embeddings for the projection are handed in by the caller as `Users`.
"""

from __future__ import annotations

from fedrec_unlearn.report.record import RunRecord, Users, read_run
from fedrec_unlearn.report.study_page import write_study
from fedrec_unlearn.report.sweep import write_sweep
from fedrec_unlearn.report.write import write_report

__all__ = ["RunRecord", "Users", "read_run", "write_report", "write_study", "write_sweep"]
