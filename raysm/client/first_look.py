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
    check(workload, {channel: _path(item.uri) for channel, item in inputs.items()})


def _path(uri: str) -> Path | None:
    is_here = "://" not in uri or uri.startswith("file:///")
    return file_path(uri) if is_here else None
