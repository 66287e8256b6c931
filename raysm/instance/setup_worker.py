"""Ray's ``setup_worker.py`` with the imports of ``ray_imports``.

It prepares a worker that has a runtime environment.

The raylet removes the second word of a worker's command where there is no such environment, if it
has this file's name. It is run by its path, and imports only the standard library.
"""

import importlib.util
import os
import runpy
import sys
from typing import Any

RAY_IMPORTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ray_imports.py")

if __name__ == "__main__":
    ray: Any = importlib.util.find_spec("ray")
    program = os.path.join(os.path.dirname(ray.origin), "_private", "workers", "setup_worker.py")
    runpy.run_path(RAY_IMPORTS)["main"]([program, *sys.argv[1:]])
