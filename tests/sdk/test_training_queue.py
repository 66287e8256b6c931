"""The SageMaker SDK's own TrainingQueue, unchanged, against the embedded Batch and SageMaker.

The SDK runs in a process of its own, as its users run it: with nothing but environment variables that say where.
"""

import pytest

from tests.support.batch_queues import make_service_queue
from tests.support.sagemaker_server import ROLE, Server
from tests.support.sdk_programs import run_program

pytestmark = [pytest.mark.long, pytest.mark.namespace]

QUEUE = """
import json, sys
from sagemaker.train.aws_batch.training_queue import TrainingQueue
from sagemaker.train.configs import Compute, InputData, SourceCode
from sagemaker.train.model_trainer import ModelTrainer

options = json.loads(sys.argv[1])
trainer = ModelTrainer(
    training_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/any:1",
    role=options["role"],
    base_job_name="sdk",
    source_code=SourceCode(source_dir=options["source"], entry_script="train.py"),
    compute=Compute(instance_type="ml.c5.xlarge", instance_count=1, volume_size_in_gb=1),
)
queue = TrainingQueue("training")
one = queue.submit(trainer, inputs=None, job_name="one", priority=5, tags={"team": "x"})
inputs = [[InputData(channel_name="data", data_source=uri)] for uri in options["uris"]]
many = queue.map(trainer, inputs=inputs, job_names=["many-0", "many-1"])
results = [job.result(timeout=400) for job in (one, *many)]
attached = one.get_model_trainer()
broken = queue.submit(trainer, inputs=[InputData(channel_name="broken", data_source=options["uris"][0])], job_name="no")
try:
    broken.result(timeout=400)
    failure = ""
except RuntimeError as error:
    failure = str(error)
print("RESULT", json.dumps({
    "statuses": [result["status"] for result in results],
    "names": [result["latestAttempt"]["serviceResourceId"]["value"].rpartition("/")[2] for result in results],
    "attached": attached._latest_training_job.training_job_name,
    "listed": queue.get_job("many-1").job_arn == many[1].job_arn,
    "failure": failure,
}))
"""

TRAIN = """
import os, sys
if os.path.exists("/opt/ml/input/data/broken"):
    sys.exit("nothing can be made of this")
data = "/opt/ml/input/data/data"
print("trained on", sorted(os.listdir(data)) if os.path.exists(data) else "nothing")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("sdk"), "--instance-kind=namespace", "--cores=4")
    server.make_bucket()
    make_service_queue(server.client("batch"), capacity=2)
    yield server
    server.end()


@pytest.fixture(scope="module")
def told(server, tmp_path_factory):
    """Return what the SDK says of the jobs that it has sent."""
    folder = tmp_path_factory.mktemp("program")
    source = folder / "src"
    source.mkdir()
    (source / "train.py").write_text(TRAIN)
    for name in ("a", "b"):
        server.put(f"data/{name}/{name}.txt", b"x")
    uris = [f"s3://test-bucket/data/{name}/" for name in ("a", "b")]
    return run_program(QUEUE, {"role": ROLE, "source": str(source), "uris": uris}, server, folder)


def test_what_the_sdk_submits_and_maps_really_runs_and_is_found_under_its_own_name(server, told):
    assert told["statuses"] == ["SUCCEEDED"] * 3
    assert told["listed"]
    assert told["attached"] == told["names"][0]
    texts = [[text for _, text in server.lines(name) if text.startswith("trained")] for name in told["names"]]
    assert texts == [["trained on nothing"], ["trained on ['a.txt']"], ["trained on ['b.txt']"]]


def test_the_tags_of_a_queued_job_are_its_training_jobs_too(server, told):
    arn = server.describe(told["names"][0])["TrainingJobArn"]
    tags = {tag["Key"]: tag["Value"] for tag in server.sm.list_tags(ResourceArn=arn)["Tags"]}
    assert tags["team"] == "x"


def test_a_failure_arrives_as_sagemakers_own_words(told):
    assert told["failure"].startswith("Received status from SageMaker:AlgorithmError")
