"""`python -m memenvs.build SOURCE …`, the same as `memenvs build SOURCE …`."""

import sys

from memenvs.commands import console

if __name__ == "__main__":
    sys.argv.insert(1, "build")
    console()
