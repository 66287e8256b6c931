"""Compile the kernels of the similarity into the wheel, and name their machines in its tag.

By default the wheel has the kernels of each machine that a compiler is installed for. Without a
compiler it has none, its tag is py3-none-any, and the kernels are compiled where they run.

The variable RAYSM_KERNELS_FOR names the machines instead: "x86_64 aarch64", or "" for a wheel
without kernels. A compiler that is missing is then an error.

All other settings are in pyproject.toml.
"""

import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
VARIABLE = "RAYSM_KERNELS_FOR"

# The modules of this tree, which is not installed; they need nothing but Python.
sys.path.insert(0, str(HERE))
from raysm.features.similarity.cluster.kernels import build  # noqa: E402
from raysm.features.similarity.cluster.kernels.build import ARM, X86  # noqa: E402
from raysm.instance.environment import inherited  # noqa: E402


def machines() -> list[str]:
    """Return the machines whose kernels go into the wheel."""
    asked = inherited().get(VARIABLE)
    if asked is None:
        return [machine for machine in (X86, ARM) if build.compiler_for(machine)]
    for machine in asked.split():
        if machine not in (X86, ARM):
            sys.exit(f"{VARIABLE}: there are no kernels for {machine!r}, only for {X86} and {ARM}")
        if build.compiler_for(machine) is None:
            sys.exit(f"{VARIABLE}: no C compiler for {machine} is installed")
    return asked.split()


class WithKernels(Distribution):
    """A distribution that is not pure Python if it has kernels."""

    def has_ext_modules(self) -> bool:
        """Make setuptools install the package among those of one platform."""
        return bool(machines())


class BuildPy(build_py):
    """Copies the modules, and compiles the kernels."""

    def run(self) -> None:
        """Make the package as it goes into the wheel."""
        super().run()
        # An editable install uses this tree, and compiles the kernels when they are needed.
        if not self.editable_mode:
            for machine, count in build.make(self.kernels, machines()).items():
                self.announce(f"{count} kernels for {machine}", level=2)

    @property
    def kernels(self) -> Path:
        """The folder of the compiled kernels."""
        return Path(self.build_lib) / build.FOLDER.relative_to(HERE)


class BdistWheel(bdist_wheel):
    """Makes a wheel for any Python 3, because the kernels are not extension modules."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of the wheel; the platforms are those of the kernels."""
        _, _, platform = super().get_tag()
        if not self.root_is_pure:
            platform = (
                build.platform_tag(self.get_finalized_command("build_py").kernels) or platform
            )
        return "py3", "none", platform


setup(distclass=WithKernels, cmdclass={"build_py": BuildPy, "bdist_wheel": BdistWheel})
