"""A made-up recommender data set whose attributes are planted at a known strength.

On real data nobody knows how much of an attribute a model can give away; here it is known, so an attack, a
defence or a metric can be checked against a number. `planted` says what is planted and what the best attacker
reaches; a small set of files made by ``python -m fedrec_unlearn.data.synthetic`` comes with the package.
"""

from fedrec_unlearn.data.synthetic.files import packaged_files, write_atomic
from fedrec_unlearn.data.synthetic.planted import Planted, SyntheticConfig, generate, plant

__all__ = ["Planted", "SyntheticConfig", "generate", "packaged_files", "plant", "write_atomic"]
