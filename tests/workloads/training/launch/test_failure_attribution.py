"""Why a worker failed, from its last words."""

import signal

import pytest

from raysm.errors import InvalidRequest
from raysm.workloads.training.launch.failure_attribution import as_refusal, attribute_failure

WITHIN_A_GROUP = """\
some warning
[rank1]: Traceback (most recent call last):
[rank1]:   File "main.py", line 6, in <module>
[rank1]:     layer("conv9")
[rank1]: ValueError: no such layer: conv9
[rank1]: known are conv1, conv2
[W1120 19:27:33.512 ProcessGroup.cpp:1] destroy_process_group() was not called
"""

CHAINED = """\
Traceback (most recent call last):
  File "a.py", line 1, in <module>
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
mypackage.errors.Broken
"""

SPAWNED = """\
Traceback (most recent call last):
  File "main.py", line 90, in <module>
    mp.spawn(main_worker)
torch.multiprocessing.spawn.ProcessRaisedException: 

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "main.py", line 40, in main_worker
RuntimeError: CUDA out of memory
"""  # noqa: W291 - as torch prints it


@pytest.mark.parametrize(
    ("stderr", "kind", "text"),
    [
        (WITHIN_A_GROUP, "ValueError", "no such layer: conv9\nknown are conv1, conv2"),
        (CHAINED, "mypackage.errors.Broken", ""),
        (SPAWNED, "RuntimeError", "CUDA out of memory"),
        ("usage: main.py [-h]\nmain.py: error: unknown --epoch\n", "exit code 2", "usage: main.py [-h] main.py: error"),
    ],
)
def test_the_last_exception_is_the_reason(stderr, kind, text):
    error = attribute_failure(1, "algo-2", 2, stderr)
    assert (error.rank, error.host, error.exit_code, error.error_type) == (1, "algo-2", 2, kind)
    assert error.text.startswith(text)
    assert error.remote_traceback.startswith("Traceback" if "Traceback" in stderr else "")


def test_a_killed_worker_is_explained_by_the_signal_not_by_an_old_traceback():
    error = attribute_failure(3, "algo-2", -signal.SIGKILL, CHAINED)
    assert error.error_type == "killed by SIGKILL; most likely out of memory"
    assert (error.exit_code, error.remote_traceback) == (137, "")


def test_raysms_own_refusal_stays_one():
    text = "Traceback (most recent call last):\n  File 'a.py'\nraysm.errors.InvalidRequest: data=3 x tensor=2 is 6\n"
    found = as_refusal(attribute_failure(0, "algo-1", 1, text))
    assert type(found) is InvalidRequest
    assert str(found) == "data=3 x tensor=2 is 6"
    assert as_refusal(attribute_failure(0, "algo-1", 1, CHAINED)) is None
