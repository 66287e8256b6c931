"""What of a batch inference's input can be seen to be wrong before a job is sent: by the names of files, and headers.

What flows in are files of this machine, what flows out is nothing, or the first thing that is wrong.
"""

from collections.abc import Mapping
from pathlib import Path

from raysm.errors import InvalidInput
from raysm.request.batch import BatchInference
from raysm.workloads.batch.formats import format_of
from raysm.workloads.file_names import data_files

__all__ = ["check_inputs"]


def check_inputs(workload: BatchInference, inputs: Mapping[str, Path | None]) -> None:
    """Look at the channel that is read, where it is here.

    Args:
        workload: What is asked for.
        inputs: By channel: the file or folder; None for what is elsewhere.

    Raises:
        InvalidRequest: No channel can be read, or several could.
        InvalidInput: It has no files, or it is not known how to read them.
    """
    channel = workload.channel_of(inputs)
    path = inputs[channel]
    if path is None:
        return
    names = [name for name, _ in data_files(path)]
    if not names:
        raise InvalidInput(f"{path}, the input {channel!r}, has no files; give a file, or a folder with files")
    if workload.read is None:
        format_of(names, channel)
