"""Where the work on a GPU is queued: copying, multiplying and filtering beside each other. On a CPU, all in turn.

Three streams: what is queued in one runs in order; one waits for another by events alone. Memory that one stream frees
while another still reads it is kept by the allocator, which ``shared`` tells of the readers.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Cuda", "CudaStreams", "InTurn", "Runtime", "Streams", "streams_of"]

STAGE_BYTES = 32 << 20
"""Size of each of the two pinned buffers through which rows travel."""


class Streams(Protocol):
    """Queues of one device, and how rows get there."""

    def copying(self) -> AbstractContextManager[Any]:
        """Queue what follows among the copies."""
        ...

    def multiplying(self) -> AbstractContextManager[Any]:
        """Queue what follows among the products."""
        ...

    def filtering(self) -> AbstractContextManager[Any]:
        """Queue what follows among the filters."""
        ...

    def mark(self) -> Any:
        """Return an event: what was queued so far where work is queued now."""
        ...

    def after(self, event: Any) -> None:
        """Let what is queued next, where work is queued now, wait for an event; None is none."""
        ...

    def shared(self, tensor: torch.Tensor) -> None:
        """Say that all streams read a tensor."""
        ...

    def upload(self, rows: NDArray[Any], to: torch.Tensor) -> None:
        """Copy rows[n, D] into a tensor of the same shape and type, queued where work is queued now."""
        ...


class InTurn:
    """A CPU: everything is done when it is asked for."""

    def copying(self) -> AbstractContextManager[Any]:
        """See ``Streams``."""
        return nullcontext()

    # One way for all three: what is queued has run when the call returns.
    multiplying = filtering = copying

    def mark(self) -> Any:
        """See ``Streams``."""
        return None

    def after(self, event: Any) -> None:
        """See ``Streams``."""

    def shared(self, tensor: torch.Tensor) -> None:
        """See ``Streams``."""

    def upload(self, rows: NDArray[Any], to: torch.Tensor) -> None:
        """See ``Streams``."""
        # A copy, since mapped rows are read-only: torch warns of a tensor that would share them.
        to.copy_(torch.from_numpy(np.array(rows)))


class Runtime(Protocol):
    """What ``CudaStreams`` asks of CUDA; a test has one of its own, for machines without a GPU."""

    def stream(self) -> Any:
        """Return a new queue."""
        ...

    def event(self) -> Any:
        """Return an event, recorded where work is queued now."""
        ...

    def queued(self, stream: Any) -> AbstractContextManager[Any]:
        """Queue what follows there."""
        ...

    def wait(self, event: Any) -> None:
        """Let what is queued next wait for an event."""
        ...

    def keep(self, tensor: torch.Tensor, stream: Any) -> None:
        """Say that a stream reads a tensor."""
        ...

    def pinned(self, size: int) -> torch.Tensor:
        """Return so many bytes that the device can read by itself."""
        ...


class Cuda:
    """The runtime of one GPU."""

    def __init__(self, device: torch.device) -> None:
        """Take the device."""
        self._device = device

    def stream(self) -> Any:
        """See ``Runtime``."""
        return torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]

    def event(self) -> Any:
        """See ``Runtime``."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return event

    def queued(self, stream: Any) -> AbstractContextManager[Any]:
        """See ``Runtime``."""
        context: AbstractContextManager[Any] = torch.cuda.stream(stream)
        return context

    def wait(self, event: Any) -> None:
        """See ``Runtime``."""
        # The stream waits, and not this thread, which goes on to queue.
        torch.cuda.current_stream().wait_event(event)

    def keep(self, tensor: torch.Tensor, stream: Any) -> None:
        """See ``Runtime``."""
        # Else the allocator would give its memory away as soon as the stream that made it is done.
        tensor.record_stream(stream)

    def pinned(self, size: int) -> torch.Tensor:
        """See ``Runtime``."""
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)


class CudaStreams:
    """One GPU."""

    def __init__(self, runtime: Runtime, stage_bytes: int = STAGE_BYTES) -> None:
        """Make three streams, and two pinned buffers."""
        self._runtime, self._stage_bytes = runtime, stage_bytes
        self._copy, self._product, self._filter = (runtime.stream() for _ in range(3))
        # Only from pinned memory does a copy run beside the host, and mapped rows are not.
        self._stages = [runtime.pinned(stage_bytes) for _ in range(2)]
        self._busy: list[Any] = [None, None]
        self._next = 0

    def copying(self) -> AbstractContextManager[Any]:
        """See ``Streams``."""
        return self._runtime.queued(self._copy)

    def multiplying(self) -> AbstractContextManager[Any]:
        """See ``Streams``."""
        return self._runtime.queued(self._product)

    def filtering(self) -> AbstractContextManager[Any]:
        """See ``Streams``."""
        return self._runtime.queued(self._filter)

    def mark(self) -> Any:
        """See ``Streams``."""
        return self._runtime.event()

    def after(self, event: Any) -> None:
        """See ``Streams``."""
        if event is not None:
            self._runtime.wait(event)

    def shared(self, tensor: torch.Tensor) -> None:
        """See ``Streams``."""
        for stream in (self._copy, self._product, self._filter):
            self._runtime.keep(tensor, stream)

    def upload(self, rows: NDArray[Any], to: torch.Tensor) -> None:
        """See ``Streams``."""
        row_bytes = rows.shape[1] * rows.itemsize
        step = max(1, self._stage_bytes // row_bytes)
        for start in range(0, len(rows), step):
            # Two in turn: one is filled while the other is copied.
            at, self._next = self._next, 1 - self._next
            # The buffer is free when its last copy has ended; the other one's may go on meanwhile.
            if self._busy[at] is not None:
                self._busy[at].synchronize()
            some, target = rows[start : start + step], to[start : start + step]
            size = some.size * some.itemsize
            if size > self._stage_bytes:
                # One row alone is larger than the buffer.
                target.copy_(torch.from_numpy(np.array(some)))
                continue
            stage = self._stages[at][:size].view(to.dtype).view(some.shape)
            np.copyto(stage.numpy(), some)
            target.copy_(stage, non_blocking=True)
            self._busy[at] = self.mark()


def streams_of(device: torch.device) -> Streams:
    """Return the queues of a device."""
    return CudaStreams(Cuda(device)) if device.type == "cuda" else InTurn()
