"""The SageMaker SDK's own ModelTrainer, unchanged and in a process of its own, against the embedded SageMaker."""

import json
import tarfile

import pytest

from tests.support.aws_samples import SAMPLE
from tests.support.sagemaker_server import BUCKET, ROLE, Server
from tests.support.sdk_programs import run_program

pytestmark = [pytest.mark.namespace, pytest.mark.long]

TRAIN = """
import json, sys
from sagemaker.core.utils.exceptions import FailedStatusError
from sagemaker.train.configs import Compute, InputData, SourceCode
from sagemaker.train.model_trainer import ModelTrainer
import raysm.sdk

options, results = json.loads(sys.argv[1]), []
for asked in options["trainings"]:
    trainer = ModelTrainer(
        training_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/any:1",
        role=options["role"],
        base_job_name="sdk",
        source_code=SourceCode(source_dir=asked["source"], entry_script="train.py"),
        compute=Compute(instance_type="ml.c5.xlarge", instance_count=2),
        hyperparameters={"epochs": 3, "name": "a b", "rate": 0.5},
        distributed=raysm.sdk.Ray(**asked["ray"]) if asked["ray"] is not None else None,
    )
    inputs = [InputData(channel_name=name, data_source=uri) for name, uri in asked["inputs"].items()]
    try:
        trainer.train(input_data_config=inputs or None, wait=True, logs=True)
    except FailedStatusError:
        pass
    job = trainer._latest_training_job.refresh()
    results.append([job.training_job_name, job.training_job_status, str(job.failure_reason)])
print("RESULT", json.dumps(results))
"""

PLAIN = """
import json, os, sys
print("SAW", json.dumps([sys.argv[1:], os.environ["SM_CURRENT_HOST"]]), flush=True)
"""

ON_A_CLUSTER = """
import json, os, sys
import beside, ray
ray.init(log_to_driver=False)

@ray.remote
def where():
    return os.environ["SM_CURRENT_HOST"]

hosts = ray.get([where.options(resources={f"host:{host}": 1}).remote() for host in ("algo-1", "algo-2")])
told = [os.environ[name] for name in ("SM_SOURCE_DIR", "SM_ENTRY_SCRIPT", "SM_HPS", "SM_CHANNEL_CODE")]
print("SAW", json.dumps([sys.argv[1:], hosts, os.getcwd(), beside.VALUE, told]), flush=True)
with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights"), "w") as file:
    file.write("trained")
"""

FAILING = "raise ValueError('the data are odd')"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("sdk"), "--instance-kind=namespace", "--cores=4")
    yield server
    server.end()


def training(folder, script, ray=None, inputs=None):
    """What the program is told of one training; its source is written into ``folder``."""
    folder.mkdir()
    (folder / "train.py").write_text(script)
    (folder / "beside.py").write_text("VALUE = 'imported'")
    return {"source": str(folder), "ray": ray, "inputs": inputs or {}}


@pytest.fixture(scope="module")
def trained(server, tmp_path_factory):
    """Name, status and reason of each training, by one process: to import the SDK takes it seconds of a core."""
    folder = tmp_path_factory.mktemp("trained")
    server.make_bucket()
    server.put("sample/a.csv", b"1\n\n2\n")
    server.put("sample/b.csv", b"3\n")
    sample = {"ray": {"init": True}, "inputs": {"processing": f"s3://{BUCKET}/sample/"}}
    trainings = {
        "plain": training(folder / "plain", PLAIN),
        "ray": training(folder / "ray", ON_A_CLUSTER, ray={}),
        "sample": training(folder / "sample", SAMPLE, **sample),
        "failing": training(folder / "failing", FAILING, ray={"coordinator_only": True}),
    }
    options = {"role": ROLE, "trainings": list(trainings.values())}
    return dict(zip(trainings, run_program(TRAIN, options, server, folder), strict=True))


def said(server, name, start):
    """The hosts and JSON values of the lines that begin with ``start``."""
    lines = [(host, text) for host, text in server.lines(name) if text.startswith(start)]
    return [(host, json.loads(text.removeprefix(start))) for host, text in lines]


def model(server, name, folder):
    described = server.describe(name)
    bucket, _, key = (
        described["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://").partition("/")
    )
    server.s3.download_file(bucket, key, str(folder / "model.tar.gz"))
    with tarfile.open(folder / "model.tar.gz") as archive:
        return {
            item.name.removeprefix("./"): archive.extractfile(item).read()
            for item in archive
            if item.isfile()
        }


def test_plain_train_runs_the_sdks_own_script_on_both_instances(server, trained):
    name, status, reason = trained["plain"]
    assert status == "Completed", reason
    arguments = ["--epochs", "3", "--name", "a b", "--rate", "0.5"]
    assert sorted(said(server, name, "SAW ")) == [
        ("algo-1", [arguments, "algo-1"]),
        ("algo-2", [arguments, "algo-2"]),
    ]


def test_with_ray_the_script_runs_once_on_a_cluster_of_both_instances(server, trained, tmp_path):
    name, status, reason = trained["ray"]
    assert status == "Completed", reason
    code = "/opt/ml/input/data/code"
    arguments = ["--epochs", "3", "--name", "a b", "--rate", "0.5"]
    told = [code, "train.py", '{"epochs": 3, "name": "a b", "rate": 0.5}', code]
    assert said(server, name, "SAW ") == [
        ("algo-1", [arguments, ["algo-1", "algo-2"], code, "imported", told])
    ]
    left = model(server, name, tmp_path)
    assert left.pop("weights") == b"trained"
    assert list(left) == ["manifest.json"]


def test_a_script_of_aws_s_samples_for_ray_runs_unmodified(server, trained, tmp_path):
    name, status, reason = trained["sample"]
    assert status == "Completed", reason
    assert [text for _, text in server.lines(name) if text.startswith("SAW")] == ["SAW 1 2"]
    assert model(server, name, tmp_path)["counts.txt"] == b"[2, 1]"


# How the script's exception becomes the reason is the bootstrap's: jobs/test_script_ends.
def test_with_ray_what_the_script_raises_is_the_failure_reason_and_the_secret_is_in_no_log(
    server, trained
):
    name, status, reason = trained["failing"]
    assert status == "Failed"
    assert reason.startswith(
        "AlgorithmError: ValueError: the data are odd\nTraceback (most recent call last):"
    )
    described = json.dumps(server.describe(name), default=str)
    channels = {item["ChannelName"]: item for item in server.describe(name)["InputDataConfig"]}
    uri = channels["sm_drivers"]["DataSource"]["S3DataSource"]["S3Uri"]
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    key = f"{prefix.rstrip('/')}/distributed_drivers/raysm/token"
    token = server.s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    assert len(token) == 64
    assert token not in described
    assert not [line for line in server.lines(name) if token in line[1]]
