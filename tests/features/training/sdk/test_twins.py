"""raysm's requests beside the SageMaker SDK's: by its model and its classes, and the same job as it sends it itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raysm.core.client.plan import plan
from raysm.core.protocol.job_api import TRAINING
from raysm.core.request import Cluster, Input, JobRequest, Limits
from raysm.features.script.request import Script
from raysm.local.server.validation import check, check_rules
from tests.support.plans import plans
from tests.support.sagemaker import aws, places_of

pytestmark = pytest.mark.long

PLANS = dict(plans())

NAMED_BY_PLACE = {"InputDataConfig": "ChannelName", "Tags": "Key"}
"""Lists in which the order says nothing: what an item is called, by its list."""


def leaves(value, path=()):
    """Yield the way to everything that a request says, and what it says there."""
    key = NAMED_BY_PLACE.get(path[-1]) if path else None
    if key:
        value = {
            item[key]: {name: part for name, part in item.items() if name != key} for item in value
        }
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, (*path, name))
    else:
        yield ".".join(path), value


SORTS = {
    frozenset((path, bool(value)) for path, value in leaves(sent.request)): (name, sent)
    for name, sent in PLANS.items()
}
SORTS = dict(SORTS.values())
"""One plan of each set of members: the SDK reads its configuration anew for each job, which takes
0.1 s."""


def named(sent):
    """Return plans as the SDK's process is asked about them."""
    return [(item.api.create.removeprefix("Create"), item.request) for item in sent.values()]


JOB = {
    "image": aws().image,
    "role": aws().role,
    "instance_type": "ml.c5.xlarge",
    "count": 2,
    "volume_gb": 100,
    "max_runtime_s": 18_000,
    "output_uri": "s3://b/results",
    "checkpoint_uri": "s3://b/checkpoints",
    "environment": {"OMP_NUM_THREADS": "4"},
    "hyperparameters": {"epochs": "3"},
    "inputs": {"train": "s3://b/train/"},
}
"""The job that is sent in each way."""

SDK_CONFIG = """\
SchemaVersion: "1.0"
SageMaker:
  PythonSDK:
    Modules:
      TelemetryOptOut: true
      Session:
        DefaultS3Bucket: of-the-sdk
"""


@pytest.fixture(scope="module")
def sdk(tmp_path_factory):
    """What the SDK answers, asked once."""
    folder = tmp_path_factory.mktemp("twins")
    (folder / "sagemaker.yaml").write_text(SDK_CONFIG)
    (folder / "src").mkdir()
    for name in ("train.py", "launcher.py"):
        (folder / "src" / name).write_text("print('hello')\n")
    question = {
        "plans": named(PLANS),
        "resend": named(SORTS),
        "job": JOB,
        "source": str(folder / "src"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.sdk_requests"],
        input=json.dumps(question),
        cwd=Path(__file__).parents[4],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "SAGEMAKER_USER_CONFIG_OVERRIDE": str(folder / "sagemaker.yaml"),
        },
        capture_output=True,
        text=True,
        timeout=400,
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert answers, done.stdout[-3000:] + done.stderr[-5000:]
    return json.loads(answers[0].removeprefix("ANSWER "))


def without_defaults(value):
    """Leave out what is false or empty, the API's default of it all: the SDK says it in some places, in others not."""
    if isinstance(value, list):
        return [without_defaults(item) for item in value]
    if not isinstance(value, dict):
        return value
    items = {key: without_defaults(item) for key, item in value.items()}
    return {key: item for key, item in items.items() if item is not False and item not in ([], {})}


def test_the_sdks_own_model_knows_every_member_of_every_plan(sdk):
    assert sdk["unknown"] == []


def test_the_sdks_classes_take_every_plan_and_send_it_as_it_is(sdk):
    for (name, sent), resent in zip(SORTS.items(), sdk["resent"], strict=True):
        assert without_defaults(resent) == without_defaults(sent.request), name


def ours():
    """Return what raysm sends for the job."""
    request = JobRequest(
        name="job",
        workload=Script("train.py"),
        cluster=Cluster(JOB["instance_type"], count=JOB["count"], volume_gb=JOB["volume_gb"]),
        inputs={name: Input(uri) for name, uri in JOB["inputs"].items()},
        limits=Limits(max_runtime_s=JOB["max_runtime_s"]),
        environment=JOB["environment"],
        hyperparameters=JOB["hyperparameters"],
        output_uri=JOB["output_uri"],
        checkpoint_uri=JOB["checkpoint_uri"],
    )
    return plan(request, target=aws(), places=places_of(aws())).request


def differences(mine, others):
    """Return where two requests differ: a part that the one alone has counts as one place, however much it says."""
    mine, others = dict(leaves(mine)), dict(leaves(others))
    places = {path for path in mine.keys() | others.keys() if mine.get(path) != others.get(path)}
    return {channel_of(path) if (path in mine) != (path in others) else path for path in places}


def channel_of(path):
    """Return the channel where ``path`` is in one that is raysm's or the SDK's own; elsewhere the path itself."""
    part, _, rest = path.partition(".")
    name = rest.partition(".")[0]
    return f"{part}.{name}" if part == "InputDataConfig" and name not in JOB["inputs"] else path


EXPLAINED = {
    "TrainingJobName": "the SDK adds the time; raysm's name is what the user says, and submit adds the time",
    "AlgorithmSpecification.ContainerEntrypoint": "exec form: behind a shell, SIGTERM does not reach raysm",
    "AlgorithmSpecification.ContainerArguments": "the SDK's command for its shell",
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": "said, so that what it costs is never switched on",
    "InputDataConfig.raysm": "the source travels in one channel with raysm itself, the token and the digests",
    "InputDataConfig.code": "the SDK's channel of the source",
    "InputDataConfig.sm_drivers": "the SDK's channel of its start script",
    "OutputDataConfig.CompressionType": "as an archive, a result would have to be fetched whole to read one file",
    "CheckpointConfig.LocalPath": "what AWS's sample says is the API's own default",
    "Environment.RAYSM_TRAIN_STORAGE": "several instances share no disk, and Ray Train needs a storage that they share",
    "EnableNetworkIsolation": "the API's default, said: policies may have a condition on it",
    "EnableInterContainerTrafficEncryption": "the API's default, said: policies may have a condition on it",
    "EnableManagedSpotTraining": "the API's default, said",
    "RemoteDebugConfig.EnableRemoteDebug": "off, and said: policies may want that; AWS's sample has it on",
}
"""Where raysm's request differs from the SDK's, and why."""


@pytest.fixture
def twins(sdk):
    return sdk["twins"]


def test_every_difference_to_the_same_job_by_the_sdk_is_explained_and_every_explanation_is_of_one(
    twins,
):
    places = {name: differences(ours(), twin) for name, twin in twins.items()}
    assert {name: found - EXPLAINED.keys() for name, found in places.items()} == dict.fromkeys(
        twins, set()
    )
    assert set().union(*places.values()) == EXPLAINED.keys()


def test_what_a_distribution_of_raysms_adds_is_nothing_that_the_request_says(twins):
    plain, ray = (
        dict(leaves(twins[name])) for name in ("ModelTrainer", "ModelTrainer with raysm.sdk.Ray")
    )
    named_by_time = {
        path for path in plain if path == "TrainingJobName" or path.endswith("S3DataSource.S3Uri")
    }
    assert {
        path for path in plain.keys() | ray.keys() if plain.get(path) != ray.get(path)
    } <= named_by_time
    assert ray["InputDataConfig.train.DataSource.S3DataSource.S3Uri"] == JOB["inputs"]["train"]


def test_the_embedded_server_takes_what_the_sdk_sends(twins):
    for twin in twins.values():
        check(TRAINING.create, twin)
        check_rules(TRAINING, twin)
