"""`python -m fsbridge`: the command, for a package that is not installed."""

import sys

from fsbridge.cli import main

if __name__ == "__main__":
    sys.exit(main())
