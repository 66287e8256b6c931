"""Why a workload failed, and what travels pickled."""

import threading

import pytest
import ray
from ray.exceptions import RayTaskError

from raysm.contract.names import LABEL_HOST, LABEL_RANK
from raysm.errors import InvalidPayload, InvalidRequest
from raysm.workloads.failure import failure_of, pickled_value, task_traceback, unpickled


def test_what_a_task_raises_is_the_reason_and_no_color_is_in_its_traceback():
    cause = ValueError("bad 3")
    try:
        raise RayTaskError("f", "\x1b[36mray::f()\x1b[39m\nValueError: bad 3", cause).as_instanceof_cause()
    except ValueError as error:
        failure = failure_of(error)
    assert (failure.error_type, failure.message) == ("ValueError", "bad 3")
    assert "ray::f()" in failure.remote_traceback
    assert "\x1b" not in failure.remote_traceback


@pytest.mark.parametrize(("address", "message"), [("192.0.2.1", "bad 3"), ("192.0.2.2", "bad 3 (on algo-2)")])
def test_the_reason_names_the_instance_of_the_task_unless_that_is_the_head(monkeypatch, address, message):
    labels = [{LABEL_HOST: f"algo-{number}", LABEL_RANK: str(number - 1)} for number in (1, 2)]
    nodes = [{"NodeManagerAddress": f"192.0.2.{number}", "Labels": own} for number, own in enumerate(labels, 1)]
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    # A task that waited for another one: the inner one raised.
    text = f"ray::outer() (pid=7, ip=192.0.2.1)\nray.exceptions: ray::f() (pid=8, ip={address})\nValueError: bad 3"
    error = RayTaskError("outer", text, ValueError("bad 3")).as_instanceof_cause()
    assert failure_of(error).headline == f"ValueError: {message}"


def test_the_traceback_of_a_task_shows_the_users_frames_alone():
    text = """\x1b[36mray::part 0: a.csv()\x1b[39m (pid=7, ip=192.0.2.2, actor_id=db1d, repr=<raysm.workloads._Process>)
           ^^^^^^^^^^^^^
  File "/lib/raysm/workloads/processes.py", line 21, in call
    return function(block, *inputs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/b.py", line 3, in predict
    return {"label": batch["txt"]}
                     ~~~~~^^^^^^^
KeyError: 'txt'"""
    assert task_traceback(RayTaskError("f", text, KeyError("txt"))).splitlines() == [
        "ray::part 0: a.csv() (pid=7, ip=192.0.2.2)",
        '  File "/home/b.py", line 3, in predict',
        '    return {"label": batch["txt"]}',
        "                     ~~~~~^^^^^^^",
        "KeyError: 'txt'",
    ]
    own = 'ray::f() (pid=7)\n  File "/lib/raysm/workloads/processes.py", line 21, in call\nKeyError: 1'
    assert task_traceback(RayTaskError("f", own, KeyError(1))) == own


def test_a_value_that_cannot_be_pickled_says_what_to_return():
    with pytest.raises(InvalidRequest, match="the value of f, a lock, cannot be pickled: .*; return data"):
        pickled_value(threading.Lock(), "f")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cnowhere_to_be_found\nf\n.", "needs the module 'nowhere_to_be_found', which this image lacks"),
        (b"torn", "cannot be unpickled: UnpicklingError"),
    ],
)
def test_a_function_that_cannot_be_unpickled_says_why(tmp_path, content, message):
    path = tmp_path / "function.pkl"
    path.write_bytes(content)
    with pytest.raises(InvalidPayload, match=message):
        unpickled(path, "f")
