"""How busy the GPUs of this machine are, as NVIDIA's driver says through nvidia-ml-py (imported as ``pynvml``).

What flows in is the package, or whatever behaves like it; what flows out is one ``Gpu`` for each, or ``GpusUnknown``
with the reason. Nothing else may come out: figures are not worth a training.
"""

import contextlib
from dataclasses import dataclass
from typing import Any

__all__ = ["Gpu", "Gpus", "GpusUnknown", "open_gpus"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU at one moment."""

    busy_percent: float
    """Of the last period of the driver, at most a second, in which a kernel ran."""
    memory_bytes: int
    """In use."""
    total_bytes: int
    """That it has."""


class GpusUnknown(Exception):
    """Nobody says how busy the GPUs are; the text says why."""


class Gpus:
    """The GPUs of the machine, whichever of them this process may use: an instance is one job's."""

    def __init__(self, nvml: Any) -> None:
        """Open the driver's library.

        Args:
            nvml: The module ``pynvml``.

        Raises:
            GpusUnknown: There is no driver, or it does not answer.
        """
        self._nvml = nvml
        try:
            nvml.nvmlInit()
            # Kept: they stay the same while the library is open.
            self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as error:
            raise GpusUnknown(f"NVIDIA's driver library says: {error}") from error

    def look(self) -> tuple[Gpu, ...]:
        """Return each of them as it is now.

        Raises:
            GpusUnknown: The driver does not answer, or does not count this: MIG instances have no rate of use.
        """
        try:
            # All or none: the mean over some would look like a machine that is idle.
            return tuple(map(self._look, self._handles))
        except self._nvml.NVMLError as error:
            raise GpusUnknown(f"NVIDIA's driver library says: {error}") from error

    def close(self) -> None:
        """Leave the library; harmless when the driver is gone."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _look(self, handle: Any) -> Gpu:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        # NVML's own mean of its last period: sampled here, kernels of a millisecond would be missed.
        busy_percent = self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu
        return Gpu(float(busy_percent), int(memory.used), int(memory.total))


def open_gpus() -> Gpus:
    """Return the GPUs of this machine.

    Raises:
        GpusUnknown: nvidia-ml-py is not installed, or there is no driver.
    """
    try:
        # Not at the top: a CPU instance needs no package for GPUs that it has not.
        import pynvml
    except ImportError as error:
        raise GpusUnknown("nvidia-ml-py is not installed; add it to the requirements") from error
    return Gpus(pynvml)
