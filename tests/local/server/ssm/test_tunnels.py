"""The client's tunnels into jobs of the embedded SageMaker: the whole way, by the service's own API."""

import os
import socket

import pytest

from raysm.client.job import attach
from raysm.client.service import Service
from raysm.errors import InvalidRequest, ServiceError
from raysm.request import Local
from tests.support.echo import ECHO, exchange
from tests.support.sagemaker_server import port_of

LET_IN = {"RemoteDebugConfig": {"EnableRemoteDebug": True}}


@pytest.fixture(scope="module")
def service(server):
    return Service(Local(home=str(server.home)), clients=server.client)


@pytest.fixture(scope="module")
def echo(server):
    """A job of two instances that listen; the port of each."""
    server.train("echo", ECHO, count=2, **LET_IN)
    yield {host: port_of(server, "echo", host) for host in ("algo-1", "algo-2")}
    server.sm.stop_training_job(TrainingJobName="echo")
    server.ended("echo")


def test_bytes_come_and_go(service, echo):
    data = os.urandom(300_000)
    with attach("echo", service).tunnel(echo["algo-1"]) as tunnel:
        assert exchange(("127.0.0.1", tunnel.port), data) == data


def test_many_connections_share_one_session(service, echo):
    with attach("echo", service).tunnel(echo["algo-2"], on="algo-2") as tunnel:
        for number in range(20):
            data = str(number).encode() * 1000
            assert exchange(("127.0.0.1", tunnel.port), data) == data


def test_where_nobody_listens_the_connection_ends_and_the_tunnel_stays(service, echo):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = taken.getsockname()[1]
    with attach("echo", service).tunnel(nobody) as tunnel:
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", tunnel.port)) as connection:
                assert connection.recv(1) == b""


def test_a_job_that_lets_nobody_in_is_opened_first(server, service):
    server.train("shut", ECHO)
    port = port_of(server, "shut")
    with attach("shut", service).tunnel(port) as tunnel:
        assert exchange(("127.0.0.1", tunnel.port), b"abc") == b"abc"
    assert server.describe("shut")["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    server.sm.stop_training_job(TrainingJobName="shut")
    job = server.ended("shut")
    with pytest.raises(InvalidRequest, match=rf"shut is {job['SecondaryStatus']}: it can be entered while"):
        attach("shut", service).tunnel(port)


def test_when_the_job_ends_its_connections_do(server, service):
    server.train("ending", ECHO, **LET_IN)
    port = port_of(server, "ending")
    with attach("ending", service).tunnel(port) as tunnel:
        with socket.create_connection(("127.0.0.1", tunnel.port), timeout=120) as connection:
            connection.sendall(b"abc")
            assert connection.recv(3) == b"abc"
            server.sm.stop_training_job(TrainingJobName="ending")
            assert connection.recv(1) == b""
    server.ended("ending")


def test_what_there_is_not_is_refused(service, echo):
    job = attach("echo", service)
    with pytest.raises(InvalidRequest, match="there is no instance 'algo-3': echo has algo-1 to algo-2"):
        job.tunnel(8265, on="algo-3")
    with pytest.raises(InvalidRequest, match="port must be a number from 1 to 65535, got 0"):
        job.tunnel(0)


def test_an_agent_that_is_not_there_is_not_waited_for_without_end(service, echo):
    from raysm.client.tunnel.forwarding import Forwarding
    from raysm.client.tunnel.session import Sessions, port_document
    from raysm.client.tunnel.tunnel import Tunnel

    sessions = Sessions(service, connect_s=0.0)
    with pytest.raises(ServiceError, match=r"sagemaker-training-job:echo_algo-9 is not connected.*ssmmessages"):
        Tunnel(lambda: Forwarding(sessions, "sagemaker-training-job:echo_algo-9", port_document(1)))
