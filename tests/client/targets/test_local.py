import time

from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from raysm.client.targets import Bucket
from raysm.client.targets.local import LocalConnection
from raysm.request import Local


def connection(tmp_path):
    return LocalConnection(Local(home=str(tmp_path)))


def test_nothing_is_asked_to_know_where_things_lie(tmp_path):
    local = connection(tmp_path)
    assert local.home == tmp_path
    assert local.region(None) == "us-east-1"
    assert local.bucket(None, None) == Bucket(name="raysm-local")
    assert local.data_root("s3://b/raysm") == (tmp_path / "data").as_uri()


def test_only_a_server_that_is_gone_is_started_again(tmp_path):
    assert connection(tmp_path).reconnect(EndpointConnectionError(endpoint_url="http://127.0.0.1:1"))
    assert not connection(tmp_path).reconnect(ReadTimeoutError(endpoint_url="http://127.0.0.1:1"))


def test_before_there_is_a_server_the_pause_is_waited(tmp_path):
    began = time.monotonic()
    connection(tmp_path).wait_for_end("a-job", 0.05, 30.0)
    assert time.monotonic() - began >= 0.05
