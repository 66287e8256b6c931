"""What a job leaves, as an input of the next one: the name by which it is asked for flows in, an input flows out."""

from raysm.errors import InvalidRequest
from raysm.request import Input

__all__ = ["input_of", "output_path"]

OUTPUTS = {"model": "model", "result": "model", "data": "data"}
"""What a job leaves, by the name under which the next one asks for it."""


def output_path(name: str) -> str:
    """Return where an output lies, below the prefix of the job's outputs.

    Args:
        name: ``model`` (or ``result``), ``data``, or something below them, ``data/train.npy``.

    Raises:
        InvalidRequest: There is no such output.
    """
    folder, slash, rest = name.partition("/")
    # Not checkpoints: they are state of the same task, which resume= goes on with.
    if folder not in OUTPUTS:
        raise InvalidRequest(f"a job leaves 'model' (or 'result') and 'data', got {name!r}")
    return f"{OUTPUTS[folder]}{slash}{rest}"


def input_of(outputs: str, path: str) -> Input:
    """Return the input that is what a job left.

    Args:
        outputs: The prefix of the job's outputs.
        path: As ``output_path`` returns it.
    """
    uri = f"{outputs}/{path}"
    # SageMaker takes every key that begins with a prefix: without the slash, those of model-2 too.
    return Input(uri + "/" if uri.startswith("s3://") and path in OUTPUTS.values() else uri)
