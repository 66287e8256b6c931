"""Where compiled kernels are kept on a machine: beside other temporary files, one folder a user."""

import os
import tempfile
from pathlib import Path

__all__ = ["kernels_folder"]


def kernels_folder() -> Path:
    """Return this user's folder; it may not be there yet."""
    # By the user's number: what another one could write would be loaded into this one's processes.
    return Path(tempfile.gettempdir()) / f"raysm-kernels-{os.getuid()}"
