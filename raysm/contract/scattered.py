"""Values that a session keeps once for all of its instances, in Ray's object store."""

from typing import Any

from raysm.contract.parcels import load


class Scattered:
    """A handle of a value for the arguments of a session's calls; a call receives the value itself.

    Arrays in the value are read-only, because all processes of an instance share their memory.
    """

    def __init__(self, reference: bytes, size: int) -> None:
        self._reference, self._size = reference, size

    def __reduce__(self) -> Any:
        return _value, (self._reference,)

    def __repr__(self) -> str:
        return f"<a value of {self._size:,} bytes in the session's memory>"


def _value(reference: bytes) -> Any:
    import ray
    from ray import cloudpickle

    # It was pickled as the argument of a call.
    _, (value,), _ = load(ray.get(cloudpickle.loads(reference)))
    return value
