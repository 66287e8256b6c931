"""A folder in memory for tests that commit often: there fsync costs nothing."""

import contextlib
import tempfile
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@contextlib.contextmanager
def memory_folder():
    """Yield a folder in memory, if the machine has such a file system."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture
def tmp_path():
    """As pytest's, but in memory."""
    with memory_folder() as folder:
        yield folder
