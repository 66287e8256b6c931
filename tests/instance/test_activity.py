"""What the kernel counts about processes: with their children, and without those that are read by themselves."""

import os
import subprocess
import sys

import pytest

from raysm.instance.activity import read_activity, read_main_cpu_s, read_usages
from raysm.instance.children import descendants
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

SPIN = "while True: pass"


@pytest.fixture
def started():
    running = []

    def start(code):
        process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        running.append(process)
        return process.pid

    yield start
    for process in running:
        os.killpg(process.pid, 9)
        process.wait()


def usage(pid):
    return read_usages([pid])[pid]


def test_processor_time_of_a_child_counts_as_that_of_its_parent(started):
    pid = started(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIN!r}])")
    until(lambda: usage(pid).cpu_s > 0.5)


def test_child_that_is_read_by_itself_is_not_counted_twice(started):
    parent, child = os.getpid(), started(SPIN)
    until(lambda: usage(child).cpu_s > 0.5)
    both = read_usages([parent, child])
    assert read_usages([parent])[parent].cpu_s >= both[parent].cpu_s + 0.5


def test_bytes_that_a_process_writes_are_counted(started):
    pid = started("file = open('/dev/null', 'wb', buffering=0)\nwhile True: file.write(b'x' * 999)")
    until(lambda: usage(pid).io_bytes > 1_000_000)


def test_processor_time_of_the_main_thread_is_that_of_no_other(started):
    pid = started(f"import threading; threading.Thread(target=exec, args=[{SPIN!r}]).start()")
    until(lambda: usage(pid).cpu_s > 0.5)
    assert 0 < read_main_cpu_s(pid) < usage(pid).cpu_s - 0.3


def test_new_memory_of_a_process_is_counted(started):
    pid = started("while True: bytearray(b'x') * 10_000_000")
    before = until(lambda: usage(pid).page_faults)
    until(lambda: usage(pid).page_faults > before + 1000)


def test_process_that_has_ended_has_no_usage():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert usage(process.pid).cpu_s == 0


def test_what_the_raylet_starts_is_counted_without_its_workers(started):
    def read(workers=()):
        return read_activity(workers, has_own_network=False).ray_cpu_s

    name = "open('/proc/self/comm', 'w').write('raylet')"
    pid = started(
        f"{name}; import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIN!r}])"
    )
    [worker] = until(lambda: descendants(pid))
    until(lambda: usage(worker).cpu_s > 0.5)
    assert read() > read([worker]) + 0.4


def test_program_that_outlives_its_parent_is_counted_where_it_is_adopted():
    code = (
        "import sys, time\n"
        "from raysm.instance import activity, children\n"
        "children._adopt_orphans(True)\n"
        "import subprocess\n"
        "subprocess.run(['sh', '-c', sys.argv[1]])\n"
        "while activity.read_activity(has_own_network=False).orphan_cpu_s < 0.3: time.sleep(0.05)\n"
        "for pid in children.descendants(activity.os.getpid()): activity.os.kill(pid, 9)\n"
    )
    command = f"'{sys.executable}' -c '{SPIN}' > /dev/null 2>&1 &"
    subprocess.run([sys.executable, "-c", code, command], check=True, timeout=120)


def test_activity_of_an_instance_is_read_without_gpus_and_without_an_own_network():
    assert read_activity(has_own_network=False).network_bytes == 0
    assert read_activity(has_own_network=True).gpu_memory_percent >= 0
