"""What an instance that cannot begin leaves: one clear line in its log and in its failure file."""

import contextlib
from collections.abc import Mapping

from raysm.bootstrap.environment import base_paths
from raysm.bootstrap.exit_status import ExitStatus, exit_status_of_error
from raysm.bootstrap.log import remark

__all__ = ["report_startup_failure"]


def report_startup_failure(error: Exception, environ: Mapping[str, str]) -> ExitStatus:
    """Say why this instance cannot begin; return the exit status that this makes."""
    status = exit_status_of_error(error)
    remark(status.reason or "")
    # The folder itself may be what cannot be used; the exit code and the log still say it.
    with contextlib.suppress(OSError, ValueError):
        status.write(base_paths(environ).failure)
    return status
