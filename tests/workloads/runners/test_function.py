"""A pickled function as the driver runs it; tests/jobs runs a whole one."""

import pickle
import platform

from raysm.bootstrap.exit_status import exception_beside
from raysm.client.source.function import pickled_call
from raysm.contract.paths import Paths
from raysm.contract.result import VALUE
from raysm.request import JobRequest, PickledFunction
from tests.support.driving import drive, refusal_without
from tests.support.payloads import pack_payload


def test_an_image_without_cloudpickle_says_so():
    assert refusal_without("cloudpickle", PickledFunction(name="work", python="3.11")) == (
        "the image lacks cloudpickle, which a function needs; add it to the requirements"
    )


def driven(function, base, folder):
    """Have the driver call a function; return its process, and the failure that it recorded."""
    python = ".".join(platform.python_version_tuple()[:2])
    request = JobRequest(name="job", workload=PickledFunction(name=function.__name__, python=python))
    pack_payload(request, Paths(base).payload, function=pickled_call(function, (), {}))
    return drive(Paths(base), folder)


def test_a_function_that_leaves_with_0_has_the_value_none(address, base, tmp_path):
    def leave():
        raise SystemExit(0)

    done, failure = driven(leave, base, tmp_path)
    assert (done.returncode, failure) == (0, None)
    assert pickle.loads((Paths(base).model / VALUE).read_bytes()) is None


def test_what_a_function_raises_is_recorded_as_the_very_exception_with_its_traceback(address, base, tmp_path):
    class Own(Exception):
        pass

    def fail():
        raise Own("no", 7)

    done, failure = driven(fail, base, tmp_path)
    assert done.returncode == failure.exit_code == 1
    assert failure.headline.endswith("Own: ('no', 7)")
    assert "raise Own" in failure.remote_traceback
    assert '/function.py", line' not in failure.remote_traceback
    raised = pickle.loads(exception_beside(tmp_path / "failure.json").read_bytes())
    assert (type(raised).__name__, raised.args) == ("Own", ("no", 7))
