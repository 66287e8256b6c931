"""What an image of raysm's is built from: one of its Dockerfiles, and the files that it copies.

What flows in is nothing but the installed package, or the tree that it is imported from; what flows out is a folder
that any ``docker build`` takes. A wheel carries the Dockerfiles and the pyproject.toml in ``raysm/containers``, where
``setup.py`` puts them: so both ways come to the same image, and versions are named in one place.
"""

import shutil
from pathlib import Path

import raysm
from raysm.errors import MissingDependency

__all__ = ["write_context"]

CARRIED = "containers"
"""The folder of the Dockerfiles: of the package where that was installed from a wheel, else of the tree."""

PROJECT = ("pyproject.toml", "PACKAGE.md")
"""What pip needs beside the package to install it."""


def write_context(folder: Path, dockerfile: str, package: Path | None = None) -> Path:
    """Write into ``folder``, which must not exist yet, what the image is built from.

    Args:
        folder: Of the context.
        dockerfile: ``Dockerfile.cpu`` or ``Dockerfile.gpu``.
        package: Folder of raysm's modules; None is that of this process.

    Returns:
        The Dockerfile.

    Raises:
        MissingDependency: This raysm was installed without its Dockerfiles.
    """
    package = package or Path(raysm.__file__).parent
    carried = package / CARRIED
    is_wheel = carried.is_dir()
    dockerfiles, project = (carried, carried) if is_wheel else (package.parent / CARRIED, package.parent)
    needed = [dockerfiles / dockerfile, *(project / name for name in PROJECT)]
    for path in needed:
        if not path.is_file():
            raise MissingDependency(
                f"{path} is not there: this raysm was installed without what its images are built from; install it "
                "with pip from a wheel, or run raysm from a clone"
            )
    # Hidden files, caches and what a wheel carries for this very purpose are no part of the package.
    shutil.copytree(package, folder / "raysm", ignore=shutil.ignore_patterns("__pycache__", ".*", CARRIED))
    for path in needed:
        # Side by side, whether they came from a wheel or from a clone: a Dockerfile's COPY knows one place.
        shutil.copyfile(path, folder / path.name)
    return folder / dockerfile
