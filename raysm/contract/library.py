"""raysm itself as one file that travels: the same bytes for the same sources, whenever and wherever it is made."""

import functools
import io
import zipfile
from pathlib import Path

import raysm

__all__ = ["LIBRARY", "library"]

LIBRARY = "raysm.zip"
"""Name of the file: Python imports from it as it is, and it is unpacked where modules are needed as files."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can say: a real one would give every payload another digest."""


@functools.lru_cache(maxsize=1)
def library() -> bytes:
    """Return a zip of raysm's own modules, and of the C files and headers that some of them compile where they run."""
    package = Path(raysm.__file__).parent
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        # Sorted: folders list their files in another order on every machine.
        for path in sorted([*package.rglob("*.py"), *package.rglob("*.[ch]"), package / "py.typed"]):
            entry = zipfile.ZipInfo(path.relative_to(package.parent).as_posix(), EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return content.getvalue()
