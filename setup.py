"""Compile the kernels of the similarity into the wheel, for each machine that a compiler is installed for.

Without a compiler the kernels are compiled where they run. All other settings are in pyproject.toml.
"""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent


class BuildPy(build_py):
    """Copies the modules, and compiles the kernels."""

    def run(self) -> None:
        """Make the package as it goes into the wheel."""
        super().run()
        package = Path(self.build_lib) / "raysm"
        self._make_kernels(package)

    def _make_kernels(self, package: Path) -> None:
        # Of this tree, which is not installed; it needs nothing but Python there.
        sys.path.insert(0, str(HERE))
        from raysm.workloads.similarity.kernels import build

        folder = package / build.FOLDER.relative_to(HERE / "raysm")
        for machine, count in build.make(folder).items():
            self.announce(f"kernels for {machine}: {count or 'no compiler'}", level=2)


setup(cmdclass={"build_py": BuildPy})
