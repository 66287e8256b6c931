"""``python -m raysm.bootstrap``: PID 1 of an instance."""

import os
import sys

from raysm.bootstrap.supervisor import main

if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # A thread that waits for a resolver must not keep the instance alive.
    os._exit(code)
