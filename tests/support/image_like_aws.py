"""Images as AWS's PyTorch containers are: Debian, Python and torch in /opt/venv, nothing of raysm."""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from raysm.core.protocol.packages import NEEDS
from tests.support import docker

VENV = "opt/venv"
"""Where AWS's PyTorch containers have their Python."""

NAME = "raysm-test-like-aws"
OLDER_RAY = "2.52.1"

PYTHON = "python3.12"
HOME = "opt/python"
LIBRARIES = "ca-certificates,libssl3,libffi8,libsqlite3-0,libreadline8"
"""Debian's packages that an interpreter which was built on Debian loads."""

USER = 4242
"""Whom nobody made: he has no name, and no home."""

UNNEEDED = shutil.ignore_patterns(
    "test", "__pycache__", "*.a", "idlelib", "tkinter", "site-packages"
)


@functools.cache
def image_like_aws(ray="this") -> str:
    """Make an image with Python 3.11 and Ray: ``this``, ``none``, ``older``, or ``user``: this one, not run by root."""
    whole = f"{NAME}:this"
    if not docker.has(whole):
        with docker.debian("python3,ca-certificates") as root:
            subprocess.run(
                ["chroot", str(root), "python3", "-m", "venv", "--without-pip", f"/{VENV}"],
                check=True,
            )
            docker.install(
                (*docker.requirements("local"), "torch", "pip"),
                root / VENV / "lib/python3.11/site-packages",
            )
            docker.load(root, whole, *_variables())
    site = f"/{VENV}/lib/python3.11/site-packages"
    without = f"RUN rm -rf {site}/ray {site}/ray-*.dist-info"
    if ray == "none":
        return docker.changed(whole, f"{NAME}:none", without)
    if ray == "older":
        return docker.changed(
            whole, f"{NAME}:older", f"{without}\nCOPY packages {site}/", packages=install_older_ray
        )
    if ray == "user":
        return docker.image_run_as(whole, USER)
    return whole


@functools.cache
def image_of_python_312(ray="this") -> str:
    """Make an image with Python 3.12, and with the Ray that raysm needs (``this``) or ``none``; return its name."""
    bare = f"{NAME}:{PYTHON}-none"
    if not docker.has(bare):
        with docker.debian(LIBRARIES) as root:
            shutil.copytree(_python_home(), root / HOME, ignore=UNNEEDED, symlinks=True)
            # It looks for its library where it was built, and then as everybody does.
            (root / "etc/ld.so.conf.d/python.conf").write_text(f"/{HOME}/lib\n")
            subprocess.run(["chroot", str(root), "/sbin/ldconfig"], check=True)
            subprocess.run(
                ["chroot", str(root), f"/{HOME}/bin/{PYTHON}", "-m", "venv", f"/{VENV}"], check=True
            )
            docker.load(root, bare, *_variables())
    site = f"/{VENV}/lib/{PYTHON}/site-packages"
    if ray == "none":
        return bare
    return docker.changed(
        bare, f"{NAME}:{PYTHON}-this", f"COPY packages {site}/", packages=_packages_312
    )


def why_no_python_312() -> str | None:
    """Return why no image of Python 3.12 can be made here."""
    return None if _python_home() else f"this machine has no {PYTHON}"


def why_no_older_ray() -> str | None:
    """Return why there can be no older Ray here."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "-d",
            folder,
            f"ray=={OLDER_RAY}",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
    return (
        f"no package index here has Ray {OLDER_RAY}: {done.stderr.strip()[-200:]}"
        if done.returncode
        else None
    )


def python_312(*arguments) -> list[str]:
    """Return the command of this machine's Python 3.12."""
    return [str(_python_home() / "bin" / PYTHON), *arguments]


@functools.cache
def _python_home() -> Path | None:
    # Where several are installed beside each other, the command may be one that has to be told
    # which.
    environment = os.environ | {"PYENV_VERSION": PYTHON.removeprefix("python")}
    if shutil.which(PYTHON) is None:
        return None
    command = [PYTHON, "-c", "import sys; print(sys.base_prefix)"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return None if done.returncode else Path(done.stdout.strip())


def _packages_312(folder: Path) -> None:
    needed = [NEEDS[name] for name in ("ray", "cloudpickle", "numpy", "pyarrow")]
    _bring(python_312(), folder, *needed)


def install_older_ray(folder: Path) -> None:
    """Install an older Ray into a folder, as an image has it."""
    _bring([sys.executable], folder, "--no-deps", f"ray=={OLDER_RAY}")


def _bring(python: list[str], folder: Path, *requirements: str) -> None:
    command = [
        *python,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--target",
        str(folder),
    ]
    done = subprocess.run([*command, *requirements], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def _variables() -> list[str]:
    return [f"ENV PATH=/{VENV}/bin:/usr/bin:/bin", f"ENV VIRTUAL_ENV=/{VENV}"]
