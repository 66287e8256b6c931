"""What travels pickled: the user's function into the job, its value, or its exception, out of it.

What flows in is the payload's ``function.pkl``, or whatever user code returned or raised; what flows out are bytes.
"""

import pickle
from pathlib import Path
from typing import Any

import cloudpickle

from raysm.errors import InvalidPayload, InvalidRequest
from raysm.workloads.failure import cause_in_task

__all__ = ["pickled_exception", "pickled_value", "unpickled"]


def pickled_value(value: object, name: str) -> bytes:
    """Return what the function ``name`` returned, pickled.

    Raises:
        InvalidRequest: It cannot be pickled.
    """
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:  # pickling runs the value's own code, which may raise anything
        raise InvalidRequest(
            f"the value of {name}, a {type(value).__name__}, cannot be pickled: {error}; return plain data, or write "
            "files into SM_MODEL_DIR"
        ) from error


def pickled_exception(error: BaseException) -> bytes | None:
    """Return the exception pickled, or None if it does not survive that: its text then has to do.

    What a Ray task raised stands for itself: its wrapper could only be read where Ray is installed.
    """
    try:
        content = cloudpickle.dumps(cause_in_task(error))
        # Read as well: one whose ``__init__`` takes other arguments than it keeps can be pickled, and fails only here.
        pickle.loads(content)
    except Exception:  # its own code again
        return None
    return bytes(content)


def unpickled(pickled: Path, name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the function ``name``, with its arguments, that a payload brought.

    Raises:
        InvalidPayload: It cannot be unpickled here.
    """
    try:
        function, args, kwargs = pickle.loads(pickled.read_bytes())
    except ModuleNotFoundError as error:
        raise InvalidPayload(
            f"the function {name} needs the module {error.name!r}, which this image lacks: add it to the requirements,"
            " or define the function where it is submitted"
        ) from error
    except Exception as error:  # unpickling runs the arguments' own code
        raise InvalidPayload(f"the function {name} cannot be unpickled: {type(error).__name__}: {error}") from error
    return function, args, kwargs
