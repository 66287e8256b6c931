"""Where pip looks for packages where nobody says otherwise: flows out as pip itself has it, not as a copy of it."""

import functools
from dataclasses import dataclass

__all__ = ["DefaultIndex", "default_index"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultIndex:
    """The public index of Python packages."""

    url: str
    """What pip takes for ``--index-url``."""
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
