"""The runner of a session, as far as it needs no cluster: a job of its own is in tests/jobs/test_session.py."""

import threading

from raysm.request.session import SessionWorkload
from raysm.workloads.runner import Runner
from raysm.workloads.runners.session import RAYS_PRINTER, SERVER_THREAD, SessionRunner, _Serving
from raysm.workloads.session.blobs import Blobs
from raysm.workloads.session.cells import Cells


def output_in(serving, name):
    """Return whose output it is that a thread of this name prints."""
    found = []
    thread = threading.Thread(target=lambda: found.append(serving.output()), name=name)
    thread.start()
    thread.join()
    return found[0]


def test_the_kind_names_this_runner():
    assert SessionWorkload.runner == f"{SessionRunner.__module__}:{SessionRunner.__name__}"
    assert issubclass(SessionRunner, Runner)


def test_what_the_server_and_ray_print_while_nothing_runs_is_the_jobs(tmp_path):
    serving = _Serving(None, Cells("algo-1"), tmp_path, tmp_path, Blobs(tmp_path))
    assert [output_in(serving, name) for name in (SERVER_THREAD, RAYS_PRINTER, "anybody")] == [None] * 3
