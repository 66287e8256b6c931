"""How busy the GPUs are, by a driver's library that a test makes up."""

from types import SimpleNamespace

import pytest

from raysm.workloads.training.measure.gpus import Gpu, Gpus, GpusUnknown, open_gpus


class FakeNvml:
    """Behaves as pynvml does: ``failing`` are the functions that raise its error."""

    class NVMLError(Exception):
        pass

    def __init__(self, *gpus, failing=()):
        self.gpus, self.failing, self.closed = gpus, set(failing), False

    def _call(self, name):
        if name in self.failing:
            raise self.NVMLError(f"{name} failed")

    def nvmlInit(self):  # noqa: N802 - the library's name
        self._call("init")

    def nvmlShutdown(self):  # noqa: N802
        self.closed = True
        self._call("shutdown")

    def nvmlDeviceGetCount(self):  # noqa: N802
        self._call("count")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        self._call("handle")
        return self.gpus[index]

    def nvmlDeviceGetMemoryInfo(self, gpu):  # noqa: N802
        self._call("memory")
        return SimpleNamespace(used=gpu.memory_bytes, total=gpu.total_bytes, free=gpu.total_bytes - gpu.memory_bytes)

    def nvmlDeviceGetUtilizationRates(self, gpu):  # noqa: N802
        self._call("rates")
        return SimpleNamespace(gpu=int(gpu.busy_percent), memory=1)


TWO = (Gpu(80.0, 1, 4), Gpu(40.0, 3, 4))


def test_each_gpu_is_looked_at():
    gpus = Gpus(FakeNvml(*TWO))
    assert gpus.look() == TWO


@pytest.mark.parametrize("function", ["init", "count", "handle"])
def test_a_driver_that_cannot_be_opened_leaves_the_gpus_unknown(function):
    with pytest.raises(GpusUnknown, match=f"driver library says: {function} failed"):
        Gpus(FakeNvml(*TWO, failing=[function]))


@pytest.mark.parametrize("function", ["memory", "rates"])
def test_a_look_that_fails_is_unknown_and_the_next_one_may_succeed(function):
    nvml = FakeNvml(*TWO, failing=[function])
    gpus = Gpus(nvml)
    with pytest.raises(GpusUnknown, match=f"{function} failed"):
        gpus.look()
    nvml.failing.clear()
    assert gpus.look() == TWO


def test_the_library_is_left_also_where_the_driver_is_gone():
    nvml = FakeNvml(*TWO, failing=["shutdown"])
    Gpus(nvml).close()
    assert nvml.closed


def test_the_real_package_finds_gpus_or_says_why_not():
    reasons = []
    try:
        gpus = open_gpus()
    except GpusUnknown as reason:
        reasons.append(str(reason))
    else:
        assert all(0 <= gpu.busy_percent <= 100 and 0 <= gpu.memory_bytes <= gpu.total_bytes for gpu in gpus.look())
        gpus.close()
    assert all("nvidia-ml-py is not installed" in reason or "driver library says" in reason for reason in reasons)
