"""``python -m raysm.bootstrap``: the life of an instance."""

import sys

from raysm.bootstrap.supervisor import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
