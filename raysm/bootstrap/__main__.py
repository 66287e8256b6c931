"""``python -m raysm.bootstrap`` runs an instance from its start to its exit code."""

import sys

from raysm.bootstrap.supervisor import main

if __name__ == "__main__":
    sys.exit(main())
