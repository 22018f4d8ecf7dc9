"""The `fedrec` command: one module per verb, and what the verbs share.

Importing this loads nothing large; each verb imports what it needs when it runs.
"""

from fedrec_unlearn.cli.command import main

__all__ = ["main"]
