import concurrent.futures
import dataclasses
import fcntl
import io
import socket
import subprocess
import sys
import textwrap

import boto3
import pytest
from botocore import exceptions
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from raysm import __version__
from raysm.core.client.plan import plan
from raysm.core.client.service import Service, translated
from raysm.core.client.targets import local
from raysm.core.client.targets.local import ensure_server, find_server
from raysm.core.protocol.home import ServerRecord, lock_file, log_file
from raysm.core.protocol.job_api import TRAINING
from raysm.core.request import Cluster, JobRequest, Local
from raysm.errors import CredentialsExpired, JobNotFound, ServiceError
from raysm.features.script.request import Script
from tests.support.homes import end, serving
from tests.support.sagemaker import KEYS, REGION, SESSION, aws, places_of, refusal
from tests.support.waiting import until


def test_what_the_plan_says_is_what_is_sent(remote):
    request = JobRequest(name="job", workload=Script("x.py"), cluster=Cluster("ml.m5.large"))
    planned = plan(request, target=aws(), places=places_of(aws()))
    assert remote.service.create(planned).endswith("training-job/job")
    assert remote.sagemaker.sent == [planned.request]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("AccessDeniedException", "lacks this permission"),
        ("ExpiredTokenException", "log in again"),
        ("ResourceLimitExceeded", "Service Quotas"),
    ],
)
def test_a_refusal_names_the_operation_the_reason_and_the_remedy(remote, code, words):
    remote.fail("stop_training_job", refusal(code, "because"))
    with pytest.raises(
        ServiceError, match=f"stop_training_job.*{code}.*because.*{words}"
    ) as caught:
        remote.service.stop(TRAINING, "job")
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("ValidationException", "Requested resource not found."),
        ("ValidationException", "Could not find requested job with name: job"),
        ("ResourceNotFound", "no job"),
    ],
)
def test_a_job_that_is_not_there_is_an_error_of_its_own(remote, code, message):
    remote.fail("describe_training_job", refusal(code, message))
    with pytest.raises(JobNotFound):
        remote.service.describe(TRAINING, "job")


def test_a_profile_that_does_not_exist_is_a_clear_error():
    service = Service(aws(profile="no-such-profile"))
    with pytest.raises(ServiceError, match="no-such-profile"):
        service.client("sts")


def test_importing_the_client_pulls_in_neither_boto3_nor_cloudpickle():
    code = (
        "import sys, raysm.core.client.submit, raysm.core.client.job.handle;"
        "import raysm.core.client.job.listing, raysm.core.client.source.function;"
        "heavy = {'boto3', 'botocore', 'cloudpickle', 'ray', 'torch', 'numpy', 'pyarrow', 'rich'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "error",
    [
        exceptions.UnauthorizedSSOTokenError(),
        exceptions.TokenRetrievalError(provider="sso", error_msg="expired"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_login_that_is_too_old_for_a_call_is_the_same_error(error):
    with (
        pytest.raises(CredentialsExpired, match="aws sso login"),
        translated("describe_training_job"),
    ):
        raise error


@pytest.mark.parametrize("code", ["InternalServerException", "ThrottlingException"])
def test_an_error_that_passes_is_known_by_its_code(remote, code):
    remote.fail("describe_training_job", refusal(code, "later"))
    with pytest.raises(ServiceError) as caught:
        remote.service.describe(TRAINING, "job")
    assert caught.value.is_transient


def test_a_bucket_whose_default_name_needs_credentials_that_are_missing_is_refused_with_how_to_name_one():
    class WithoutKeys:
        def get_caller_identity(self):
            raise exceptions.NoCredentialsError

    service = Service(aws(), clients=lambda name: WithoutKeys())
    with pytest.raises(ServiceError, match="no AWS credentials.*--bucket"):
        _ = service.bucket


def test_a_service_that_cannot_be_reached_is_an_error_that_may_pass():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    config = Config(retries={"total_max_attempts": 1}, proxies={})
    client = boto3.client("sagemaker", region_name=REGION, endpoint_url=url, config=config, **KEYS)
    with pytest.raises(ServiceError, match="Could not connect") as caught:
        Service(aws(), clients={"sagemaker": client}.__getitem__).describe(TRAINING, "job")
    assert (caught.value.code, caught.value.is_transient) == ("", True)


class Page(io.BytesIO):
    """The body of an answer, as botocore reads it."""

    def stream(self, **kwargs):
        yield self.read()


def test_a_page_of_a_proxy_is_said_to_be_none_of_aws():
    client = SESSION.client("sts", region_name=REGION)
    page = AWSResponse(
        "https://sts", 200, {}, Page(b"<!doctype html>\n<html lang=en>log in first</html>")
    )
    client.meta.events.register("before-send.sts", lambda **_: page)
    with pytest.raises(ServiceError, match="(?s)not AWS's.*proxy") as error:
        Service(aws(), clients=lambda name: client).call("sts", "get_caller_identity")
    assert error.value.is_transient


def test_an_empty_answer_about_a_job_is_said_to_be_none_of_aws():
    client = SESSION.client("sagemaker", region_name=REGION)
    client.meta.events.register(
        "before-send.sagemaker", lambda **_: AWSResponse("https://sagemaker", 200, {}, Page())
    )
    with pytest.raises(ServiceError, match="not AWS's.*empty.*proxy") as error:
        Service(aws(), clients=lambda name: client).describe(TRAINING, "job")
    assert error.value.is_transient


STAND_IN = """
    import fcntl, http.server, json, os, socketserver, sys, tempfile, time
    from pathlib import Path
    from raysm.core.protocol.home import ServerRecord, lock_file

    home = Path(sys.argv[sys.argv.index("--home") + 1])
    lock = lock_file(home).open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit("another one serves this home")
    time.sleep(0.3)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"pid": os.getpid(), "started_s": started_s}).encode())

        def address_string(self):
            return "a client"

    path = tempfile.mkdtemp(dir=home) + "/s"
    server = socketserver.UnixStreamServer(path, Handler)
    with (home / "starts").open("a") as file:
        file.write("x")
    version, started_s = sys.argv[1], time.time()
    record = ServerRecord(pid=os.getpid(), port=1, started_s=started_s, version=version, socket=path)
    record.write(home)
    server.serve_forever()
"""


@pytest.fixture
def home(tmp_path):
    yield tmp_path / "home"
    # Not who the record names: a test writes numbers of processes into it that are anybody's.
    for process in local._started:
        process.kill()
        process.wait(60)


def stand_in(version=__version__):
    return (sys.executable, "-c", textwrap.dedent(STAND_IN), version)


def test_all_that_start_a_server_find_the_same_and_its_record_alone_is_not_believed(
    home, monkeypatch
):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    assert find_server(home) is None
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = {
            item.result()
            for item in [pool.submit(ensure_server, home, command=stand_in()) for _ in range(3)]
        }
    assert (home / "starts").read_text() == "x"
    record = ServerRecord.read(home)
    assert found == {record} == {ensure_server(home, command=("/nonsense",))}
    # Neither credentials nor a proxy are needed.
    service = Service(Local(home=str(home)))
    assert (service.client("s3").meta.endpoint_url, service.region) == (
        "http://localhost",
        "us-east-1",
    )
    dataclasses.replace(record, pid=record.pid + 1).write(home)
    assert find_server(home) is None  # another process answers there
    record.write(home)
    assert find_server(home) == record
    lock_file(home).unlink()
    lock_file(home).touch()
    assert find_server(home) is None  # no process holds the lock


def test_a_server_does_not_import_from_the_folder_of_its_caller(home, tmp_path, monkeypatch):
    (tmp_path / "standin.py").write_text("raise SystemExit('imported from the caller')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ServiceError, match="No module named standin"):
        ensure_server(home, command=(sys.executable, "-m", "standin"))


def test_a_server_is_started_again_where_the_old_one_was_just_ending(home):
    home.mkdir()
    with lock_file(home).open("wb") as old:
        fcntl.flock(old, fcntl.LOCK_EX)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            found = pool.submit(ensure_server, home, command=stand_in())
            until(
                lambda: log_file(home).exists() and "another one" in log_file(home).read_text(), 90
            )
            old.close()
            assert found.result(90) == ServerRecord.read(home)


def test_a_server_that_ends_at_its_start_says_why(home):
    command = (sys.executable, "-c", "import sys; sys.exit('no disk')")
    with pytest.raises(ServiceError, match=r"(?s)ended with 1.*server\.log.*no disk"):
        ensure_server(home, command=command)


def test_a_server_of_another_version_is_not_used(home):
    with pytest.raises(ServiceError, match=r"raysm 0\.0\.1.*raysm local down"):
        ensure_server(home, command=stand_in("0.0.1"))


@pytest.mark.long
def test_a_server_that_has_ended_is_started_again_for_who_asks_it(tmp_path):
    with serving(tmp_path / "home") as home:
        service = Service(Local(home=str(home)))
        for _ in range(2):
            assert list(service.summaries(TRAINING, limit=1)) == []
            end(home)
