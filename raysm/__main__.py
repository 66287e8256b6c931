"""``python -m raysm``: the command ``raysm``, where its script is not on the PATH."""

import sys

from raysm.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
