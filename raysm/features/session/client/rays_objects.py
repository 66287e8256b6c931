"""Refuse objects of Ray in pickles between two different versions of Ray.

A function that merely uses Ray travels, since its calls are looked up where it runs. An object of
Ray travels with the fields of its own version. Of eight kinds that Ray 2.55.1 pickled, 2.60.0 read
seven; an actor class failed at its first call by an AttributeError deep within Ray (no
``num_objects_per_yield``). No version promises which ones work.
"""

import io
import pickle
from collections.abc import Callable
from typing import Any

from raysm.core.client.source.function import pickling
from raysm.errors import CallFailed


class RaysObject(Exception):
    """A value contains an object of Ray."""


def holds_rays_object(fn: Callable[..., Any], *values: Any) -> bool:
    def refuse(item: Any) -> None:
        # Only instances: Ray's classes are pickled by name, and looked up in the session's Ray. A
        # function of Ray's API that was imported by name is pickled by value, and is recognized by
        # the objects that Ray has attached to it.
        if _is_rays(type(item).__module__):
            raise RaysObject

    with pickling(fn, refuse) as pickled:
        try:
            pickled((fn, values))
        except RaysObject:
            return True
        # A value that cannot be pickled is reported later, when the call is pickled.
        except Exception:
            return False
    return False


def reader(of_caller: str, of_session: str) -> Callable[..., Any]:
    """Return ``pickle.loads``, or between two versions of Ray a variant that raises CallFailed for an object of Ray."""
    if of_caller in ("", of_session):
        # Without Ray, Python's own ImportError says what is missing.
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


def _is_rays(module: str) -> bool:
    return module.partition(".")[0] == "ray"
