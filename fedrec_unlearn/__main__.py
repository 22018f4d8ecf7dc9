"""``python -m fedrec_unlearn`` is the ``fedrec`` command."""

import sys

from fedrec_unlearn.cli import main

if __name__ == "__main__":
    sys.exit(main())
