"""How a script ends is how its job ends: real bootstraps and the real driver, with a stand-in for Ray."""

import contextlib

import pytest

from raysm.core.protocol.result import MAX_REASON
from tests.support.bootstraps import Cluster, request


@pytest.fixture
def ended(tmp_path):
    """Run a script on two instances to its end; return the job, and the exit codes by host."""
    with contextlib.ExitStack() as stack:

        def run(script):
            job = stack.enter_context(Cluster(tmp_path, request(2), driver=script, runner=True))
            return job, job.start().wait()

        yield run


def test_a_script_that_raises_fails_the_job_with_its_exception_first(ended):
    job, codes = ended(
        "def layer(name):\n    raise ValueError(f'no such layer: {name}')\nlayer('conv9')\n"
    )
    reason = job.failure("algo-1")
    assert codes == {"algo-1": 1, "algo-2": 0}
    assert reason.startswith("ValueError: no such layer: conv9\n")
    assert "in layer" in reason
    assert "runpy" not in reason
    assert len(reason) <= MAX_REASON
    assert "Traceback (most recent call last)" in job.log("algo-1")


def test_a_script_that_ends_without_python_noticing_is_explained_by_what_it_wrote_last(ended):
    job, codes = ended(
        "import os, sys\nprint('CUDA error: device lost', file=sys.stderr, flush=True)\nos._exit(7)\n"
    )
    assert codes == {"algo-1": 7, "algo-2": 0}
    assert job.failure("algo-1") == "the workload exited with code 7\nCUDA error: device lost"


def test_what_a_script_writes_into_the_failure_file_leads_the_reason(ended):
    script = """
import os, sys
with open(os.path.join(os.environ["SM_OUTPUT_DIR"], "failure"), "w") as file:
    file.write("the labels of shard 7 are missing\\nask the data team")
sys.exit(255)
"""
    job, codes = ended(script)
    assert codes == {"algo-1": 255, "algo-2": 0}
    first, second, cause = job.failure("algo-1").splitlines()[:3]
    assert (first, second) == ("the labels of shard 7 are missing", "ask the data team")
    assert cause.startswith("SystemExit: 255")


def test_a_script_killed_as_the_kernel_does_when_memory_is_out_is_explained(ended):
    job, codes = ended("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert codes == {"algo-1": 137, "algo-2": 0}
    assert "SIGKILL" in job.failure("algo-1").splitlines()[0]
    assert "memory" in job.failure("algo-1")


ABORTS_AT_ITS_END = """
import atexit, ctypes, pathlib
# As torch's static destructors do now and then: abort after Python has ended.
libc = ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)
atexit.register(pathlib.Path("ended").write_text, "well")
"""


def test_a_script_that_ended_well_is_completed_whatever_libraries_do_at_the_end_of_its_process(
    ended,
):
    job, codes = ended(ABORTS_AT_ITS_END)
    assert codes == {"algo-1": 0, "algo-2": 0}, job.log("algo-1")
