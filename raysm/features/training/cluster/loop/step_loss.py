"""The loss of a step, which stays on the device until something reads it.

Reading waits for the device, which then has nothing queued. Therefore a step itself must not read
it.
"""

import contextlib
import math
import numbers
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist

# Pickled as ``float(text)``, which torch.load refuses by default: users keep losses in checkpoints.
torch.serialization.add_safe_globals([float])


class StepLoss(numbers.Real):
    """A number that waits for the device when it is first read.

    It computes, compares and prints as a float does, and is pickled as one. ``float(loss)`` is a
    float for what takes nothing else, such as ``json``.
    """

    __slots__ = ("_arrival", "_message", "_span", "_value")

    def __init__(
        self,
        message: torch.Tensor,
        work: "dist.Work | None",
        span: Callable[[str], AbstractContextManager[Any]],
    ) -> None:
        self._message: torch.Tensor | None = message
        self._span = span
        self._value: float | None = None
        self._arrival: Any = work
        if message.device.type == "cuda":
            if work is not None:
                work.wait()  # of NCCL: the stream waits, and this process does not
            # Copied behind the work that is queued now, so that a later read waits for no more.
            self._message = torch.empty_like(message, device="cpu", pin_memory=True)
            self._message.copy_(message, non_blocking=True)
            self._arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrival.record()

    @property
    def has_arrived(self) -> bool:
        """Whether reading it would not wait."""
        if self._arrival is None or self._value is not None:
            return True
        if isinstance(self._arrival, dist.Work):
            return self._arrival.is_completed()
        return bool(self._arrival.query())

    def __float__(self) -> float:
        if self._value is None:
            assert self._message is not None
            # Measured, because the device computes meanwhile, wherever the loop reads the loss.
            with contextlib.nullcontext() if self.has_arrived else self._span("wait"):
                self._wait()
            self._value = float(self._message.item())
            # A list of all losses must not keep pinned memory and events.
            self._message = self._arrival = None
        return self._value

    def _wait(self) -> None:
        if isinstance(self._arrival, dist.Work):
            # Also if it is completed: a sum that failed is, and raises here.
            self._arrival.wait()
        elif self._arrival is not None:
            self._arrival.synchronize()

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        return float, (float(self),)

    def __repr__(self) -> str:
        return repr(float(self))

    def __format__(self, spec: str) -> str:
        return format(float(self), spec)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(float(self))

    def __eq__(self, other: object) -> bool:
        return float(self) == other

    def __lt__(self, other: float) -> bool:
        return float(self) < other

    def __le__(self, other: float) -> bool:
        return float(self) <= other

    def __gt__(self, other: float) -> bool:
        return float(self) > other

    def __ge__(self, other: float) -> bool:
        return float(self) >= other

    def __abs__(self) -> float:
        return abs(float(self))

    def __neg__(self) -> float:
        return -float(self)

    def __pos__(self) -> float:
        return float(self)

    def __add__(self, other: float) -> float:
        return float(self) + other

    def __radd__(self, other: float) -> float:
        return other + float(self)

    def __mul__(self, other: float) -> float:
        return float(self) * other

    def __rmul__(self, other: float) -> float:
        return other * float(self)

    def __truediv__(self, other: float) -> float:
        return float(self) / other

    def __rtruediv__(self, other: float) -> float:
        return other / float(self)

    def __floordiv__(self, other: float) -> float:
        return float(self) // other

    def __rfloordiv__(self, other: float) -> float:
        return other // float(self)

    def __mod__(self, other: float) -> float:
        return float(self) % other

    def __rmod__(self, other: float) -> float:
        return other % float(self)

    def __pow__(self, other: Any) -> Any:
        return float(self) ** other

    def __rpow__(self, other: Any) -> Any:
        return other ** float(self)

    def __int__(self) -> int:
        return int(float(self))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        # Not at the top: NumPy takes a tenth of a second, and most trainings need none.
        import numpy as np

        return np.array(float(self), dtype)

    def __trunc__(self) -> int:
        return math.trunc(float(self))

    def __floor__(self) -> int:
        return math.floor(float(self))

    def __ceil__(self) -> int:
        return math.ceil(float(self))

    def __round__(self, digits: int | None = None) -> Any:
        return round(float(self), digits)
