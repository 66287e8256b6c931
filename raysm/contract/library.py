"""raysm itself as one file that travels: the same bytes for the same sources, whenever and wherever it is made."""

import contextlib
import functools
import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

import raysm
from raysm.contract.store import put

__all__ = ["LIBRARY", "kept_library", "library"]

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
