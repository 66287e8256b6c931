"""raysm itself as one file that travels: the same bytes for the same sources, whenever and wherever it is made."""

import functools
import io
import zipfile
from pathlib import Path

import raysm

__all__ = ["LIBRARY", "library"]

LIBRARY = "raysm.zip"
"""Name of the file: Python imports from it as it is, and it is unpacked where modules are needed as files."""

TRAVELS = ("*.py", "*.[ch]", "*.so", "*.json", "py.typed")
"""Not all: data of the demo, and what images are built from, are of no use in an instance."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can say: a real one would give every payload another digest."""


@functools.lru_cache(maxsize=1)
def library() -> bytes:
    """Return a zip of raysm's own modules, with the tables that they read.

    The C files that some compile where they run travel too, and the libraries made of them, where raysm carries these.
    """
    package = Path(raysm.__file__).parent
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        # Sorted: folders list their files in another order on every machine.
        for path in sorted(path for pattern in TRAVELS for path in package.rglob(pattern)):
            entry = zipfile.ZipInfo(path.relative_to(package.parent).as_posix(), EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return content.getvalue()
