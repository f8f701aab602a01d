"""`python -m ablate`: the same as the command `ablate`."""

import sys

from ablate.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
