"""A payload alone makes a job: its start.py brings raysm, what is required, and the function whose value comes back."""

import pickle
import platform

import cloudpickle
import pytest

from raysm.core.protocol.result import VALUE
from raysm.core.request import Cluster, JobRequest, Security
from raysm.features.script.request import PickledFunction
from raysm.local.job_spec import Channel, JobSpec, number_hosts
from tests.support.leftovers import leaving_nothing
from tests.support.payloads import pack_payload
from tests.support.specs import run_spec
from tests.support.wheels import make_wheel

START = ("python3", "/opt/ml/input/data/raysm/start.py")


def run_function(function, root, *args, count, wheels, **fields):
    python = ".".join(platform.python_version_tuple()[:2])
    workload = PickledFunction(name=function.__name__, python=python)
    request = JobRequest(name="function", workload=workload, cluster=Cluster(count=count), **fields)
    pack_payload(
        request, root / "packed", function=cloudpickle.dumps((function, args, {})), wheels=wheels
    )
    spec = JobSpec(
        name=request.name,
        groups=number_hosts(("homogeneousCluster", "local", count)),
        command=START,
        channels=(Channel(name="raysm", source=root / "packed"),),
    )
    return run_spec(spec, root / "job")


@pytest.mark.namespace
def test_a_function_returns_its_value_with_the_raysm_that_travelled_and_a_wheel(tmp_path):
    def where(number):
        import ray
        import travelled

        import raysm

        doubled = ray.get(ray.remote(lambda x: 2 * x).remote(number))
        return {"doubled": doubled, "raysm": raysm.__file__, "wheel": travelled.VALUE}

    with leaving_nothing(tmp_path):
        wheels = [make_wheel(tmp_path, "travelled")]
        isolated = {"requirements": ("travelled",), "security": Security(isolation=True)}
        outcome, log, model = run_function(where, tmp_path, 21, count=1, wheels=wheels, **isolated)
        assert outcome.status == "Completed", log.text()
        value = pickle.loads((model / VALUE).read_bytes())
    assert value["doubled"] == 42
    assert value["wheel"] == 42
    assert value["raysm"].startswith("/tmp/raysm/")
