"""A folder in memory for tests that commit often: there fsync costs nothing."""

import tempfile
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path():
    """As pytest's, but in memory if the machine has such a file system."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)
