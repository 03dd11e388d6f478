"""`python -m hlosharding` is the `hlosharding` command."""

import sys

from hlosharding.cli import main

if __name__ == "__main__":
    sys.exit(main())
