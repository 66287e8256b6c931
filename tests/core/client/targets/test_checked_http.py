"""Another user who has the port of an embedded SageMaker that ended is sent nothing, and is not believed."""

import dataclasses
import json
import signal
import socket

import pytest

from raysm.core.client.service import Service
from raysm.core.client.targets.local import ensure_server, find_server
from raysm.core.protocol.home import ServerRecord
from raysm.core.protocol.job_api import TRAINING
from raysm.core.request import AWS, Local
from raysm.errors import ForeignListener, ServiceError
from tests.support.another_user import needs_two_users, thief
from tests.support.homes import end, serving

ROLE = "arn:aws:iam::123456789012:role/test"


def status_answer(record):
    """Return what the server with this record would answer if it were asked for its status."""
    content = json.dumps(
        {"pid": record.pid, "started_s": record.started_s, "version": record.version}
    )
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(content)}\r\n\r\n{content}"


@needs_two_users
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_listens_later_at_the_port_of_a_server_is_sent_nothing_and_not_believed(
    tmp_path, number
):
    with serving(tmp_path / "home") as home:
        kept = Service(Local(home=str(home)))
        assert list(kept.summaries(TRAINING, limit=1)) == []
        record = ServerRecord.read(home)
        end(home, number)
        # As a server leaves it that is killed, and as a client may have read it just before.
        record.write(home)
        with thief(record.port, greeting=status_answer(record)) as other:
            other.await_port(record.port)
            assert find_server(home) is None
            assert kept.connection.wait_for_change("job", 1, 0.1, 2.0) in (0, 1)
            assert list(kept.summaries(TRAINING, limit=1)) == []
            assert list(Service(Local(home=str(home))).summaries(TRAINING, limit=1)) == []
            assert ServerRecord.read(home).pid != record.pid
            assert other.end() == ""


@needs_two_users
def test_a_client_of_aws_with_an_endpoint_on_this_machine_sends_nothing_to_another_user(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("RAYSM_HOME", str(tmp_path))
    with thief(port := endpoint_port(), greeting="HTTP/1.1 200 OK\r\n\r\n") as other:
        other.await_port(port)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "secret")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        with pytest.raises(ForeignListener, match=f"another user.*{port}"):
            Service(AWS(role=ROLE, region="us-east-1")).call("sts", "get_caller_identity")
        # Any process of this machine may come to the port by chance, but none with this key.
        assert "secret" not in other.end()


def endpoint_port():
    """Return a port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def test_a_client_of_aws_reaches_the_server_of_its_home_by_the_servers_socket(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with serving(tmp_path / "home") as home:
        record = ensure_server(home)
        monkeypatch.setenv("RAYSM_HOME", str(home))
        monkeypatch.setenv("AWS_ENDPOINT_URL", record.url)
        service = Service(AWS(role=ROLE, region="us-east-1"))
        assert service.account == "123456789012"
        # Its port alone would have been enough until now.
        (home / "server.json").with_name(record.socket.rpartition("/")[2]).rename(
            home / "elsewhere"
        )
        with pytest.raises(Exception, match="Could not connect"):
            Service(AWS(role=ROLE, region="us-east-1")).call("sts", "get_caller_identity")


def test_a_server_of_an_older_raysm_without_a_socket_is_found_to_be_ended_but_not_used(tmp_path):
    with serving(tmp_path / "home") as home:
        record = dataclasses.replace(ensure_server(home), socket="")
        record.write(home)
        assert find_server(home) == record
        with pytest.raises(ServiceError, match="raysm local down"):
            ensure_server(home)
