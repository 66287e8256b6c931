"""Keep packages that a job installs out of the Python environment that runs it.

Instances of kinds ``process`` and ``namespace`` run the user's own Python. ``pip install`` in a job must leave that
environment as it was, and the job must be able to import what it installed. Where the user may mount (root on Linux),
each instance gets an overlay over the environment. Elsewhere it gets a virtual environment that sees the user's
packages.
"""

import os
import shlex
import site
import sys
import venv
from pathlib import Path

__all__ = ["folders", "make_virtual_environment", "overlays"]

Overlay = tuple[str, str, str]
"""The folder under the overlay, the folder that takes the changes, and a folder that the overlay must not hide."""


def folders() -> list[Path]:
    """Return the folders in which installers change this Python's environment; none lies inside another."""
    found = {Path(path).resolve() for path in (sys.prefix, sys.base_prefix, *_site_folders()) if Path(path).is_dir()}
    return sorted(path for path in found if not any(parent in found for parent in path.parents))


def _site_folders() -> list[str]:
    # sys.path too: a .pth file may bring another environment's packages.
    return [path for path in [*site.getsitepackages(), *sys.path] if path.endswith(("site-packages", "dist-packages"))]


def overlays(private: Path) -> list[Overlay]:
    """Return the overlays of an instance, whose changes go below the instance's folder ``private``."""
    return [
        (str(lower), str(private / "installed" / str(number)), str(private)) for number, lower in enumerate(folders())
    ]


def make_virtual_environment(folder: Path) -> Path:
    """Make a virtual environment in which the packages and commands of this Python's environment can be used.

    Returns:
        The folder of its commands.
    """
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # addsitedir, because a plain path in a .pth file would not read the .pth files there, as editable installs need it.
    lines = [f"import site; site.addsitedir({path!r})\n" for path in dict.fromkeys(_site_folders())]
    (folder / "lib" / version / "site-packages" / "user.pth").write_text("".join(lines))
    commands = folder / "bin"
    for script in Path(sys.executable).parent.iterdir():
        text = _python_script(script)
        if text is not None and not (commands / script.name).exists():
            # Through sh, as pip does it: a path in a "#!" line is cut after 127 characters.
            start = f"#!/bin/sh\n'''exec' {shlex.quote(str(commands / 'python'))} \"$0\" \"$@\"\n' '''\n"
            (commands / script.name).write_text(start + text)
            (commands / script.name).chmod(0o755)
    return commands


def _python_script(path: Path) -> str | None:
    """Return the text of a console script without the lines that start its Python; None of any other file."""
    if not path.is_file() or not os.access(path, os.X_OK):
        return None
    with path.open("rb") as file:
        if file.read(2) != b"#!":
            return None
        rest = file.read()
    first, _, text = rest.decode(errors="replace").partition("\n")
    if first.strip().endswith("/sh") and text.startswith("'''exec'"):
        return text.partition("\n' '''\n")[2]
    return text if "python" in first else None
