"""A pickled function, called on the head inside the formed cluster; its value, or its exception, travels back.

What flows in is the payload's ``function.pkl``, what flows out is ``result.pkl`` in the model folder, or the exception
itself beside the ``Failure`` of every failed workload (``contract.result`` names the files).
"""

import pickle
import signal
from pathlib import Path
from types import FrameType
from typing import Any

import cloudpickle
import ray

from raysm.contract.result import VALUE
from raysm.contract.store import put
from raysm.errors import InvalidPayload, InvalidRequest

__all__ = ["pickled_exception", "pickled_value", "run_function", "unpickled"]


def run_function(pickled: Path, name: str, model: Path) -> None:
    """Call the function of ``pickled`` with Ray initialised, and keep its value in the folder ``model``.

    Raises:
        InvalidPayload: It cannot be unpickled here.
        InvalidRequest: Its value cannot be pickled.
    """
    function, args, kwargs = unpickled(pickled, name)
    # RAY_ADDRESS names the cluster, and RAY_AUTH_TOKEN_PATH the token: "auto" takes no other one.
    ray.init(address="auto")
    # Once only, and after Ray has put its own handler in place: the function may save its work in a ``finally``.
    signal.signal(signal.SIGTERM, _leave)
    try:
        # While Ray lives: what refers to the cluster can be pickled only then.
        content = pickled_value(function(*args, **kwargs), name)
    finally:
        ray.shutdown()
    put(model / VALUE, content)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


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
    if isinstance(error, ray.exceptions.RayTaskError) and isinstance(error.cause, BaseException):
        error = error.cause
    try:
        content = cloudpickle.dumps(error)
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
