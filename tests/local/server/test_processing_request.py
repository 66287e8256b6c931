"""CreateProcessingJob, as this machine takes it."""

import pytest
from botocore.exceptions import ClientError

from raysm.local.server.processing_request import check
from raysm.local.server.validation import ApiError
from tests.support.api_requests import processing_parameters
from tests.support.sagemaker_server import BUCKET, ROLE, until

APP = {"ImageUri": "image", "ContainerEntrypoint": ["python3", "a.py"]}


def request(**fields):
    return processing_parameters(**{"AppSpecification": APP, **fields})


def given(name="x", **source):
    source = {
        "S3Uri": "s3://b/x",
        "LocalPath": "/opt/ml/processing/input/x/",
        "S3DataType": "S3Prefix",
        "S3InputMode": "File",
        **source,
    }
    return {"InputName": name, "S3Input": source}


def left(name="made", **target):
    target = {
        "S3Uri": "s3://b/made",
        "LocalPath": "/opt/ml/processing/made",
        "S3UploadMode": "EndOfJob",
        **target,
    }
    return {"OutputName": name, "S3Output": target}


def outputs(*all_of_them, **more):
    return {"ProcessingOutputConfig": {"Outputs": list(all_of_them), **more}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"ProcessingInputs": [{"InputName": "x", "DatasetDefinition": {}}]},
            "input 'x': only S3Input",
        ),
        ({"ProcessingInputs": [given(S3DataType="Other")]}, "S3DataType"),
        ({"ProcessingInputs": [given(S3InputMode="Pipe")]}, "Pipe"),
        (
            {"ProcessingInputs": [given(LocalPath="/tmp/x")]},
            "input 'x': LocalPath.*must lie below /opt/ml/processing",
        ),
        (
            outputs(left(LocalPath="/opt/ml/model")),
            "output 'made': LocalPath.*must lie below /opt/ml/processing",
        ),
        (outputs({"OutputName": "made", "FeatureStoreOutput": {}}), "output 'made': only S3Output"),
    ],
)
def test_what_is_not_to_be_had_here_is_refused_with_what_is(fields, message):
    with pytest.raises(ApiError, match=message):
        check(request(**fields))


GROUP = "/aws/sagemaker/ProcessingJobs"
HOST = 'host=$(sed -n \'s/.*current_host": "\\(.*\\)",/\\1/p\' /opt/ml/config/resourceconfig.json)'


def source(name, uri, path=None, distribution="FullyReplicated", **fields):
    return {
        "InputName": name,
        "S3Input": {
            "S3Uri": uri,
            "LocalPath": path or f"/opt/ml/processing/input/{name}",
            "S3DataType": "S3Prefix",
            "S3InputMode": "File",
            "S3DataDistributionType": distribution,
            **fields,
        },
    }


def output(name, uri, path=None):
    place = path or f"/opt/ml/processing/output/{name}"
    return {
        "OutputName": name,
        "S3Output": {"S3Uri": uri, "LocalPath": place, "S3UploadMode": "EndOfJob"},
    }


def request_of(name, script, *, count=1, inputs=(), outputs=(), **fields):
    cluster = {"InstanceCount": count, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 1}
    request = {
        "ProcessingJobName": name,
        "RoleArn": ROLE,
        "AppSpecification": {
            "ImageUri": "test:latest",
            "ContainerEntrypoint": ["sh", "-c", script],
        },
        "ProcessingResources": {"ClusterConfig": cluster},
        **fields,
    }
    if inputs:
        request["ProcessingInputs"] = list(inputs)
    if outputs:
        request["ProcessingOutputConfig"] = {"Outputs": list(outputs)}
    return request


def processed(server, *arguments, **fields):
    request = request_of(*arguments, **fields)
    server.sm.create_processing_job(**request)
    name = request["ProcessingJobName"]
    waiter = server.sm.get_waiter("processing_job_completed_or_stopped")
    waiter.wait(ProcessingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 300})
    return server.sm.describe_processing_job(ProcessingJobName=name)


def test_inputs_are_dealt_and_outputs_of_all_instances_uploaded(server):
    for number in range(5):
        server.put(f"pin/part-{number}")
    place = "/opt/ml/processing/data/shards"
    script = f"{HOST}; ls {place} > /opt/ml/processing/output/lists/$host; echo $GREETING"
    job = processed(
        server,
        "dealt",
        script,
        count=2,
        inputs=[source("shards", f"s3://{BUCKET}/pin/", place, "ShardedByS3Key")],
        outputs=[output("lists", f"s3://{BUCKET}/pout/lists")],
        Environment={"GREETING": "hello"},
    )
    assert job["ProcessingJobStatus"] == "Completed"
    assert job["ProcessingStartTime"] <= job["ProcessingEndTime"]
    assert server.keys("pout/lists/") == ["algo-1", "algo-2"]
    assert server.get("pout/lists/algo-1").split() == [b"part-0", b"part-2", b"part-4"]
    assert [text for _, text in server.lines("dealt", GROUP)] == ["hello", "hello"]


def test_a_container_that_fails_fails_the_job(server):
    server.sm.create_processing_job(
        **request_of("pfails", "echo it broke > /opt/ml/output/message; exit 2")
    )
    until(lambda: describe(server, "pfails")["ProcessingJobStatus"] == "Failed")
    job = describe(server, "pfails")
    assert job["ExitMessage"] == "it broke"
    assert job["FailureReason"] == "AlgorithmError: See job logs for more information"
    assert [
        it["ProcessingJobName"]
        for it in server.sm.list_processing_jobs(StatusEquals="Failed")["ProcessingJobSummaries"]
    ] == ["pfails"]


def describe(server, name):
    return server.sm.describe_processing_job(ProcessingJobName=name)


def test_a_processing_job_is_stopped(server):
    server.sm.create_processing_job(
        **request_of("pstop", "trap 'exit 0' TERM; while :; do sleep 0.05; done")
    )
    until(lambda: "ProcessingStartTime" in describe(server, "pstop"))
    server.sm.stop_processing_job(ProcessingJobName="pstop")
    until(lambda: describe(server, "pstop")["ProcessingJobStatus"] == "Stopped")
    server.sm.delete_processing_job(ProcessingJobName="pstop")
    with pytest.raises(ClientError, match="not found"):
        describe(server, "pstop")


@pytest.mark.parametrize("kind", ["absolute", "upwards"])
def test_the_name_of_an_input_is_no_place_on_this_machine(server, tmp_path, kind):
    (tmp_path / "mine").write_text("precious")
    name = str(tmp_path) if kind == "absolute" else f"../../../../../../../../../../..{tmp_path}"
    server.put(f"named/{kind}/theirs", b"x")
    given = source(name, f"s3://{BUCKET}/named/{kind}/", "/opt/ml/processing/data/named")
    job = processed(server, f"named-{kind}", "ls /opt/ml/processing/data/named", inputs=[given])
    assert job["ProcessingJobStatus"] == "Completed"
    assert [text for _, text in server.lines(f"named-{kind}", GROUP)] == ["theirs"]
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
