"""``python -m raysm.bootstrap``: PID 1 of an instance."""

import sys

from raysm.bootstrap.supervisor import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
