"""What an instance that cannot begin leaves: one clear line in its log and in its failure file."""

import contextlib
import traceback
from collections.abc import Mapping

from raysm.bootstrap.ending import Ending, ending_of_error
from raysm.bootstrap.environment import base_paths
from raysm.bootstrap.log import remark
from raysm.errors import RaysmError

__all__ = ["refuse"]


def refuse(error: Exception, environ: Mapping[str, str]) -> Ending:
    """Say why this instance cannot begin; return the ending that this makes."""
    ending = ending_of_error(error)
    if not isinstance(error, RaysmError):
        traceback.print_exception(error)
    remark(ending.reason or "")
    with contextlib.suppress(OSError, ValueError):
        ending.write(base_paths(environ).failure)
    return ending
