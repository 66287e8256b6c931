"""A server in this process: one for each home, gone when it is idle, closed to others; the jobs of a killed one end."""

import signal
import threading
from types import SimpleNamespace

import pytest

from raysm.core.protocol.home import Clock, ServerRecord, lock_file, sdk_config_file
from raysm.core.protocol.job_api import TRAINING
from raysm.errors import InvalidRequest
from raysm.local.scenario import Scenario
from raysm.local.server.market import Stock
from raysm.local.server.operations import Operations
from raysm.local.server.records import Records
from raysm.local.server.serving import Options, serve
from raysm.local.server.validation import ApiError
from tests.support.sagemaker_server import training_request
from tests.support.waiting import until


def test_where_the_time_passes_faster_what_really_runs_is_refused(tmp_path):
    records = Records(tmp_path, Clock(speed=60.0))
    services = SimpleNamespace(
        records=records, stock=Stock(Scenario(), records), scenario=Scenario()
    )
    with pytest.raises(ApiError, match="kind process"):
        Operations(services, "process").answer(
            "CreateTrainingJob", training_request("a", "exit 0"), "us-east-1"
        )
    with pytest.raises(ApiError):
        records.get(TRAINING, "a")


def test_managed_mlflow_is_refused_with_what_to_use_instead(tmp_path):
    records = Records(tmp_path)
    services = SimpleNamespace(
        records=records, stock=Stock(Scenario(), records), scenario=Scenario()
    )
    arn = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/team"
    request = training_request("a", "exit 0", MlflowConfig={"MlflowResourceArn": arn})
    with pytest.raises(ApiError, match="MLflow.* tracking='sqlite:///mlflow"):
        Operations(services, "process").answer("CreateTrainingJob", request, "us-east-1")


SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
WAIT_S = 300.0


@pytest.fixture(autouse=True)
def handlers():
    """What a server does with signals is this process's, too."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def when_it_listens(home, act):
    """Call ``act(record)`` in a thread as soon as a server of ``home`` can be found; return the thread."""

    thread = threading.Thread(target=lambda: act(until(lambda: ServerRecord.read(home), WAIT_S)))
    thread.start()
    return thread


def test_an_idle_server_ends_itself_and_leaves_no_record(tmp_path):
    serve(Options(home=tmp_path, idle_s=0.0))
    assert ServerRecord.read(tmp_path) is None
    assert sdk_config_file(tmp_path).read_text().count("TelemetryOptOut: true") == 1


def test_a_second_server_of_a_home_is_refused(tmp_path):
    refused = []

    def second(record):
        with pytest.raises(InvalidRequest, match="runs already") as raised:
            serve(Options(home=tmp_path))
        refused.append(raised.value)
        signal.raise_signal(signal.SIGTERM)

    thread = when_it_listens(tmp_path, second)
    serve(Options(home=tmp_path))
    thread.join()
    assert len(refused) == 1
    assert lock_file(tmp_path).exists()


def test_what_a_home_holds_is_this_users_alone(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o777)
    (home / "jobs").mkdir(mode=0o777)
    serve(Options(home=home, idle_s=0.0))
    assert {(home / name).stat().st_mode & 0o777 for name in ("jobs", "data", "s3")} == {0o700}
