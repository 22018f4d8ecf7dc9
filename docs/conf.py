from __future__ import annotations

import sys
from pathlib import Path

import fedrec_unlearn

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "fedrec-unlearn"
author = "the fedrec-unlearn authors"
project_copyright = author
version = release = fedrec_unlearn.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "attribute_docstrings", "command_line"]
exclude_patterns = ["_build"]
# single backticks in docstrings stand for code, as in the Markdown pages
default_role = "literal"

myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"fedrec-unlearn {version}"
html_copy_source = False
html_show_sourcelink = False
