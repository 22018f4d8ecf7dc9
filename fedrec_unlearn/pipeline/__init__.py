"""The verbs of the package wired together: train, resume, attack, report, export, run."""

from fedrec_unlearn.pipeline.audit import attack
from fedrec_unlearn.pipeline.results import RunResult, export, report, run, sweep_page
from fedrec_unlearn.pipeline.selection import sweep
from fedrec_unlearn.pipeline.training import resume, train
from fedrec_unlearn.pipeline.unlearning import unlearn

__all__ = ["RunResult", "attack", "export", "report", "resume", "run", "sweep", "sweep_page", "train", "unlearn"]
