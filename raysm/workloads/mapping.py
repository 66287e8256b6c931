"""Files as memory, also where a file system has but a part of that.

What flows in is an open file, what flows out are its bytes, which the system reads when somebody looks at them.
"""

import errno
import mmap
from collections.abc import Callable

__all__ = ["MapPages", "map_file"]

MapPages = Callable[..., mmap.mmap]
"""Called as ``mmap.mmap`` is."""

# What a file system in user space answers that serves reads directly, past the page cache (FUSE's direct_io): no shared
# mapping, but a private one (numpy issue 9894, safetensors issue 545). Whether SageMaker's FastFile is such a one is
# documented nowhere.
NOT_MAPPED = (errno.ENODEV, errno.EINVAL, errno.EOPNOTSUPP)


def map_file(descriptor: int, map_pages: MapPages = mmap.mmap) -> mmap.mmap | None:
    """Map a whole file, read-only; None where its file system maps no files.

    Args:
        descriptor: Of the open file, which is not empty.
        map_pages: Maps; a test's own may refuse what a file system would.

    Raises:
        OSError: It cannot be mapped for another reason.
    """
    for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
        try:
            return map_pages(descriptor, 0, flags=flags, prot=mmap.PROT_READ)
        except OSError as error:
            if error.errno not in NOT_MAPPED:
                raise
    return None
