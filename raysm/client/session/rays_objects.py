"""Refuse objects of Ray in pickles between two different versions of Ray.

A function that merely uses Ray travels, since its calls are looked up where it runs. An object of Ray travels with the
fields of its own version. Of eight kinds that Ray 2.55.1 pickled, 2.60.0 read seven; an actor class failed at its first
call by an AttributeError deep within Ray (no ``num_objects_per_yield``). No version promises which ones work.
"""

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from raysm.client.source.function import pickling
from raysm.client.source.package import Culprit, culprit_of_call
from raysm.errors import CallFailed

__all__ = ["RaysObject", "culprit_among", "reader"]

RAY = "ray"


class RaysObject(Exception):
    """There is an object of Ray's in a value."""


def culprit_among(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Culprit | None:
    """Return the first object of Ray's in a call, with its path; None where there is none."""
    with pickling(fn, _refuse) as pickled:

        def look(value: Any) -> None:
            try:
                pickled(value)
            except RaysObject:
                raise
            except Exception:  # its own code: what cannot be pickled at all is said where it is to be sent
                return

        return culprit_of_call(fn, args, kwargs, look, _is_of_ray)


def _refuse(item: Any) -> None:
    # The object's class: a class of Ray's travels by its name alone, and is looked up there. A function of its API,
    # imported by its name, does not: it travels as its own code, and by what Ray has marked it with it is known.
    if _is_rays(type(item).__module__):
        raise RaysObject


def reader(of_caller: str, of_session: str) -> Callable[..., Any]:
    """Return what reads a session's pickles.

    Args:
        of_caller: Ray's version here; empty where there is none.
        of_session: The session's.

    Returns:
        ``pickle.loads``, or what does the same and raises CallFailed at an object of Ray's.
    """
    if of_caller in ("", of_session):
        # Without Ray they cannot be read either, and Python's own words for that are as good.
        return pickle.loads

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if _is_rays(module):
                raise CallFailed(
                    f"it holds {module}.{name} of Ray {of_session}, and here is Ray {of_caller}, which may read it "
                    f"wrongly; return plain data, or install ray=={of_session}"
                )
            return super().find_class(module, name)

    return lambda pickled, buffers=None: Unpickler(io.BytesIO(pickled), buffers=buffers).load()


def _is_of_ray(value: Any) -> bool:
    return _is_rays(type(value).__module__) or _is_rays(str(getattr(value, "__module__", "")))


def _is_rays(module: str) -> bool:
    return module.partition(".")[0] == RAY
