"""Containers as AWS's PyTorch ones, on a daemon: jobs as they are sent to AWS, with nothing of raysm in the image."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import raysm
from raysm.core.client.job.description import Status
from raysm.core.client.storage.s3 import file_path
from raysm.core.protocol.home import scenario_file
from tests.support import docker, reference
from tests.support.homes import serving
from tests.support.image_like_aws import (
    OLDER_RAY,
    USER,
    image_like_aws,
    image_of_python_312,
    why_no_older_ray,
    why_no_python_312,
)
from tests.support.waiting import until_line

pytestmark = [pytest.mark.docker, pytest.mark.long, pytest.mark.timeout(900)]

DIGITS = Path(__file__).parents[2] / "examples" / "data" / "digits.csv.gz"
TWO = raysm.Cluster(count=2)
ENDED_S = 500.0
SENTENCE_S = 30.0
"""From the container's start to the sentence that says what its image lacks."""

SUM = """
import os, socket
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
if dist.get_rank() == 0:
    with open(os.environ["SM_MODEL_DIR"] + "/sum", "w") as file:
        file.write(f"{total.item()} of {dist.get_world_size()} on {socket.gethostname()}")
dist.destroy_process_group()
"""
WAITS = """
import os, signal, sys, time
def save(number, frame):
    with open(os.environ["SM_MODEL_DIR"] + "/saved", "w") as file:
        file.write("before the end")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("waits to be stopped", flush=True)
time.sleep(600)
"""

WHOEVER = """
import os, ray
ray.init(log_to_driver=False)

@ray.remote(num_cpus=0)
def who():
    return os.getuid()

hosts = ("algo-1", "algo-2")
users = ray.get([who.options(label_selector={"raysm.io/host": host}).remote() for host in hosts])
with open(os.environ["SM_MODEL_DIR"] + "/users", "w") as file:
    file.write(f"{users}")
"""


def skip(reason):
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    skip(docker.why_no_base())
    with serving(tmp_path_factory.mktemp("like-aws")) as home:
        yield home


@pytest.fixture
def target(home):
    """Return where jobs of an image go."""

    def build(ray="this", image=image_like_aws):
        return raysm.Local(home=str(home), instance_kind="docker", image=image(ray))

    return build


def script(folder, code):
    path = folder / "main.py"
    path.write_text(code)
    return str(path)


def text_of(job):
    return "\n".join(line.text for line in job.lines())


def ended(job):
    job.wait(timeout=ENDED_S)
    assert job.status is Status.COMPLETED, text_of(job)
    return job.result()


@pytest.mark.parametrize("image", [image_like_aws, image_of_python_312])
def test_a_similarity_on_two_containers_equals_float64_index_for_index(tmp_path, target, image):
    skip(why_no_python_312() if image is image_of_python_312 else None)
    rows = np.loadtxt(DIGITS, delimiter=",", skiprows=1)
    np.save(tmp_path / "matrix.npy", rows)
    inputs = {"matrix": str(tmp_path / "matrix.npy")}
    # Neither image has a compiler: the kernels travel, made ready.
    result = ended(
        raysm.submit(raysm.Similarity(top_k=5), cluster=TWO, inputs=inputs, on=target(image=image))
    )
    table = pq.read_table(result / "neighbors.parquet")
    some = list(range(0, 1797, 100))
    indices, scores = reference.neighbors(rows, 5, some)
    np.testing.assert_array_equal(np.stack(table["neighbors"].to_numpy())[some], indices)
    np.testing.assert_array_equal(np.stack(table["similarities"].to_numpy())[some], scores)


def test_a_script_for_torchrun_adds_up_over_two_containers(tmp_path, target):
    workload = raysm.TorchScript(script(tmp_path, SUM), workers_per_instance=1)
    result = ended(raysm.submit(workload, cluster=TWO, on=target()))
    assert (result / "sum").read_text() == "3.0 of 2 on aws"


def test_a_stop_reaches_the_script_behind_tini_and_what_it_saves_then_is_there(tmp_path, target):
    job = raysm.submit(raysm.Script(script(tmp_path, WAITS)), cluster=TWO, on=target())
    until_line(job, "waits to be stopped", ENDED_S)
    job.stop()
    job.wait(timeout=ENDED_S)
    assert job.status is Status.STOPPED, text_of(job)
    assert file_path(f"{job.outputs}/model/saved").read_text() == "before the end"


@pytest.mark.parametrize(
    ("image", "ray", "words"),
    [
        (image_like_aws, "none", "the requirements ray["),
        (image_like_aws, "older", f"(this image has Ray {OLDER_RAY}) cannot be installed"),
        (image_of_python_312, "none", "the requirements ray["),
    ],
)
def test_an_image_without_this_ray_and_a_network_without_an_index_end_in_one_sentence(
    tmp_path, target, image, ray, words
):
    skip(why_no_older_ray() if ray == "older" else None)
    skip(why_no_python_312() if image is image_of_python_312 else None)
    job = raysm.submit(raysm.Script(script(tmp_path, "print('user code')")), on=target(ray, image))
    assert_one_sentence(job, words)
    assert "user code" not in text_of(job).splitlines()


def test_a_function_of_another_python_is_refused_in_one_sentence(target):
    skip(why_no_python_312())
    job = raysm.submit(raysm.Function(sum, [1, 2]), on=target(image=image_of_python_312))
    assert_one_sentence(job, "was pickled by Python 3.11, but this instance has 3.12")


def assert_one_sentence(job, words):
    """Assert that a job fails with a reason of one line, soon after its container has started."""
    with pytest.raises(raysm.JobFailed) as failed:
        job.result(timeout=ENDED_S)
    assert words in failed.value.reason
    assert len(failed.value.reason.splitlines()) == 1
    transitions = job.describe().answer["SecondaryStatusTransitions"]
    (training,) = [one for one in transitions if one["Status"] == "Training"]
    assert (training["EndTime"] - training["StartTime"]).total_seconds() < SENTENCE_S


def test_a_job_that_runs_as_another_user_than_root_has_its_cluster_and_leaves_its_result(tmp_path):
    skip(docker.why_no_base())
    with serving(tmp_path / "home") as home:
        home.mkdir()
        scenario_file(home).write_text(f"[container]\nuser = {USER}\n")
        on = raysm.Local(home=str(home), instance_kind="docker", image=image_like_aws())
        result = ended(raysm.submit(raysm.Script(script(tmp_path, WHOEVER)), cluster=TWO, on=on))
    assert (result / "users").read_text() == f"[{USER}, {USER}]"


def test_an_image_that_names_its_user_can_write_its_folders_too(tmp_path, target):
    on = target("user")
    result = ended(raysm.submit(raysm.Script(script(tmp_path, WHOEVER)), cluster=TWO, on=on))
    assert (result / "users").read_text() == f"[{USER}, {USER}]"
