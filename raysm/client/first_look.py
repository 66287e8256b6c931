"""Looks at inputs of this machine before anything is sent, as the kind of workload says.

The check needs the packages that read the data, and lies in the half that computes: the workload names it, and it is
imported where those packages are here. Elsewhere the job says what is wrong.
"""

import pkgutil
from collections.abc import Mapping
from pathlib import Path

from raysm.client.storage import file_path
from raysm.request import Input, Workload

__all__ = ["check_inputs"]


def check_inputs(workload: Workload, inputs: Mapping[str, Input]) -> None:
    """Look at the inputs that are here.

    Raises:
        InvalidInput: What is wrong with them.
    """
    if workload.input_check is None:
        return
    try:
        check = pkgutil.resolve_name(workload.input_check)
    except ImportError:  # the light half, without NumPy
        return
    check(workload, {channel: _path(item) for channel, item in inputs.items()})


def _path(source: Input) -> Path | None:
    is_here = "://" not in source.uri or source.uri.startswith("file:///")
    # Of a manifest the data are elsewhere.
    return file_path(source.uri) if is_here and not source.manifest else None
