"""Exit codes and failure texts."""

import pytest

from raysm.bootstrap.exit_status import ExitStatus, exit_status_of_driver, exit_status_of_error, one_line, signal_name
from raysm.contract.result import MAX_REASON, Failure
from raysm.errors import ClusterNotFormed, InvalidConfig, InvalidPayload, MissingDependency

pytestmark = pytest.mark.smoke

GIB = 2**30


FAILURE = Failure(error_type="ValueError", message="bad", remote_traceback="trace", exit_code=1)


def of_driver(status, *, failure=None, tail="", kills=None):
    return exit_status_of_driver(status, failure, tail, 4 * GIB, kills)


def test_zero_is_no_failure():
    assert of_driver(0, tail="noise") == ExitStatus(0)


def test_the_driver_s_own_record_is_the_reason():
    assert of_driver(1, failure=FAILURE) == ExitStatus(1, "ValueError: bad\ntrace")


def test_who_crashes_after_its_own_exception_has_failed_by_the_exception():
    assert of_driver(-11, failure=FAILURE) == ExitStatus(139, "ValueError: bad\ntrace")


def test_the_headline_of_an_exit_status_is_its_reason_without_the_traceback():
    assert of_driver(1, failure=FAILURE).headline == "ValueError: bad"
    assert ExitStatus(0).headline == ""


def test_without_a_record_the_last_words_explain_an_exit_code():
    assert of_driver(4, tail="last words\n") == ExitStatus(4, "the driver exited with code 4\nlast words")


def test_a_check_of_rays_own_is_said_without_its_frames():
    line = "task_manager.cc:1329:  Check failed: it != tasks.end() Tried to complete a task"
    frames = "\n".join(f"/lib/_raylet.so(+0x{number:x}) ray::core::Frame{number}()" for number in range(80))
    log = f"well\n[2026-11-23 18:16:30,926 C 3958 4151] {line}\n*** StackTrace Information ***\n{frames}\n"
    assert of_driver(1, tail=log).reason == f"the driver exited with code 1\n{line}"
    assert len(of_driver(1, tail=log.replace("well", "w").replace("task_manager", "t" * 5000)).reason) <= MAX_REASON


def test_a_long_tail_is_cut_at_its_beginning_to_what_a_reason_may_have():
    reason = of_driver(3, tail="x" * 5000 + "the end").reason
    assert len(reason) == MAX_REASON
    assert reason.startswith("the driver exited with code 3\n…xxx")
    assert reason.endswith("the end")


def test_sigkill_is_told_with_the_memory_and_the_kernel_s_count_and_without_lines_that_have_nothing_to_do_with_it():
    status = of_driver(-9, kills=2, tail="INFO worker.py:1691 -- Using address 10.0.0.1:6379")
    assert status.exit_code == 137
    assert status.reason == (
        "the driver was killed by SIGKILL: most likely out of memory (this instance has 4.0 GiB;"
        " the kernel ended 2 of its processes for that meanwhile)"
    )


def test_another_signal_is_named_with_what_was_written_last():
    status = of_driver(-11, tail="Fatal Python error: Segmentation fault\n")
    assert status == ExitStatus(139, "the driver was killed by SIGSEGV\nFatal Python error: Segmentation fault")


@pytest.mark.parametrize("error", [InvalidConfig("a"), InvalidPayload("a"), MissingDependency("a")])
def test_what_could_not_begin_exits_two(error):
    assert exit_status_of_error(error) == ExitStatus(2, "a")


def test_a_cluster_that_did_not_form_exits_one():
    assert exit_status_of_error(ClusterNotFormed("2 of 3")) == ExitStatus(1, "2 of 3")


def test_an_error_of_our_own_has_its_class_and_no_traceback():
    status = exit_status_of_error(ZeroDivisionError("division by zero"))
    assert status.exit_code == 1
    assert status.reason.startswith("ZeroDivisionError: division by zero (an error inside raysm's bootstrap")


def test_a_reason_is_one_line_of_printable_characters_however_long_the_error_is():
    assert one_line(ValueError("a\n b\x00c")) == "a b?c"
    assert one_line(ValueError()) == "ValueError"
    assert len(one_line(ValueError("x" * 9999))) == MAX_REASON


def test_a_reason_with_a_lone_surrogate_is_written_escaped_and_within_its_length(tmp_path):
    ExitStatus(1, "bad \udcff" + "x" * 1019).write(tmp_path / "failure")
    written = (tmp_path / "failure").read_text(encoding="utf-8")
    assert written.startswith("bad \\udcffx")
    assert len(written) == MAX_REASON


def test_a_reason_on_a_full_or_missing_disk_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    ExitStatus(1, "why").write(tmp_path / "file" / "failure")
    ExitStatus(1, "why").write(tmp_path / "output" / "failure")
    assert (tmp_path / "output" / "failure").read_text() == "why"


def test_signals_have_names():
    assert (signal_name(9), signal_name(15)) == ("SIGKILL", "SIGTERM")
    assert signal_name(63).startswith("signal 63")
