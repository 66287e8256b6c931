"""What a wheel has beside the modules: what raysm's images are built from, and the compiled kernels of the similarity.

All else stands in pyproject.toml, which cannot say this: it names no file outside of the package, and makes none. The
kernels are made for each machine that there is a compiler for; where there is none, they are compiled where they run.
"""

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent

CARRIED = ("containers/Dockerfile.cpu", "containers/Dockerfile.gpu", "pyproject.toml", "PACKAGE.md")
"""Files that ``raysm image build`` needs: ``raysm.client.images.context``."""


class BuildPy(build_py):
    """Copies the modules, and what is not one of them."""

    def run(self) -> None:
        """Make the package as it goes into the wheel."""
        super().run()
        package = Path(self.build_lib) / "raysm"
        (package / "containers").mkdir(parents=True, exist_ok=True)
        for name in CARRIED:
            # The image itself is built without them.
            if (HERE / name).is_file():
                shutil.copyfile(HERE / name, package / "containers" / Path(name).name)
        self._make_kernels(package)

    def _make_kernels(self, package: Path) -> None:
        # Of this tree, which is not installed; it needs nothing but Python there.
        sys.path.insert(0, str(HERE))
        from raysm.workloads.similarity.kernels import prebuilt

        folder = package / prebuilt.FOLDER.relative_to(HERE / "raysm")
        for machine, count in prebuilt.make(folder).items():
            self.announce(f"kernels for {machine}: {count or 'no compiler'}", level=2)


setup(cmdclass={"build_py": BuildPy})
