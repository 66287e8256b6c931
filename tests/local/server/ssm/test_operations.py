"""StartSession and its kin, by themselves and by botocore's own client: whom they let in, and how they refuse."""

from random import Random

import pytest
from botocore.exceptions import ClientError

from raysm.local.scenario import Ssm
from raysm.local.server.api_error import ApiError
from raysm.local.server.records import JobRecord, Records
from raysm.local.server.ssm.gateway import Gateway
from raysm.local.server.ssm.operations import SsmOperations
from tests.support.sagemaker_server import SOON_S, wait_until
from tests.support.ssm import Here

LET_IN = {"RemoteDebugConfig": {"EnableRemoteDebug": True}}
PORT = "AWS-StartPortForwardingSession"


@pytest.fixture(scope="module")
def ssm(server):
    return server.client("ssm")


@pytest.fixture(scope="module")
def target(server, ssm):
    """An instance into which everybody is let."""
    server.train("open", "while :; do sleep 0.1; done", **LET_IN)
    server.reached("open", "Training")
    # A job trains from when its instances are started; each is connected as soon as its own process is there.
    wait_until(lambda: connected(ssm, "sagemaker-training-job:open_algo-1"), SOON_S)
    yield "sagemaker-training-job:open_algo-1"
    server.sm.stop_training_job(TrainingJobName="open")
    server.ended("open")


def connected(ssm, target):
    try:
        ssm.terminate_session(SessionId=begun(ssm, target, portNumber="1")["SessionId"])
    except ssm.exceptions.TargetNotConnected:
        return False
    return True


def begun(ssm, target, document=PORT, **parameters):
    return ssm.start_session(
        Target=target, DocumentName=document, Parameters={name: [value] for name, value in parameters.items()}
    )


def test_a_session_has_a_name_a_token_and_an_address_of_this_server(server, ssm, target):
    answer = begun(ssm, target, portNumber="8265")
    assert answer["StreamUrl"] == (
        f"ws://127.0.0.1:{server.record.port}/v1/data-channel/{answer['SessionId']}?role=publish_subscribe"
    )
    resumed = ssm.resume_session(SessionId=answer["SessionId"])
    assert (resumed["SessionId"], resumed["StreamUrl"]) == (answer["SessionId"], answer["StreamUrl"])
    assert resumed["TokenValue"] != answer["TokenValue"]
    assert ssm.terminate_session(SessionId=answer["SessionId"])["SessionId"] == answer["SessionId"]
    with pytest.raises(ClientError, match="DoesNotExistException"):
        ssm.resume_session(SessionId=answer["SessionId"])


@pytest.mark.parametrize(
    "wrong", ["sagemaker-training-job:open_algo-2", "sagemaker-training-job:nobody_algo-1", "i-0123456789abcdef0", "x"]
)
def test_a_target_that_is_not_there_is_not_connected(ssm, target, wrong):
    with pytest.raises(ClientError, match=rf"\(TargetNotConnected\).*: {wrong} is not connected\.") as refused:
        begun(ssm, wrong)
    assert refused.value.response["Error"]["Code"] == "TargetNotConnected"


def test_a_job_that_lets_nobody_in_or_does_not_train_is_not_connected(server, ssm):
    server.train("shut-off", "while :; do sleep 0.1; done")
    server.reached("shut-off", "Training")
    with pytest.raises(ClientError, match="shut-off_algo-1 is not connected"):
        begun(ssm, "sagemaker-training-job:shut-off_algo-1")
    server.sm.update_training_job(TrainingJobName="shut-off", **LET_IN)
    wait_until(lambda: connected(ssm, "sagemaker-training-job:shut-off_algo-1"), SOON_S)
    server.sm.stop_training_job(TrainingJobName="shut-off")
    server.ended("shut-off")
    assert not connected(ssm, "sagemaker-training-job:shut-off_algo-1")


def test_documents_are_those_of_aws(ssm, target):
    for document, parameters in [
        (PORT, {"portNumber": "1"}),
        ("SSM-SessionManagerRunShell", {}),
        ("AWS-StartInteractiveCommand", {"command": "sh"}),
        ("AWS-StartNonInteractiveCommand", {"command": "ls"}),
    ]:
        ssm.terminate_session(SessionId=begun(ssm, target, document, **parameters)["SessionId"])
    with pytest.raises(ClientError, match=r"InvalidDocument.*Document with name No-Such does not exist"):
        begun(ssm, target, "No-Such")


@pytest.mark.parametrize(
    ("document", "parameters", "said"),
    [
        (PORT, {"portNumber": "many"}, "portNumber"),
        (PORT, {"portNumber": "70000"}, "portNumber"),
        ("AWS-StartInteractiveCommand", {}, "command is required"),
        ("AWS-StartInteractiveCommand", {"command": "'"}, "cannot be read"),
    ],
)
def test_wrong_parameters_are_named(ssm, target, document, parameters, said):
    with pytest.raises(ClientError, match=said):
        begun(ssm, target, document, **parameters)


OPEN = {"RemoteDebugConfig": {"EnableRemoteDebug": True}}


@pytest.fixture
def operations(tmp_path):
    """Of a server that has the job ``open``, which trains in ``operations.here``, and two others."""
    records = Records(tmp_path)
    for name, request, secondary in [
        ("open", OPEN, "Training"),
        ("shut", {}, "Training"),
        ("begins", OPEN, "Downloading"),
    ]:
        records.add(
            JobRecord(
                kind="training",
                name=name,
                arn=f"arn:{name}",
                region="us-east-1",
                request=request,
                secondary=secondary,
                created_s=1.0,
                modified_s=1.0,
            )
        )
    gateway, here = Gateway(Ssm(), Random(1)), Here()
    alone = SsmOperations(gateway, records, lambda job, region: {"algo-1": here} if region == "us-east-1" else {})
    alone.here = here
    yield alone
    gateway.close()


def started(operations, target="sagemaker-training-job:open_algo-1", host="127.0.0.1:4566", region="us-east-1"):
    request = {"Target": target, "DocumentName": PORT, "Parameters": {"portNumber": ["1"]}}
    return operations.answer("StartSession", request, region, host)


def test_a_job_of_another_region_is_not_connected(operations):
    with pytest.raises(ApiError, match="is not connected"):
        started(operations, region="eu-west-1")


def test_a_session_leads_to_the_address_by_which_the_client_came(operations):
    answer = started(operations, host="laptop:80")
    assert answer["StreamUrl"] == f"ws://laptop:80/v1/data-channel/{answer['SessionId']}?role=publish_subscribe"
    assert len(answer["TokenValue"]) >= 64


@pytest.mark.parametrize("job", ["shut", "begins", "nobody"])
def test_only_a_training_that_is_open_is_connected(operations, job):
    with pytest.raises(ApiError, match="is not connected") as raised:
        started(operations, f"sagemaker-training-job:{job}_algo-1")
    assert raised.value.code == "TargetNotConnected"


def test_an_instance_that_has_ended_is_not_connected(operations):
    started(operations)
    operations.here.exited.set_result(0)
    with pytest.raises(ApiError, match="open_algo-1 is not connected"):
        started(operations)


def test_a_session_that_was_terminated_cannot_be_resumed_and_may_be_terminated_again(operations):
    session = {"SessionId": started(operations)["SessionId"]}
    assert operations.answer("ResumeSession", session, "us-east-1", "here")["SessionId"] == session["SessionId"]
    for _ in range(2):
        assert operations.answer("TerminateSession", session, "us-east-1", "here") == session
    with pytest.raises(ApiError, match="does not exist"):
        operations.answer("ResumeSession", session, "us-east-1", "here")


@pytest.mark.parametrize(
    ("operation", "member"), [("StartSession", "target"), ("ResumeSession", "sessionId"), ("TerminateSession", "sess")]
)
@pytest.mark.parametrize("request_", [{}, {"Target": "", "SessionId": ""}, {"Target": 1, "SessionId": 1}])
def test_what_a_request_lacks_is_said_in_the_words_of_aws(operations, operation, member, request_):
    with pytest.raises(ApiError, match=f"Value null at '{member}.*Member must not be null"):
        operations.answer(operation, request_, "us-east-1", "here")


def test_it_has_its_three_operations_and_no_others(operations):
    names = ["StartSession", "ResumeSession", "TerminateSession", "DescribeSessions", "SendCommand"]
    assert [operations.has(name) for name in names] == [True, True, True, False, False]
