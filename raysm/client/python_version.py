"""Which Python pickles and may read what is pickled: this one's version flows out, another's is refused.

Apart from ``function``, which pickles: every job says its Python, and few carry a function.
"""

import sys

from raysm.errors import InvalidRequest

__all__ = ["check_python", "python_version"]


def python_version() -> str:
    """Return this Python's version as a PickledFunction says it, ``3.11``."""
    # Without the third number: releases that only mend share their bytecode. Not by platform, which is 2 ms to import.
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def check_python(expected: str, what: str) -> None:
    """Refuse to unpickle what another Python pickled.

    Raises:
        InvalidRequest: This Python is not ``expected``.
    """
    # cloudpickle's bytes hold bytecode, of which each minor version has its own.
    if expected != python_version():
        raise InvalidRequest(
            f"{what} was pickled by Python {expected}, and this is Python {python_version()}, which may read it "
            f"wrongly; ask for the result under Python {expected}"
        )
