"""Studies: many runs over the same seeds, attacked alike, put into one table and held against targets.

A study is a YAML file (`study_file`); `run_study` does what is not done of it yet and writes its tables.
"""

from fedrec_unlearn.bench.run import check_data, run_study
from fedrec_unlearn.bench.study import Study
from fedrec_unlearn.bench.study_file import find_study, load_study, paper_studies

__all__ = ["Study", "check_data", "find_study", "load_study", "paper_studies", "run_study"]
