"""Exit codes and failure texts."""

import contextlib
import os
import subprocess
import sys

import pytest

from raysm.core.protocol.result import MAX_REASON, Failure
from raysm.instance.exit_status import (
    ExitStatus,
    blames_cluster,
    exit_status_of_driver,
    exit_status_of_error,
    reserve_room,
)


@pytest.mark.parametrize(
    ("error_type", "blames"),
    [
        ("ValueError", False),
        ("ray.exceptions.RayTaskError(ValueError)", False),  # what a task raised is the user's own
        ("ray.exceptions.ActorDiedError", True),
        ("InstanceLost", True),
    ],
)
def test_a_driver_blames_the_cluster_by_the_errors_of_ray_and_of_lost_instances(error_type, blames):
    assert blames_cluster(Failure(error_type=error_type, message="why")) is blames


@pytest.fixture
def small_disk(tmp_path):
    if not sys.platform.startswith("linux") or os.getuid() != 0:
        pytest.skip("mounting a disk needs Linux and root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", disk], check=True)


pytestmark = pytest.mark.smoke

GIB = 2**30


def test_the_reason_of_a_job_that_has_filled_its_disk_is_written_into_the_room_that_was_kept_for_it(
    small_disk,
):
    failure = small_disk / "output" / "failure"
    reserve_room(failure)
    with contextlib.suppress(OSError), (small_disk / "big").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    ExitStatus(1, "the disk is full").write(failure)
    assert failure.read_text() == "the disk is full"
    assert [path.name for path in failure.parent.iterdir()] == ["failure"]


def test_nothing_is_left_of_the_room_that_was_kept_for_the_reason_of_a_job_that_ends_well(tmp_path):
    reserve_room(tmp_path / "failure")
    ExitStatus(0).write(tmp_path / "failure")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("own", "cause"), [(20, 30), (5000, 30), (5000, 5000), (20, 5000)])
def test_the_text_of_the_users_code_comes_first_and_leaves_room_for_the_cause(tmp_path, own, cause):
    failure = tmp_path / "failure"
    failure.write_text("u" * own)
    reason = ExitStatus(1, "c" * min(cause, MAX_REASON)).led_by_file(failure).reason
    first, second = reason.split("\n")
    assert len(reason) <= MAX_REASON
    assert len(first) >= min(own, MAX_REASON // 2 - 1)
    assert len(second) >= min(cause, MAX_REASON // 2)
    assert first.startswith("uuuuu")


def test_without_a_failure_the_file_of_the_users_code_stays_as_it_is(tmp_path):
    (tmp_path / "failure").write_text("a warning")
    assert ExitStatus(0).led_by_file(tmp_path / "failure") == ExitStatus(0)


def of_driver(status, *, failure=None, tail="", kills=None):
    return exit_status_of_driver(status, failure, tail, 4 * GIB, kills)


def test_without_a_record_the_last_words_explain_an_exit_code():
    assert of_driver(4, tail="last words\n") == ExitStatus(
        4, "the workload exited with code 4\nlast words"
    )


def test_a_check_of_rays_own_is_said_without_its_frames():
    line = "task_manager.cc:1329:  Check failed: it != tasks.end() Tried to complete a task"
    frames = "\n".join(
        f"/lib/_raylet.so(+0x{number:x}) ray::core::Frame{number}()" for number in range(80)
    )
    log = f"well\n[2026-11-23 18:16:30,926 C 3958 4151] {line}\n*** StackTrace Information ***\n{frames}\n"
    assert of_driver(1, tail=log).reason == f"the workload exited with code 1\n{line}"
    assert (
        len(of_driver(1, tail=log.replace("well", "w").replace("task_manager", "t" * 5000)).reason)
        <= MAX_REASON
    )


CRASH = """Loading
Fatal Python error: Segmentation fault

Thread 0x00007f01 (most recent call first):
  File "/lib/python3.11/threading.py", line 327 in wait

{head} (most recent call first):
  File "/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/job/source/train.py", line 6 in main
  File "/lib/raysm/features/script/runner.py", line 128 in _value
  File "<frozen runpy>", line 88 in _run_code

Extension modules: {modules} (total: 900)
"""


@pytest.mark.parametrize(
    "head", ["Current thread 0x00007f02", "Current thread 0x00007f02 [python]", "Stack"]
)
def test_a_crash_is_said_with_the_innermost_frames_of_the_users_code(head):
    text = CRASH.format(head=head, modules=", ".join(f"torch._C{number}" for number in range(900)))
    assert of_driver(-11, tail=text).reason == (
        "the workload was killed by SIGSEGV\nFatal Python error: Segmentation fault\n"
        '  File "/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n'
        '  File "/job/source/train.py", line 6 in main'
    )


def test_the_reason_of_a_crash_in_a_deep_recursion_has_its_length():
    deep = '  File "/job/source/train.py", line 6 in main\n' * 100
    text = CRASH.format(head="Stack", modules="a").replace(
        '  File "/job/source/train.py", line 6 in main\n', deep
    )
    assert len(of_driver(-11, tail=text).reason) <= MAX_REASON


def test_sigkill_is_told_with_the_memory_and_the_kernel_s_count_and_without_lines_that_have_nothing_to_do_with_it():
    status = of_driver(-9, kills=2, tail="INFO worker.py:1691 -- Using address 10.0.0.1:6379")
    assert status.exit_code == 137
    assert status.reason == (
        "the workload was killed by SIGKILL: most likely out of memory (this machine has 4.0 GiB;"
        " the kernel ended 2 of its processes for that meanwhile)"
    )


def test_an_error_of_our_own_has_its_class_and_no_traceback():
    status = exit_status_of_error(ZeroDivisionError("division by zero"))
    assert status.exit_code == 1
    assert status.reason.startswith(
        "ZeroDivisionError: division by zero (an error inside raysm's bootstrap"
    )


def test_a_reason_with_a_lone_surrogate_is_written_escaped_and_within_its_length(tmp_path):
    ExitStatus(1, "bad \udcff" + "x" * 1019).write(tmp_path / "failure")
    written = (tmp_path / "failure").read_text(encoding="utf-8")
    assert written.startswith("bad \\udcffx")
    assert len(written) == MAX_REASON
