"""``ray start`` without the Ray Client server, which Ray itself has no switch for.

The server would open one more port on the head and cost a process of 90 MB; nothing of raysm uses it. Run as
``python -m raysm.bootstrap.ray_start start ...``, with the arguments of the ``ray`` command.
"""

import importlib
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Be the ``ray`` command."""
    utilities: Any = importlib.import_module("ray._private.utils")
    # Ray starts the server wherever gRPC can be imported. If this name goes away, the server is merely started.
    utilities.get_ray_client_dependency_error = lambda: ImportError("raysm uses no Ray Client")
    command: Any = importlib.import_module("ray.scripts.scripts")
    command.main()


if __name__ == "__main__":
    main()
