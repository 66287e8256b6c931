import dataclasses
import http.server
import importlib.util
import json
import threading
import time

import pytest
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from raysm.client.targets.connection import Bucket
from raysm.client.targets.local import LocalConnection
from raysm.contract.home import ServerRecord
from raysm.errors import MissingDependency, ServiceError
from raysm.request import JobRequest, Local, TorchScript

GONE = EndpointConnectionError(endpoint_url="http://127.0.0.1:1")


def connection(tmp_path):
    return LocalConnection(Local(home=str(tmp_path)))


def test_a_job_whose_packages_this_python_lacks_is_refused_with_the_extra_that_brings_them(tmp_path, monkeypatch):
    request = JobRequest(name="a", workload=TorchScript("train.py"))
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name))
    with pytest.raises(MissingDependency, match=r"'torch'.*python3 -m pip install 'raysm\[train\]'"):
        connection(tmp_path).resolve(request, lambda: "us-east-1")
    # Packages that the request itself installs, or that a container image has, need not be here.
    connection(tmp_path).resolve(dataclasses.replace(request, requirements=("torch==2.9",)), lambda: "us-east-1")
    LocalConnection(Local(home=str(tmp_path), instance_kind="docker")).resolve(request, lambda: "us-east-1")


def test_each_region_has_its_bucket_and_its_folder(tmp_path):
    far = LocalConnection(Local(home=str(tmp_path), regions=("eu-west-1",)))
    assert far.region(None) == "eu-west-1"
    assert far.bucket(None, None) == Bucket(name="raysm-local-eu-west-1")
    assert far.data_root("s3://b/raysm") == (tmp_path / "data" / "@eu-west-1").as_uri()


def test_only_a_server_that_is_gone_is_started_again(tmp_path):
    assert connection(tmp_path).reconnect(GONE)
    assert not connection(tmp_path).reconnect(ReadTimeoutError(endpoint_url="http://127.0.0.1:1"))


def test_a_server_that_was_told_to_end_is_not_started_again_for_who_follows_a_job(tmp_path):
    with pytest.raises(ServiceError, match=r"was ended, and its jobs with it; .*raysm jobs shows") as caught:
        connection(tmp_path).reconnect(GONE, is_followed=True)
    assert not caught.value.is_transient


def test_one_that_was_killed_is_started_again_to_say_what_became_of_the_job(tmp_path):
    ServerRecord(pid=1, port=1, started_s=0.0, version="1").write(tmp_path)
    assert connection(tmp_path).reconnect(GONE, is_followed=True)


class Telling:
    """A server that says how many changes there are, as a test has it; ``asked`` are the paths."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []
        telling = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                telling.asked.append(self.path)
                body = json.dumps({"changes": telling.answers.pop(0)}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def telling(request):
    telling = Telling(*request.param)
    thread = threading.Thread(target=telling.server.serve_forever)
    thread.start()
    yield telling
    telling.server.shutdown()
    thread.join()
    telling.server.server_close()


@pytest.mark.parametrize("telling", [(3, 5)], indirect=True, ids=["two"])
def test_word_of_a_jobs_next_line_comes_from_its_server_and_not_by_looking(tmp_path, telling):
    local = connection(tmp_path)
    local._url = telling.url
    seen = local.wait_for_change("a-job", 0, 600.0, 60.0)
    assert (seen, local.wait_for_change("a-job", seen, 600.0, 60.0)) == (3, 5)
    assert telling.asked == ["/raysm/jobs/us-east-1/a-job/change/0/20", "/raysm/jobs/us-east-1/a-job/change/3/20"]


@pytest.mark.parametrize("telling", [(3,)], indirect=True, ids=["one"])
def test_a_job_that_writes_all_the_time_is_not_looked_at_all_the_time(tmp_path, telling):
    local = connection(tmp_path)
    local._url = telling.url
    began_s = time.monotonic()
    local.wait_for_change("a-job", 0, 600.0, 60.0)
    assert time.monotonic() - began_s >= local.polling.first_s
