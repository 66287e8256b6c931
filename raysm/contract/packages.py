"""The packages of an instance: raysm itself as a file, what instances import beside it, and pip's index."""

import contextlib
import functools
import hashlib
import io
import os
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import raysm
from raysm.contract.store import put

LIBRARY = "raysm.zip"
"""Name of the file: Python imports from it as it is, and it is unpacked where modules are needed as files."""

TRAVELS = ("*.py", "*.[ch]", "*.so", "*.json", "py.typed")
"""Not all: data of the demo, and what images are built from, are of no use in an instance."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can say: a real one would give every payload another digest."""

BYTECODE = "__pycache__"


@functools.lru_cache(maxsize=1)
def library() -> bytes:
    """Return a zip of raysm's own modules, with the tables that they read.

    The C files that some compile where they run travel too, and the libraries made of them, where raysm carries these.
    """
    # As with bytecode: who wants none to be written beside the sources wants this neither.
    return kept_library(Path(raysm.__file__).parent, keep=not sys.dont_write_bytecode)


def kept_library(package: Path, *, keep: bool = True) -> bytes:
    """Return a zip of the modules of ``package``.

    Args:
        package: Their folder.
        keep: Whether to leave it beside their bytecode, for as long as none of them changes: packing takes a command a
            third as long as its imports.
    """
    paths = sorted(_travelling(package))
    folder = package / BYTECODE
    archive = folder / f"{LIBRARY}.{sys.implementation.cache_tag}.{_state_of(package, paths)}"
    with contextlib.suppress(OSError):
        return archive.read_bytes()
    content = _packed(package, paths)
    if keep:
        with contextlib.suppress(OSError):  # a folder of another user's: it is packed anew each time
            put(archive, content)
            for older in set(folder.glob(f"{LIBRARY}.{sys.implementation.cache_tag}.*")) - {archive}:
                older.unlink(missing_ok=True)
    return content


def _travelling(package: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(package):
        subfolders[:] = [name for name in subfolders if name != BYTECODE]
        for name in names:
            if any(fnmatch(name, pattern) for pattern in TRAVELS):
                yield Path(folder, name)


def _state_of(package: Path, paths: Sequence[Path]) -> str:
    """Return a digest of what bytecode is told by, too: each file's name, size and time of change."""
    state = hashlib.sha256()
    for path in paths:
        status = path.stat()
        state.update(f"{path.relative_to(package)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return state.hexdigest()[:16]


def _packed(package: Path, paths: Sequence[Path]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        # Sorted: folders list their files in another order on every machine.
        for path in paths:
            entry = zipfile.ZipInfo(path.relative_to(package.parent).as_posix(), EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return content.getvalue()


# The standard library alone: the instances ask before anything is installed there.
RAY_RANGE = ">=2.60,<2.61"
"""One release: the bootstrap goes by names inside of Ray, and by options of ``ray start``, that others lack."""

NEEDS = {
    # Without default there is no dashboard, and without train Ray Train lacks pandas.
    "ray": f"ray[default,train]{RAY_RANGE}",
    "IPython": "ipython>=8.18",
    "cloudpickle": "cloudpickle>=3",
    "numpy": "numpy>=1.26",
    "optuna": "optuna>=4",
    "pyarrow": "pyarrow>=17",
    "safetensors": "safetensors>=0.5",
    "torch": "torch>=2.9,<2.14",
    # The whole of it is for its server, which no instance is.
    "mlflow": "mlflow-skinny>=3.17",
    "sagemaker_mlflow": "sagemaker-mlflow>=0.5",
}
"""Requirements by the module that instances import, as in pyproject.toml."""

NAME = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")


def name_of(requirement: str) -> str:
    """Return the name of the package that a line of a requirements.txt asks for; empty where it names none.

    In the form in which names are compared: ``Ray`` is ``ray``, and ``a_b`` is ``a-b``.
    """
    match = NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", match[1]).lower() if match else ""


def release_of(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with: ``(2, 60, 1)`` of ``2.60.1rc2+cpu``."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(number) for number in match[0].split(".")) if match else ()


def ray_will_do(version: str) -> bool:
    """Return whether raysm works with this version of Ray."""
    least, below = (release_of(bound.lstrip("<>=")) for bound in RAY_RANGE.split(","))
    return least <= release_of(version) < below


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultIndex:
    """The public index of Python packages."""

    url: str
    """The value of pip's ``--index-url``."""
    hosts: tuple[str, ...]
    """The index, and where its files lie."""


@functools.cache
def default_index() -> DefaultIndex | None:
    """Return pip's default index; None where there is no pip, which then asks no index either."""
    try:
        # Internal to pip, which has no other way to say it; the test fails when the name goes.
        from pip._internal.models.index import PyPI
    except ImportError:
        return None
    return DefaultIndex(url=PyPI.simple_url, hosts=(PyPI.netloc, PyPI.file_storage_domain))


BEFORE_HOST = re.compile(r"(://)[^/\s]*@")
"""A token, or a user with a password; to the last @, since one may stand in a password too."""


def without_credentials(text: str) -> str:
    """Return a text with stars in place of what stands before the host of each of its addresses."""
    return BEFORE_HOST.sub(r"\1***@", text)
