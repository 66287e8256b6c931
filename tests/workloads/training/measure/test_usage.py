"""How busy an instance is."""

import queue
from dataclasses import replace
from itertools import count

import pytest

from raysm.errors import MissingDependency
from raysm.workloads.training.measure.counters import Counters
from raysm.workloads.training.measure.gpus import Gpu, GpusUnknown
from raysm.workloads.training.measure.usage import Sources, Usage, usage_between

MIB = 2**20

IDLE = Counters(
    time_s=0.0,
    cpu_busy_s=170.0,
    cpu_all_s=1010.0,
    received_bytes=1030,
    sent_bytes=204,
    read_bytes=4096,
    written_bytes=8192,
    memory_bytes=3 * MIB,
    memory_limit_bytes=4 * MIB,
)


class FakeGpus:
    """Answers with what it was given, one after the other and the last for ever; a text is a failure."""

    def __init__(self, *looks):
        self.looks, self.closed = list(looks), False

    def look(self):
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(look, str):
            raise GpusUnknown(look)
        return look

    def close(self):
        self.closed = True


def no_driver():
    raise GpusUnknown("no driver")


def machine(gpus=None):
    """Return the sources of a machine on which a second goes by from look to look."""
    seconds = count()
    return Sources(
        read=lambda: replace(IDLE, time_s=float(next(seconds))), open_gpus=no_driver if gpus is None else lambda: gpus
    )


def test_usage_is_what_was_counted_between_two_moments():
    after = replace(
        IDLE,
        time_s=2.0,
        cpu_busy_s=IDLE.cpu_busy_s + 1.5,
        cpu_all_s=IDLE.cpu_all_s + 2.0,
        sent_bytes=IDLE.sent_bytes + 500,
        written_bytes=IDLE.written_bytes + 4096,
    )
    usage = usage_between(IDLE, after, (Gpu(80.0, 1, 4), Gpu(40.0, 3, 4)))
    assert usage["cpu_percent"] == 75
    assert usage["memory_percent"] == 75
    assert usage["network_sent_bytes_per_s"] == 250
    assert usage["network_received_bytes_per_s"] == 0
    assert usage["disk_written_bytes_per_s"] == 2048
    assert (usage["gpu_percent"], usage["gpu_memory_percent"]) == (60, 75)


def test_an_interface_that_went_away_makes_no_rate_negative():
    usage = usage_between(IDLE, replace(IDLE, time_s=2.0, received_bytes=IDLE.received_bytes - 100))
    assert usage["network_received_bytes_per_s"] == 0


def test_a_system_that_counts_no_cpu_time_is_not_busy():
    assert usage_between(IDLE, replace(IDLE, time_s=1.0))["cpu_percent"] == 0


def test_it_is_announced_for_the_instance_and_ends_with_its_block():
    announced, lines = queue.Queue(), []
    with Usage("algo-2", announced.put, lines.append, sources=machine(), interval_s=0.01, emit_every_s=2) as usage:
        first = announced.get(timeout=90)
    assert first.host == "algo-2"
    assert usage.means()["memory_percent"] == 75
    names = {first.name} | {announced.get_nowait().name for _ in range(announced.qsize())}
    assert {"cpu_percent", "memory_bytes", "network_sent_bytes_per_s", "disk_read_bytes_per_s"} <= names
    assert not any(name.startswith("gpu") for name in names)
    assert lines == []  # of GPUs that are not there nothing is unknown


def until_announced(name, gpus, **options):
    """Look at a machine with GPUs until that metric is announced; return its event, what was said, and the usage."""
    announced, lines = queue.Queue(), []
    options |= {"has_gpus": True, "interval_s": 0.01, "emit_every_s": 3}
    with Usage("algo-2", announced.put, lines.append, sources=machine(gpus), **options) as usage:
        while (event := announced.get(timeout=90)).name != name:
            pass
    return event, lines, usage


def test_gpus_are_looked_at_and_their_library_left_at_the_end():
    gpus = FakeGpus((Gpu(60.0, 1, 4),))
    event, lines, usage = until_announced("gpu_percent", gpus)
    assert (event.value, usage.means()["gpu_percent"], lines) == (60, 60, [])
    assert gpus.closed


def test_gpus_that_nobody_opens_are_unknown_and_that_is_said_once():
    event, lines, usage = until_announced("memory_percent", None)
    assert event.value == 75
    assert "gpu_percent" not in usage.means()
    assert lines == ["how busy the GPUs of algo-2 are stays unknown: no driver"]


def test_looks_that_fail_are_left_out_of_the_means_and_said_once():
    gpus = FakeGpus("lost", "lost", (Gpu(60.0, 1, 4),))
    event, lines, usage = until_announced("gpu_percent", gpus)
    assert (event.value, usage.means()["gpu_percent"]) == (60, 60)
    assert usage.means()["memory_percent"] == 75
    assert lines == ["how busy the GPUs of algo-2 are stays unknown: lost"]


def test_without_psutil_that_is_said_once_and_the_training_goes_on():
    def lacking():
        raise MissingDependency("psutil is not installed; add it to the requirements")

    lines = []
    with Usage("algo-2", pytest.fail, lines.append, sources=Sources(read=lacking, open_gpus=no_driver)) as usage:
        pass
    assert usage.means() == {}
    assert lines == ["how busy algo-2 is stays unknown: psutil is not installed; add it to the requirements"]
