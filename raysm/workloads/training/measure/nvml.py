"""How busy the GPUs of this machine are, as NVIDIA's driver library says: four calls of it, and no package."""

import ctypes
from dataclasses import dataclass

__all__ = ["Gpu", "Nvml", "find_gpus"]

LIBRARY = "libnvidia-ml.so.1"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU at one moment."""

    busy_percent: float
    """Of the last period of the driver, at most a second, in which a kernel ran."""
    memory_bytes: int
    """In use."""
    total_bytes: int
    """That it has."""


class _Utilization(ctypes.Structure):
    """``nvmlUtilization_t``."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    """``nvmlMemory_t``."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """An open library; see the NVML API reference, https://docs.nvidia.com/deploy/nvml-api/."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Open it.

        Raises:
            OSError: There is no driver.
        """
        self._library = library
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self._devices = []
        for index in range(count.value):
            device = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
            self._devices.append(device)

    def gpus(self) -> tuple[Gpu, ...]:
        """Return all GPUs of the machine, whichever of them this process may use.

        Raises:
            OSError: The driver does not answer.
        """
        found = []
        for device in self._devices:
            busy, memory = _Utilization(), _Memory()
            self._call("nvmlDeviceGetUtilizationRates", device, ctypes.byref(busy))
            self._call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
            found.append(Gpu(float(busy.gpu), int(memory.used), int(memory.total)))
        return tuple(found)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise OSError(f"{name} answered {status}")


def find_gpus() -> Nvml | None:
    """Return the open library, or None where there is no NVIDIA driver."""
    try:
        return Nvml(ctypes.CDLL(LIBRARY))
    except (OSError, AttributeError):
        return None
