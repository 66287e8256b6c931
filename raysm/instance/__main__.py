"""``python -m raysm.instance`` runs an instance from its start to its exit code."""

import sys

from raysm.instance.supervisor import main

if __name__ == "__main__":
    sys.exit(main())
