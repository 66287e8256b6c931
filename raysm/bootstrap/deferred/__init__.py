"""Packages that other libraries import and hardly ever use: each stands here by its own name, and is brought when used.

The folder itself goes to the end of ``PYTHONPATH`` of Ray's processes, where it comes before installed packages. What
flows in is an import, what flows out is the same package, a second of a core later, or never.
"""

from pathlib import Path

__all__ = ["FOLDER"]

FOLDER = Path(__file__).parent
