"""The verbs of the package wired together: train, resume, attack, report, export, run."""

from fedrec_unlearn.pipeline.audit import attack
from fedrec_unlearn.pipeline.results import RunResult, export, report, run
from fedrec_unlearn.pipeline.training import resume, train

__all__ = ["RunResult", "attack", "export", "report", "resume", "run", "train"]
