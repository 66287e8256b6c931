"""Every workload once more while AWS does all that it does now and then: each ends in its result, or in its reason."""

import http.client
import json

import pytest

import raysm
from raysm.core.client.job.description import Status
from raysm.core.client.targets.local import find_server
from raysm.core.protocol.home import scenario_file
from raysm.errors import ServiceError
from raysm.features.training.cluster.model_file import MODEL_FILE
from tests.jobs.test_training_interrupted import undisturbed
from tests.support import interrupted_loop
from tests.support.homes import serving
from tests.support.hostile import soon_over
from tests.support.leftovers import assert_nothing_left
from tests.support.waiting import until, until_line

pytestmark = [pytest.mark.long, pytest.mark.namespace, pytest.mark.timeout(900)]

ONE, TWO = raysm.Cluster(count=1), raysm.Cluster(count=2)
ENDED_S = 400.0
LATE_S = 60.0

EVERYWHERE = """
import os, socket
from pathlib import Path
import ray
ray.init(log_to_driver=False)

@ray.remote(num_cpus=0)
def where():
    Path(os.environ["SM_MODEL_DIR"], "clash").write_text("of another instance")
    return socket.gethostname()

hosts = ("algo-1", "algo-2")
names = ray.get([where.options(label_selector={"raysm.io/host": host}).remote() for host in hosts])
Path(os.environ["SM_MODEL_DIR"], "clash").write_text("of the head")
print("all are called", *names, flush=True)
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Yield a home whose server plays the example's scenario, with its waits at a fifth."""
    with serving(tmp_path_factory.mktemp("hostile")) as home:
        home.mkdir(exist_ok=True)
        scenario_file(home).write_text(soon_over())
        yield home
    assert_nothing_left(home)


@pytest.fixture
def on(hostile):
    return raysm.Local(home=str(hostile), instance_kind="namespace")


def script(folder, code):
    path = folder / "main.py"
    path.write_text(code)
    return path


def ended(job):
    job.wait(timeout=ENDED_S)
    assert job.status is Status.COMPLETED, "\n".join(line.text for line in job.lines())
    return job


def text_of(job):
    return "\n".join(line.text for line in job.lines())


@pytest.mark.parametrize("kind", ["training", pytest.param("processing", marks=pytest.mark.soak)])
def test_a_script_has_the_heads_files_and_tells_its_last_line(tmp_path, on, kind):
    job = ended(
        raysm.submit(raysm.Script(str(script(tmp_path, EVERYWHERE))), cluster=TWO, on=on, kind=kind)
    )
    assert (job.result() / "clash").read_text() == "of the head"
    # The last lines come after the end.
    assert until(lambda: "all are called aws aws" in text_of(job), LATE_S)
    assert "amazon-ssm-agent" not in text_of(job)


def test_a_script_that_fails_has_its_exception_as_the_reason(tmp_path, on):
    job = raysm.submit(
        raysm.Script(str(script(tmp_path, "raise ValueError('no such layer')"))), cluster=ONE, on=on
    )
    with pytest.raises(raysm.JobFailed) as failed:
        job.result(timeout=ENDED_S)
    assert failed.value.reason.startswith("ValueError: no such layer")


def test_a_function_returns_its_value(on):
    assert (
        raysm.submit(raysm.Function(sum, [1, 2, 3]), cluster=ONE, on=on).result(timeout=ENDED_S)
        == 6
    )


# That an interrupted loop has these weights is shown by test_training_interrupted, and that spot
# capacity is taken and the job goes on, by test_submit and test_in_state.
@pytest.mark.soak
def test_a_loop_whose_spot_capacity_is_taken_ends_with_the_weights_of_an_undisturbed_one(
    tmp_path, on, hostile
):
    # By torchrun's workers: what Ray Train adds takes twice the time, and is shown by
    # test_training_interrupted.
    loop = raysm.TorchScript(interrupted_loop.__file__, args=['{"keeps": true, "hold": 4}'])
    job = raysm.submit(loop, cluster=TWO, on=on, limits=raysm.Limits(spot=True, max_runtime_s=800))
    until_line(job, "holding after step 4", ENDED_S)
    interrupt(hostile, job.name)
    ended(job)
    assert "goes on from the checkpoint of step" in text_of(job)
    (tmp_path / "undisturbed").mkdir()
    assert (job.result() / MODEL_FILE).read_bytes() == undisturbed(tmp_path / "undisturbed")


def interrupt(home, name):
    connection = http.client.HTTPConnection("127.0.0.1", find_server(home).port, timeout=30)
    connection.request("POST", f"/raysm/jobs/{name}/interrupt")
    answer = connection.getresponse()
    assert json.loads(answer.read()) == {"interrupted": name}
    connection.close()


@pytest.mark.soak
def test_a_sweep_has_the_trial_whose_value_is_the_best(on):
    # Inside: what is of this module's own could not be imported there.
    def distance(x):
        return {"loss": abs(x - 0.25)}

    sweep = raysm.Sweep(
        distance, space={"x": raysm.uniform(0.0, 1.0)}, metric="loss", mode="min", trials=4
    )
    result = ended(raysm.submit(sweep, cluster=TWO, on=on)).result()
    rows = result.table().rows()
    assert len(rows) == 4
    assert (
        result.best.value
        == min(row["value"] for row in rows)
        == abs(result.best.params["x"] - 0.25)
    )


# What a session does where remote debugging is allowed, in an account as hostile, is shown by
# test_session_kinds.
def test_a_session_in_an_account_that_forbids_remote_debugging_says_that_none_can_be_had(on):
    with pytest.raises(ServiceError, match="sagemaker:EnableRemoteDebug"):
        raysm.Session(cluster=TWO, on=on).start()
