"""Grids of these tests lie in memory."""

from tests.support.memory_folder import tmp_path

__all__ = ["tmp_path"]
