"""StartSession and its kin by botocore's own client: whom they let in, and in which words they refuse."""

import pytest
from botocore.exceptions import ClientError

from tests.support.sagemaker_server import SOON_S, wait_until

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
