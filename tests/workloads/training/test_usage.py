"""How busy an instance is: CPU, memory, network, disks and GPUs."""

import queue
import sys
from itertools import count
from types import SimpleNamespace

import psutil
import pytest

from raysm.workloads.training.usage import Usage, read_counters

MIB = 2**20

IDLE = {
    "time_s": 0.0,
    "cpu_busy_s": 170.0,
    "cpu_all_s": 1010.0,
    "network_received": 1030,
    "network_sent": 204,
    "disk_read": 4096,
    "disk_written": 8192,
    "memory_bytes": 3 * MIB,
    "memory_limit_bytes": 4 * MIB,
}


def test_the_real_counters_grow():
    before = read_counters()
    sum(range(10**6))
    after = read_counters()
    assert after["time_s"] > before["time_s"]
    assert after["cpu_all_s"] >= before["cpu_all_s"] > 0
    assert 0 < after["memory_bytes"] <= after["memory_limit_bytes"] <= psutil.virtual_memory().total


class FakeNvml:
    """Behaves as pynvml does for (percent, used, total) of each GPU; ``failing`` are the functions that raise."""

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
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return self.gpus[index]

    def nvmlDeviceGetMemoryInfo(self, gpu):  # noqa: N802
        self._call("memory")
        return SimpleNamespace(used=gpu[1], total=gpu[2])

    def nvmlDeviceGetUtilizationRates(self, gpu):  # noqa: N802
        self._call("rates")
        return SimpleNamespace(gpu=gpu[0])


@pytest.fixture
def nvml(monkeypatch):
    """Return a function that puts a driver's library with these GPUs in the place of the real one."""

    def put(*gpus, failing=()):
        fake = FakeNvml(*gpus, failing=failing)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        return fake

    return put


def until_emitted(name, **options):
    """Read a machine's usage until that metric is emitted; return its event, what was said, and the usage."""
    emitted, lines, seconds = queue.Queue(), [], count()
    options = {"interval_s": 0.01, "emit_every_s": 3} | options

    def read():
        return IDLE | {"time_s": float(next(seconds))}

    with Usage("algo-2", emitted.put, lines.append, read=read, **options) as usage:
        while (event := emitted.get(timeout=90)).name != name:
            pass
    return event, lines, usage


def test_metrics_are_those_of_the_instance_and_without_gpus_none_is_missing(nvml):
    nvml(failing=["init"])
    event, lines, usage = until_emitted("memory_percent")
    assert (event.host, event.value) == ("algo-2", 75)
    names = {"cpu_percent", "memory_bytes", "network_sent_bytes_per_s", "disk_read_bytes_per_s"}
    assert names <= usage.means().keys()
    assert not any(name.startswith("gpu") for name in usage.means())
    assert lines == []


def test_gpus_are_read_and_their_library_closed_at_the_end(nvml):
    fake = nvml((60, 1, 4), failing=["shutdown"])
    event, lines, usage = until_emitted("gpu_percent", has_gpus=True)
    assert (event.value, usage.means()["gpu_percent"], lines) == (60, 60, [])
    assert fake.closed
